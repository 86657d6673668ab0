#!/usr/bin/env bash
# usage: bench.sh BUILD_FOLDER LIMITS   (called by `./dev bench` and `./dev bench-pd` with a table of this folder)
# TENURE_BENCH_TRACE=FILE also times the replay of a trace; the limits are for the whole conversation trace of the Mooncake paper.
# Runs the benchmark programs that the table names and prints each figure beside its limit. The verdict is for
# the reader: no test depends on it, since the figures depend on the machine and on what else runs on it.
set -uo pipefail
build=${1:?build folder}
limits=${2:?table of limits}
work=$build/bench
mkdir -p "$work"
trap 'exit 130' INT

# figures FILE: "name <tab> figure <tab> number" for every number of Google Benchmark's JSON.
figures() {
  awk -F'"' '
    /^ *"name": /  { name = $4; sub(/\/(iterations:[0-9]+|manual_time|real_time)(\/manual_time)?$/, "", name) }
    /^ *"error_message": / { print name "\terror\t" $4 }
    /^ *"[a-z_A-Z0-9]+": -?[0-9]/ { value = $3; gsub(/[^-+0-9.eE]/, "", value); print name "\t" $2 "\t" value }
  ' "$1"
}

# run_program PROGRAM: the benchmarks that the table names, into $work/PROGRAM.tsv.
run_program() {
  local filter
  filter=$(awk -F'\t' -v program="$1" '$1 == program { print $2 }' "$limits" | paste -sd'|')
  echo "running $1" >&2
  "$build/bin/$1" --benchmark_filter="^($filter)(/|$)" --benchmark_format=json --benchmark_min_time=0.5 \
    >"$work/$1.json" 2>"$work/$1.log" </dev/null || { echo "$1 failed: $(tail -n 2 "$work/$1.log")" >&2 && return 1; }
  figures "$work/$1.json" >"$work/$1.tsv"
}

print_table() {
  awk -F'\t' -v work="$work" '
    BEGIN { printf "%-68s %12s  %-14s %-8s %s\n", "benchmark", "figure", "unit", "limit", "" }
    /^#/ { next }
    {
      file = work "/" $1 ".tsv"
      found = 0
      while ((getline line < file) > 0) {
        split(line, part, "\t")
        if (part[1] !~ "^(" $2 ")$") continue
        if (part[2] == "error") {  # Said once, not for each of its figures.
          if (!said[part[1]]++) printf "%-68s %s\n", part[1], part[3] ~ /^void/ ? part[3] : "ERROR: " part[3]
          found = 1
          continue
        }
        if (part[2] != $3) continue
        found = 1
        value = part[3] * $5
        limit = substr($6, 3) + 0
        verdict = $6 == "-" ? "" : (($6 ~ /^<=/ ? value <= limit : value >= limit) ? "reached" : "MISSED")
        printf "%-68s %12.2f  %-14s %-8s %s\n", part[1], value, $4, $6, verdict
      }
      close(file)
      if (!found) printf "%-68s %12s  %-14s %-8s %s\n", $2, "none", $4, $6, "NOT MEASURED"
    }' "$limits"
}

# time_replay LABEL LIMIT OPTION...: seconds of one replay of $TENURE_BENCH_TRACE, the whole process.
time_replay() {
  local label=$1 limit=$2 start=$EPOCHREALTIME
  shift 2
  "$build/bin/tenure" replay "$TENURE_BENCH_TRACE" --model kimi-linear-48b --state-every 4096 "$@" >"$work/replay.log" 2>&1 ||
    { echo "replay failed: $(tail -n 1 "$work/replay.log")" >&2 && return 1; }
  awk -v label="$label" -v start="$start" -v end="$EPOCHREALTIME" -v limit="$limit" 'BEGIN {
    value = end - start
    printf "%-68s %12.2f  %-14s %-8s %s\n", label, value, "s", "<=" limit, value <= limit ? "reached" : "MISSED" }'
}

status=0
while IFS= read -r program; do
  rm -f "$work/$program.tsv"
  run_program "$program" || status=1
done < <(grep -v '^#' "$limits" | cut -f1 | LC_ALL=C sort -u)
echo
print_table
if [[ -n ${TENURE_BENCH_TRACE:-} ]]; then
  time_replay 'replay, unlimited store, one mode' 2 || status=1
  time_replay 'replay, 512 GiB, both lease modes' 6 --capacity 512GiB --lease all,selective || status=1
fi
exit $status
