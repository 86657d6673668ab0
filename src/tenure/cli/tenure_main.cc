#include <string>
#include <vector>

#include "tenure/cli/app.h"

int main(int argc, char** argv) { return tenure::cli::Run(std::vector<std::string>(argv + 1, argv + argc)); }
