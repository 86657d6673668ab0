#!/usr/bin/env bash
# The entry script: usage, and what it does on machines where packages are missing (with apt and dpkg replaced).
set -uo pipefail
dev=$(cd "$(dirname "$0")/../.." && pwd)/dev
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
chmod 755 "$scratch"
mkdir "$scratch/bin" "$scratch/tree"
cp "$dev" "$scratch/tree/dev"
wrong=0

# tool NAME: standard input becomes a program in front of the machine's own.
tool() {
  cat >"$scratch/bin/$1"
  chmod 755 "$scratch/bin/$1"
}

# expect NAME STATUS TEXT COMMAND...: the command exits with STATUS and its output holds TEXT.
expect() {
  local name=$1 status=$2 text=$3 output rc
  shift 3
  output=$(PATH=$scratch/bin:$PATH HOME=$scratch "$@" 2>&1 </dev/null)
  rc=$?
  [[ $rc == "$status" && $output == *"$text"* ]] && return
  printf '%s: exit %s (expected %s), expected the text "%s", got:\n%s\n' "$name" "$rc" "$status" "$text" "$output"
  wrong=$((wrong + 1))
}

expect 'no command' 2 'usage: ./dev COMMAND' "$scratch/tree/dev"
expect 'an unknown command' 2 "unknown command 'tset'" "$scratch/tree/dev" tset
expect 'an argument too many' 2 'usage: ./dev COMMAND' "$scratch/tree/dev" demo now
expect 'a case that there is not' 2 "pd-cases takes a, b, a run as a-lease, or nothing for all, not 'c'" "$scratch/tree/dev" pd-cases c
expect 'help' 0 'bench-peers' "$scratch/tree/dev" help

# All is installed but the fmt and JSON packages.
tool dpkg-query <<'TEXT'
#!/bin/sh
case "$*" in *libfmt-dev | *nlohmann-json3-dev) exit 1 ;; *) printf installed ;; esac
TEXT
tool apt-get <<'TEXT'
#!/bin/sh
case "$*" in *update) exit 0 ;; *nlohmann*) echo 'E: Unable to locate package' >&2 && exit 100 ;; esac
TEXT
if ((EUID == 0)); then
  expect 'a package that cannot be installed' 1 'package nlohmann-json3-dev cannot be installed: E: Unable to locate' \
    "$scratch/tree/dev" build
  rm -rf "$scratch/tree/build"
  expect 'a user without root' 1 'missing packages: libfmt-dev nlohmann-json3-dev' \
    setpriv --reuid 65534 --regid 65534 --clear-groups "$scratch/tree/dev" build
else
  expect 'a user without root' 1 'missing packages: libfmt-dev nlohmann-json3-dev' "$scratch/tree/dev" build
fi
tool apt-get <<'TEXT'
#!/bin/sh
echo 'Err: cannot resolve the mirror' >&2
exit 100
TEXT
((EUID != 0)) || expect 'no package lists' 1 'apt-get update failed: Err: cannot resolve the mirror' "$scratch/tree/dev" build

tool dpkg-query <<'TEXT'
#!/bin/sh
printf installed
TEXT
expect 'seconds that are no number' 1 "not 'ten'" "$scratch/tree/dev" fuzz ten

echo "dev: $wrong wrong"
((wrong == 0))
