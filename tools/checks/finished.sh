#!/usr/bin/env bash
# No unfinished work in the tree, and no test that is switched off.
source "$(dirname "$0")/lib.sh"
mapfile -t code < <(project_files '*.h' '*.cc' '*.sh' '*.py' '*.cmake' CMakeLists.txt dev | grep -v '^tools/checks/')
forbid '(^|[^A-Za-z])(TODO|FIXME|XXX|HACK)([^A-Za-z]|$)|[Nn]ot implemented|NotImplementedError' 'finish it, or leave it out' "${code[@]}"
# The conformance suite leaves out what a pool declares not to keep, and tests the declared difference instead.
ignored_lines='^tests/conformance/.*: +if \(!?[A-Z][A-Za-z]*\(.*\)\) GTEST_SKIP' \
  forbid 'DISABLED_|GTEST_SKIP|mark\.skip|unittest\.skip' 'a test runs or is deleted' "${code[@]}"
mapfile -t cpp < <(printf '%s\n' "${code[@]}" | grep -E '\.(h|cc)$')
# An example in a header's comment is set in by three blanks.
forbid '^ *// ?([a-zA-Z_:]+\(.*\);|return .*;|(if|for|while) \(.*|#include .*|\}) *$' 'looks like commented-out code' "${cpp[@]}"
finish
