#!/usr/bin/env bash
# usage: headers_alone.sh ROOT COMPILER WORK_FOLDER
# Every header compiles by itself. The objects go through ccache, so that an unchanged header costs milliseconds.
source "$(dirname "$0")/lib.sh"
compiler=${2:?compiler}
work=${3:?work folder}
mkdir -p "$work"
launcher=$(command -v ccache || true)
flags=(-std=c++20 -O0 -Isrc -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Werror)
[[ $compiler == *clang* ]] && flags+=(-Wthread-safety)

compile_alone() {
  local header=$1 unit=$work/${1//\//_}.cc
  # shellcheck disable=SC2086  # An empty launcher is no argument.
  printf '#include "%s"\n' "${header#src/}" >"$unit"
  $launcher "$compiler" "${flags[@]}" -c "$unit" -o "${unit%.cc}.o" >"$unit.log" 2>&1 ||
    { echo "$header: does not compile alone with $compiler"; head -n 5 "$unit.log"; }
}
pids=()
status=0
mapfile -t headers < <(project_files '*.h' | grep '^src/')
((${#headers[@]})) || violation "src: no header found"
output=$work/result
: >"$output"
for header in "${headers[@]}"; do
  compile_alone "$header" >>"$output" &
  pids+=($!)
  if ((${#pids[@]} >= 2)); then
    wait "${pids[0]}" || status=1
    pids=("${pids[@]:1}")
  fi
done
wait || status=1
[[ -s $output || $status != 0 ]] && { cat "$output"; violation "${#headers[@]} headers checked with $compiler"; }
finish
