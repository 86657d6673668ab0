#!/usr/bin/env bash
# usage: demo.sh PROGRAM   (called by `./dev demo`, from the root of the repository)
# Replays the two small traces in both lease modes on both pools, with too little room for all, and says what the figures mean.
set -uo pipefail
tenure=${1:?path of the tenure program}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT

# replay NAME TRACE CAPACITY POOL: prints the report and keeps it as NAME.
replay() {
  echo "--- $2, $4 pool of $3"
  "$tenure" replay "traces/$2.jsonl" --model kimi-linear-48b --capacity "$3" --state-every 4096 --lease all,selective --pool "$4" |
    tee "$scratch/$1"
  local status=${PIPESTATUS[0]}
  ((status == 0)) || exit "$status"
  echo
}

# rate NAME COLUMN: the hit rate of a report, "86.26 %"; column 1 is lease all, 2 lease selective.
rate() { awk -v column="$2" '/^hit rate/ { print $(NF - 3 + 2 * (column - 1)) " %" }' "$scratch/$1"; }
ceiling() { awk -F'[()]' '/^reusable/ { print $2 }' "$scratch/$1"; }

replay agentic_closed agentic_small 16GiB closed
replay agentic_independent agentic_small 16GiB independent
replay chat_closed conversation_1000 80GiB closed
replay chat_independent conversation_1000 80GiB independent

fold -s -w 110 <<TEXT
What it means: under this pressure, leasing only what a load reads instead of all that a lookup finds moves the hit rate from \
$(rate agentic_closed 1) to $(rate agentic_closed 2) on the agentic trace in the closed pool ($(rate agentic_independent 1) to \
$(rate agentic_independent 2) in the independent one; a store without limit would reach $(ceiling agentic_closed)), and from \
$(rate chat_closed 1) to $(rate chat_closed 2) on the conversation trace ($(rate chat_independent 1) to \
$(rate chat_independent 2); $(ceiling chat_closed)), where few prompts come back at all.
TEXT
