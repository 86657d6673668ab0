#!/usr/bin/env bash
# An unlimited store hits, to the token, what a count of repeated blocks says of the two traces in the repository; and the report is the
# same in two runs. The expected figures come from a script apart: whole blocks stored at once, all but the last token's usable.
set -euo pipefail
tenure=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/full-512.json" <<'JSON'
{"name": "full-512", "hash_block_size": 512, "groups": [{"kind": "full", "block_size": 512, "bytes": 512}]}
JSON

check() {  # check TRACE PROMPT_TOKENS HIT_TOKENS OBJECTS
  local pool lookup field
  for pool in closed independent mooncake; do
    for lookup in tail-first exhaustive; do
      "$tenure" replay "$root/traces/$1" --model "$work/full-512.json" --capacity unlimited --pool "$pool" --lookup "$lookup" \
        --lease all,selective --json "$work/report.json" >/dev/null
      for field in "\"prompt_tokens\": $2" "\"reusable_tokens\": $3" "\"hit_tokens\": $3" "\"stored_total\": $4" "\"total_tokens\": 0"; do
        grep -q "$field," "$work/report.json" || { echo "$1, $pool, $lookup: the report lacks $field"; exit 1; }
      done
    done
  done
}
check conversation_1000.jsonl 13732944 2959360 20527
check agentic_small.jsonl 55689757 51909632 6395

# The small agentic trace is what its README says.
"$tenure" workload agentic --sessions 24 --requests 2000 --seed 1 | cmp - "$root/traces/agentic_small.jsonl"

# Under pressure, everything but the measured time is the same in two processes.
for run in 1 2; do
  "$tenure" replay "$root/traces/agentic_small.jsonl" --model kimi-linear-48b --capacity 16GiB --state-every 4096 \
    --lease all,selective | sed '/^lookup time/,+2d' >"$work/table.$run"
done
cmp "$work/table.1" "$work/table.2"
echo "both traces give the expected totals in every pool and lookup mode"
