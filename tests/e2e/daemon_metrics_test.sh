#!/usr/bin/env bash
# A daemon serves /metrics and /healthz and nothing else, and docs/reference/metrics.md has a line for each metric in the page's order.
set -uo pipefail
tenure=${1:?usage: daemon_metrics_test.sh PROGRAM}
docs=$(cd "$(dirname "$0")/../.." && pwd)/docs/reference/metrics.md
scratch=$(mktemp -d)
trap '[[ -z ${daemon:-} ]] || kill "$daemon" 2>/dev/null; rm -rf "$scratch"' EXIT
wrong=0

fail() {
  echo "$*"
  wrong=$((wrong + 1))
}

# page PATH: what the daemon answers, headers and all.
page() {
  exec 3<>"/dev/tcp/127.0.0.1/$port" || return 1
  printf 'GET %s HTTP/1.0\r\n\r\n' "$1" >&3
  cat <&3
  exec 3<&-
}

mkfifo "$scratch/log"
"$tenure" serve --socket "$scratch/pool.sock" --memory 64MiB --metrics 127.0.0.1:0 2>"$scratch/log" &
daemon=$!
IFS= read -r line <"$scratch/log"
cat "$scratch/log" >/dev/null &
port=${line##*metrics on port }
[[ $port =~ ^[0-9]+$ ]] || { echo "no port in: $line"; exit 1; }

page /metrics >"$scratch/page"
grep -q '^HTTP/1.. 200' "$scratch/page" || fail "/metrics: $(head -n 1 "$scratch/page")"
grep -q '^tenure_pool_capacity_bytes 67108864' "$scratch/page" || fail "/metrics does not show the capacity"
diff <(sed -n 's/^# TYPE \([a-z_]*\) \([a-z]*\)$/\1 \2/p' "$scratch/page") \
  <(sed -n 's/^| `\(tenure_[a-z_]*\)` | \([a-z]*\) .*/\1 \2/p' "$docs") >"$scratch/diff" ||
  fail "page (<) and docs/reference/metrics.md (>) differ: $(cat "$scratch/diff")"
page /healthz | grep -q '^ok' || fail "/healthz is not ok"
page /other | grep -q '^HTTP/1.. 404' || fail "/other is not 404"

kill -TERM "$daemon"
wait "$daemon"
status=$?
((status == 0)) || fail "exit $status after SIGTERM"
[[ ! -e $scratch/pool.sock && ! -e $scratch/pool.sock.lock ]] || fail "the socket or its lock is still there"
((wrong == 0))
