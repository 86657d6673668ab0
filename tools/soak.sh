#!/usr/bin/env bash
# usage: soak.sh BUILD_FOLDER JOBS [--seconds N] [--requests N] [--first-seed N]   (called by `./dev soak`)
# Runs the simulated P/D pair under faults, 1,000 requests a seed, seed after seed, JOBS processes at a time at the lowest
# priority. What a seed does is decided by it alone, so a failure is found again with the line that names it. Each process
# also tries the planted faults, which the checks have to find.
set -uo pipefail
build=${1:?build folder}
jobs=${2:?number of processes}
shift 2
requests_per_seed=1000
seeds_per_run=25   # Enough that every kind of fault occurs in a run, which the test asks for.
seconds=3600       # No run begins after that.
requests=1000000
first=$((RANDOM * 32768 + RANDOM + 1))

fail() {
  echo "soak: $*" >&2
  exit 2
}

while (($#)); do
  [[ ${2:-} =~ ^[1-9][0-9]{0,11}$ ]] || fail "$1 takes a whole number from 1 on, not '${2:-}'"
  case $1 in
    --seconds) seconds=$2 ;;
    --requests) requests=$2 ;;
    --first-seed) first=$2 ;;
    *) fail "unknown option '$1'; use --seconds, --requests or --first-seed" ;;
  esac
  shift 2
done

work=$build/soak
seeds=$(((requests + requests_per_seed - 1) / requests_per_seed))
runs=$(((seeds + seeds_per_run - 1) / seeds_per_run))
rm -rf "$work"
mkdir -p "$work"
children=()
# The children first: a run that goes on would keep its processor.
end_children() { ((${#children[@]} == 0)) || kill "${children[@]}" 2>/dev/null; }
trap 'end_children; exit 130' INT
trap 'end_children; exit 143' TERM

# one_run SEED COUNT: a process; a line for it, and its result in $work.
one_run() {
  local log=$work/$1.log began=$SECONDS program
  trap 'kill "$program" 2>/dev/null; exit 143' TERM
  TENURE_PD_FIRST_SEED=$1 TENURE_PD_SEEDS=$2 TENURE_PD_REQUESTS=$requests_per_seed nice -n 19 \
    "$build/bin/pd_test" --gtest_filter='PdSimulation.Nothing*:*PdCanaryTest*' >"$log" 2>&1 </dev/null &
  program=$!
  if wait "$program"; then
    echo "$2" >"$work/$1.passed"
    echo "soak: seeds $1 to $(($1 + $2 - 1)): passed in $((SECONDS - began)) s"
  else
    touch "$work/$1.failed"
    echo "soak: seeds $1 to $(($1 + $2 - 1)): FAILED; all of it is in $log"
    grep -vE '^\[|^Note:|^$' "$log" | head -n 20
    echo "soak: again with: ./dev soak --first-seed $1 --requests $(($2 * requests_per_seed))"
  fi
}

echo "soak: $seeds seeds from $first on, $requests_per_seed requests each, $jobs at a time; no run begins after $seconds s"
begun=0
while ((begun < runs && SECONDS < seconds)); do
  while (($(jobs -rp | wc -l) >= jobs)); do wait -n; done
  left=$((seeds - begun * seeds_per_run))
  one_run $((first + begun * seeds_per_run)) $((left < seeds_per_run ? left : seeds_per_run)) &
  mapfile -t children < <(jobs -rp)
  begun=$((begun + 1))
done
wait

passed=$(cat "$work"/*.passed 2>/dev/null | awk '{ sum += $1 } END { print sum + 0 }')
bad=$(find "$work" -name '*.failed' | wc -l)
((begun == runs)) || echo "soak: the time is over; $((runs - begun)) of $runs runs were not begun"
echo "soak: $((passed * requests_per_seed)) requests under faults passed in $SECONDS s, $bad runs failed"
((bad == 0 && passed > 0))
