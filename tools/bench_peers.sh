#!/usr/bin/env bash
# usage: bench_peers.sh BUILD_FOLDER PYTHON LIBRARIES   (called by `./dev bench-peers`)
# PYTHON is that of an environment with Mooncake's wheel, LIBRARIES the LD_LIBRARY_PATH that its modules need.
# Mooncake's master and client from its PyPI wheel and Tenure's embedded pool, the same operations alternating in one run.
# Everything listens on loopback only. The end is asked for first, since the program ends the master.
set -uo pipefail
build=${1:?build folder}
python=${2:?interpreter}
libraries=${3:?library path}
here=$(cd "$(dirname "$0")" && pwd)
work=$build/bench-peers
time_limit=300  # Seconds for all measurements together.
mkdir -p "$work"

PYTHONDONTWRITEBYTECODE=1 LD_LIBRARY_PATH=$libraries timeout --foreground --kill-after=30 "$time_limit" \
  "$python" "$here/bench_peers.py" --store-bench "$build/bin/store_bench" --work "$work"
status=$?
if ((status == 124 || status == 137)); then
  echo "bench-peers: not done after $time_limit s; stopped" >&2
  exit 1
fi
exit $status
