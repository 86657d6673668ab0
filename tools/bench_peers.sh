#!/usr/bin/env bash
# usage: bench_peers.sh BUILD_FOLDER PYTHON LIBRARIES   (called by `./dev bench-peers`)
# PYTHON is that of an environment with Mooncake's wheel, LIBRARIES the LD_LIBRARY_PATH that its modules need.
# Mooncake's master and client from its PyPI wheel and Tenure's embedded pool, the same operations alternating in one run.
# Everything listens on loopback only; the master ends with this script, however it ends.
set -uo pipefail
build=${1:?build folder}
python=${2:?interpreter}
libraries=${3:?library path}
here=$(cd "$(dirname "$0")" && pwd)
package=$(echo "${python%/bin/*}"/lib/python3*/site-packages/mooncake)
work=$build/bench-peers
time_limit=300  # Seconds for all measurements together.
mkdir -p "$work"

master=
stop_master() { [[ -z $master ]] || { kill "$master" 2>/dev/null && wait "$master" 2>/dev/null; master=; }; }
trap stop_master EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

die() {
  echo "bench-peers: $*" >&2
  exit 1
}

# free_ports N: N ports of loopback that were free a moment ago.
free_ports() {
  python3 -c '
import socket, sys
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
print(*(s.getsockname()[1] for s in held))' "$1"
}

start_master() {
  read -r rpc_port metrics_port < <(free_ports 2)
  "$package/mooncake_master" -rpc_address=127.0.0.1 -rpc_port="$rpc_port" -rpc_thread_num=2 -metrics_host=127.0.0.1 \
    -metrics_port="$metrics_port" -logtostderr=true </dev/null >"$work/master.log" 2>&1 &
  master=$!
  local try
  for ((try = 0; try < 300; ++try)); do
    kill -0 "$master" 2>/dev/null || die "mooncake_master ended at once: $(tail -n 3 "$work/master.log")"
    (exec 3<>"/dev/tcp/127.0.0.1/$metrics_port") 2>/dev/null && (exec 3<>"/dev/tcp/127.0.0.1/$rpc_port") 2>/dev/null && return
    sleep 0.1
  done
  die "mooncake_master does not answer on port $rpc_port; see $work/master.log"
}

start_master
LD_LIBRARY_PATH=$libraries timeout --foreground "$time_limit" "$python" "$here/bench_peers.py" --master "127.0.0.1:$rpc_port" \
  --store-bench "$build/bin/store_bench" --log "$work/client.log"
status=$?
((status != 124)) || die "not done after $time_limit s; stopped"
exit $status
