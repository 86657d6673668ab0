#!/usr/bin/env bash
# Headers that cost seconds to compile stay in the few files that need them.
source "$(dirname "$0")/lib.sh"

# only INCLUDE WHERE: INCLUDE may stand only in files whose path matches WHERE.
only() {
  local files
  mapfile -t files < <(project_files '*.h' '*.cc' | grep -E '^(src|tests)/' | grep -vE "$2")
  forbid "^ *# *include +[<\"]$1" "belongs only into files that match $2" "${files[@]}"
}
only 'spdlog/' '^src/tenure/base/log\.cc$'
only 'nlohmann/' '^(src/tenure/(sim|cli|handoff)|tests)/.*\.cc$'
only 'httplib' '^src/tenure/http/.*\.cc$'
only 'zmq' '^src/tenure/handoff/.*\.cc$'
only 'CLI/' '^src/tenure/cli/.*\.cc$'
only '(gtest|gmock)/' '(_test|_testing)\.(cc|h)$|^tests/'
only 'benchmark/' '_bench\.cc$'
only 'msgpack' '\.cc$'
finish
