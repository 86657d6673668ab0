#!/usr/bin/env bash
# The script that continuous integration runs, over gates that are made up: the sum of their closing lines, and its status.
set -uo pipefail
run=$(cd "$(dirname "$0")/../.." && pwd)/.ci/run
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
wrong=0

# expect NAME STATUS LINE: with the `dev` of standard input, the run exits with STATUS and its last line is LINE.
expect() {
  local output rc last
  { echo '#!/bin/bash' && cat; } >"$scratch/dev"
  chmod 755 "$scratch/dev"
  output=$(TENURE_DEV=$scratch/dev "$run" 2>&1 </dev/null)
  rc=$?
  last=${output##*$'\n'}
  [[ $rc == "$2" && $last == "$3" ]] && return
  printf '%s: exit %s (expected %s), expected the last line "%s", got:\n%s\n' "$1" "$rc" "$2" "$3" "$output"
  wrong=$((wrong + 1))
}

expect 'gates that pass are added up' 0 '60 passed, 0 failed, 6 skipped' <<'TEXT'
echo "$1: 99 passed, 99 failed"
echo "10 passed, 0 failed, 1 skipped"
TEXT
expect 'a failed test is one of all' 1 '21 passed, 1 failed, 0 skipped' <<'TEXT'
[[ $1 == test-mooncake ]] && echo "1 passed, 1 failed" && exit 1
echo "4 passed, 0 failed"
TEXT
expect 'a gate that cannot be tried is skipped' 0 '20 passed, 0 failed, 1 skipped' <<'TEXT'
[[ $1 == test-vllm-units ]] && echo "dev: no index" >&2 && exit 77
echo "4 passed, 0 failed"
TEXT
expect 'a gate without a result has failed' 1 '20 passed, 1 failed, 0 skipped' <<'TEXT'
[[ $1 == test ]] && echo "dev: cannot build" >&2 && exit 1
echo "4 passed, 0 failed"
TEXT
expect 'a status that contradicts the line is a failure' 1 '24 passed, 1 failed, 0 skipped' <<'TEXT'
echo "4 passed, 0 failed"
[[ $1 != test ]]
TEXT
expect 'nothing tried is no success' 1 '0 passed, 0 failed, 6 skipped' <<'TEXT'
exit 77
TEXT

echo "ci: $wrong wrong"
((wrong == 0))
