#!/usr/bin/env bash
# usage: bench_peers.sh BUILD_FOLDER CACHE_FOLDER   (called by `./dev bench-peers`)
# Mooncake's master and client from its PyPI wheel and Tenure's embedded pool, the same operations alternating in one run.
# Everything listens on loopback only; the master ends with this script, however it ends.
set -uo pipefail
build=${1:?build folder}
cache=${2:?cache folder}
here=$(cd "$(dirname "$0")" && pwd)
wheel=mooncake-transfer-engine-cuda13==0.3.14
venv=$cache/peers-0.3.14
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

install_wheel() {
  [[ -f $venv/complete ]] && return
  echo "bench-peers: installing $wheel"
  rm -rf "$venv"
  python3 -m venv "$venv" && "$venv/bin/pip" install -q --disable-pip-version-check "$wheel" 'nvidia-cuda-runtime>=13,<14' \
    >"$work/pip.log" 2>&1 || die "cannot install $wheel: $(tail -n 2 "$work/pip.log")"
  touch "$venv/complete"
}

# The wheel's modules link libcuda.so.1, which only a GPU driver brings. A stand-in whose every function answers
# CUDA_ERROR_NO_DEVICE (100) is enough for host memory.
build_cuda_stand_in() {
  local stub=$work/cuda_stand_in.c
  nm -D --undefined-only "$package"/_store*.so "$package"/engine.so | grep -oE '\bcu[A-Z][A-Za-z0-9_]*' | LC_ALL=C sort -u |
    sed 's/.*/int &(void) { return 100; }/' >"$stub"
  gcc -shared -fPIC -o "$work/libcuda.so.1" "$stub" || die "cannot compile $stub"
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

install_wheel
site=$(echo "$venv"/lib/python3*/site-packages)
package=$site/mooncake
build_cuda_stand_in
start_master
export LD_LIBRARY_PATH=$work:$site/nvidia/cu13/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
timeout --foreground "$time_limit" "$venv/bin/python" "$here/bench_peers.py" --master "127.0.0.1:$rpc_port" \
  --store-bench "$build/bin/store_bench" --log "$work/client.log"
status=$?
((status != 124)) || die "not done after $time_limit s; stopped"
exit $status
