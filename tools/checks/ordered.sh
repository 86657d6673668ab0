#!/usr/bin/env bash
# Nothing that reaches a decision, a message or a report iterates an unordered container (style rule 11). The check finds
# the names declared with an unordered type in foo.{h,cc} and loops over them there.
source "$(dirname "$0")/lib.sh"

while IFS= read -r stem; do
  files=()
  for file in "$stem.h" "$stem.cc"; do [[ -f $file ]] && files+=("$file"); done
  names=$(grep -hoE '(unordered|flat_hash|node_hash)_(map|set)<.*>&? +[a-z_0-9]+ *[;{=(,)]' "${files[@]}" |
    sed -E 's/.*> *&? +([a-z_0-9]+) *[;{=(,)]$/\1/' | LC_ALL=C sort -u | paste -sd'|')
  [[ -n $names ]] || continue
  while IFS= read -r hit; do
    file=${hit%%:*}
    number=$(cut -d: -f2 <<<"$hit")
    sed -n "$((number > 1 ? number - 1 : 1)),${number}p" "$file" | grep -q '// order-free: ' && continue
    violation "$file:$number: loops over an unordered container; sort first, use an ordered one, or say '// order-free: why'"
  done < <(grep -HnE "for \(.*: \*?(this->)?[a-z_0-9.>-]*\b($names)\)|\b($names)(\.|->)c?begin\(\)" "${files[@]}")
done < <(project_files '*.h' '*.cc' | grep '^src/' | sed -E 's/\.(h|cc)$//' | LC_ALL=C sort -u)
finish
