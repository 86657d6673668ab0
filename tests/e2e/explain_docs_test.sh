#!/usr/bin/env bash
# Every example of docs/reference/explain.md is answered as printed there, in one session. Argument: the program.
set -euo pipefail

program=$1
page=$(dirname "$0")/../../docs/reference/explain.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

awk '/^```/ { inside = ($0 == "```json"); next } inside' "$page" >"$work/lines"
awk 'NR % 2 == 1' "$work/lines" >"$work/requests"
awk 'NR % 2 == 0' "$work/lines" >"$work/expected"
examples=$(wc -l <"$work/requests")
if [[ $examples -lt 8 || $examples -ne $(wc -l <"$work/expected") ]]; then
  echo "found $examples requests in $page; each needs its answer on the next line" >&2
  exit 1
fi
"$program" explain <"$work/requests" >"$work/answers"
diff "$work/expected" "$work/answers"
echo "$examples examples"
