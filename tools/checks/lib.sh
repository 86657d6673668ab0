# Sourced by each check: the root to look at, the files of the project, and how a violation is told.
set -uo pipefail
root=$(cd "${1:?usage: $0 ROOT}" && pwd)
cd "$root" || exit 1
violations=0

# project_files PATTERN...: files of ours that match a name pattern, in a fixed order; build folders and caches are not ours.
project_files() {
  local names=() pattern
  for pattern in "$@"; do names+=(-o -name "$pattern"); done
  find . \( -path ./build -o -path './.*' -o -name __pycache__ \) -prune -o -type f \( "${names[@]:1}" \) -print |
    sed 's|^\./||' | LC_ALL=C sort
}

violation() {
  echo "$*"
  violations=$((violations + 1))
}

# forbid PATTERN REMEDY FILE...: each line that matches is a violation.
forbid() {
  local pattern=$1 remedy=$2 line
  shift 2
  (($#)) || return 0
  while IFS= read -r line; do
    violation "$(cut -c1-200 <<<"$line"): $remedy"
  done < <(grep -HnEI -e "$pattern" -- "$@" | grep -vE "${ignored_lines:-^$}")
}

# forbid_in_code PATTERN REMEDY FILE...: the same, but a comment may speak of it.
forbid_in_code() { ignored_lines='^[^:]*:[0-9]+: *//' forbid "$@"; }

finish() {
  ((violations == 0)) && exit 0
  echo "$violations violation(s) of $(basename "$0" .sh)"
  exit 1
}
