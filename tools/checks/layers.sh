#!/usr/bin/env bash
# Includes point down the layers. The layers and their edges are read from the tenure_layer lines of CMakeLists.txt.
source "$(dirname "$0")/lib.sh"

declare -A allowed  # layer -> " layer below ... " including itself
while read -r name dependencies; do
  allowed[$name]=" $name "
  for dependency in $dependencies; do
    [[ -v allowed[$dependency] ]] || { violation "CMakeLists.txt: layer $name depends on $dependency, which is not above it in the file"; continue; }
    for below in ${allowed[$dependency]}; do
      [[ ${allowed[$name]} == *" $below "* ]] || allowed[$name]+="$below "
    done
  done
done < <(tr '\n' ' ' <CMakeLists.txt | grep -oE 'tenure_layer\([^)]*\)' |
  sed -E 's/tenure_layer\(([a-z_]+) ?(DEPENDS ([a-z_ ]*))?.*/\1 \3/')

((${#allowed[@]})) || violation "CMakeLists.txt: no tenure_layer line found"

while IFS=: read -r file line include; do
  layer=$(cut -d/ -f3 <<<"$file")
  target=$(sed -E 's|.*"tenure/([a-z_]+)/.*|\1|' <<<"$include")
  if [[ ! -v allowed[$layer] ]]; then
    violation "$file:$line: src/tenure/$layer is no layer of CMakeLists.txt; add a tenure_layer line"
  elif [[ ${allowed[$layer]} != *" $target "* ]]; then
    violation "$file:$line: $layer may include${allowed[$layer]% } but not $target; move the code or the interface down"
  fi
done < <(project_files '*.h' '*.cc' | grep '^src/tenure/' | xargs -r grep -HnE '^ *# *include +"tenure/')

# A path that does not start at the include root hides an edge from this check.
mapfile -t ours < <(project_files '*.h' '*.cc' | grep -E '^(src|tests)/')
forbid '^ *# *include +"\.' 'include from the root src/, not by a relative path' "${ours[@]}"
finish
