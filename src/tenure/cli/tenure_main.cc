#include <string>
#include <vector>

#include "tenure/cli/process.h"

int main(int argc, char** argv) { return tenure::cli::RunProcess(std::vector<std::string>(argv + 1, argv + argc)); }
