#!/usr/bin/env bash
# clang-format has nothing to change (remedy: ./dev format).
source "$(dirname "$0")/lib.sh"
formatter=$(command -v clang-format-14 || command -v clang-format) || { violation "clang-format is not installed"; finish; }
mapfile -t code < <(project_files '*.h' '*.cc' | grep -E '^(src|tests)/')
while IFS= read -r file; do
  "$formatter" --dry-run -Werror "$file" >/dev/null 2>&1 || violation "$file: not formatted; run ./dev format"
done < <(printf '%s\n' "${code[@]}")
finish
