#!/usr/bin/env bash
# Each wrong option of `tenure serve` is one line that names it, and exit code 2; the daemon takes no memory and leaves no file.
set -uo pipefail
tenure=${1:?usage: daemon_options_test.sh PROGRAM}
scratch=$(mktemp -d)
trap '[[ -z ${daemon:-} ]] || kill "$daemon" 2>/dev/null; rm -rf "$scratch"' EXIT
socket=$scratch/pool.sock
wrong=0

# refused STATUS TEXT ARGUMENT...
refused() {
  local status=$1 text=$2 output rc
  shift 2
  output=$(timeout 60 "$tenure" serve "$@" 2>&1 </dev/null)
  rc=$?
  if [[ $rc == "$status" && $output == *"$text"* && $(wc -l <<<"$output") == 1 ]]; then return; fi
  printf 'serve %s: exit %s (expected %s), expected one line with "%s", got:\n%s\n' "$*" "$rc" "$status" "$text" "$output"
  wrong=$((wrong + 1))
}

# config TEXT: the path of a file that holds it.
config() {
  printf '%s\n' "$1" >"$scratch/serve.toml"
  printf '%s' "$scratch/serve.toml"
}

refused 2 '--socket is not given' --memory 64MiB
refused 2 '--memory is not given' --socket "$socket"
refused 2 '--memory "10 apples"' --socket "$socket" --memory '10 apples'
refused 2 '--memory "-1"' --socket "$socket" --memory=-1
refused 2 'less than one slab' --socket "$socket" --memory 63MiB
refused 2 'this machine has' --socket "$socket" --memory 900TiB
refused 2 '--mode open' --socket "$socket" --memory 64MiB --mode open
refused 2 'no folder' --socket "$scratch/no/pool.sock" --memory 64MiB
refused 2 '107' --socket "$scratch/$(printf 'x%.0s' {1..120})" --memory 64MiB
refused 2 'another kind' --socket "$scratch" --memory 64MiB
refused 2 '--group no-such-group' --socket "$socket" --memory 64MiB --group no-such-group
refused 2 '--metrics "1.2.3.4:x"' --socket "$socket" --memory 64MiB --metrics 1.2.3.4:x
refused 2 '--metrics "::1:90"' --socket "$socket" --memory 64MiB --metrics ::1:90
refused 2 '--metrics 192.0.2.1:9108' --socket "$socket" --memory 64MiB --metrics 192.0.2.1:9108
refused 2 '--drain-timeout' --socket "$socket" --memory 64MiB --drain-timeout soon
refused 2 '--clients-max' --socket "$socket" --memory 64MiB --clients-max 0
refused 2 '--held-bytes-max 1MiB' --socket "$socket" --memory 64MiB --held-bytes-max 1MiB
refused 2 '--sockets' --sockets "$socket" --memory 64MiB
refused 2 'No such file' --config "$scratch/none.toml"
refused 2 'line 2: there is no key "memmory"' --config "$(config $'socket = "x"\nmemmory = "1GiB"')"
refused 2 'line 1: memory: give a text' --config "$(config 'memory = [1, 2]')"
refused 2 'line 1: huge_pages' --config "$(config 'huge_pages = "yes"')"
refused 2 'line 1: not TOML' --config "$(config 'memory = ')"
refused 2 '--memory "3 pears"' --socket "$socket" --config "$(config 'memory = "3 pears"')"
if ((EUID != 0)); then
  mkdir -m 500 "$scratch/closed"
  refused 2 'may not create files' --socket "$scratch/closed/pool.sock" --memory 64MiB
fi
[[ ! -e $socket && ! -e $socket.lock ]] || { echo "a refused daemon left its socket or lock"; wrong=$((wrong + 1)); }

# docs/operating/daemon.md has a line for each option and for no other.
docs=$(cd "$(dirname "$0")/../.." && pwd)/docs/operating/daemon.md
diff <("$tenure" serve --help | grep -oE -- '^ +(-h,)?--[a-z-]+' | tr -d ' ' | grep -v -- '--help' | LC_ALL=C sort) \
  <(sed -n 's/^| `\(--[a-z-]*\).*/\1/p' "$docs" | LC_ALL=C sort) ||
  { echo "tenure serve --help (<) and docs/operating/daemon.md (>) differ"; wrong=$((wrong + 1)); }

# A second daemon is refused by name while the first one serves; the command line wins over the file.
mkfifo "$scratch/log"
"$tenure" serve --config "$(config "socket = \"$scratch/other.sock\"
memory = \"64MiB\"")" --socket "$socket" 2>"$scratch/log" &
daemon=$!
IFS= read -r _ <"$scratch/log"
cat "$scratch/log" >/dev/null &
[[ -S $socket ]] || { echo "no socket at $socket"; wrong=$((wrong + 1)); }
refused 1 "process $daemon" --socket "$socket" --memory 64MiB
kill -KILL "$daemon"
wait "$daemon" 2>/dev/null

# What a killed daemon leaves is taken over.
rm "$scratch/log" && mkfifo "$scratch/log"
"$tenure" serve --socket "$socket" --memory 64MiB 2>"$scratch/log" &
daemon=$!
IFS= read -r line <"$scratch/log"
[[ $line == *"64 MiB on $socket"* ]] || { echo "a stale socket was not taken over: $line"; wrong=$((wrong + 1)); }
kill -TERM "$daemon"
wait "$daemon"
status=$?
((status == 0)) || { echo "exit $status after SIGTERM"; wrong=$((wrong + 1)); }
((wrong == 0))
