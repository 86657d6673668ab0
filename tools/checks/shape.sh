#!/usr/bin/env bash
# Files of a size that a reader holds in mind, and a page a layer.
source "$(dirname "$0")/lib.sh"

# at_most LINES FILE REMEDY
at_most() {
  local lines
  lines=$(wc -l <"$2")
  ((lines <= $1)) || violation "$2: $lines lines, at most $1; $3"
}

for layer in src/tenure/*/; do
  readme=${layer}README.md
  if [[ -f $readme ]]; then
    at_most 25 "$readme" "say what, the parts in a sentence each, what it may include"
  else
    violation "$readme: missing; every layer says what it is"
  fi
done
while IFS= read -r file; do
  case $file in
    *.h)
      at_most 300 "$file" "look for the second idea"
      [[ $(grep -c '^#pragma once$' "$file") == 1 ]] || violation "$file: needs one '#pragma once'"
      ;;
    *.cc) at_most 700 "$file" "look for the second idea" ;;
  esac
done < <(project_files '*.h' '*.cc' | grep -E '^(src|tests)/')
finish
