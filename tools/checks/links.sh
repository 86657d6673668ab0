#!/usr/bin/env bash
# Relative links in Markdown files lead to a file, and their anchors to a heading.
source "$(dirname "$0")/lib.sh"

# anchors FILE: the anchors that its headings get.
anchors() {
  grep -E '^#+ ' "$1" | sed -E 's/^#+ +//; s/[^A-Za-z0-9 _-]//g; s/ /-/g' | tr '[:upper:]' '[:lower:]'
}

while IFS= read -r page; do
  while IFS= read -r link; do
    case $link in http://* | https://* | mailto:*) continue ;; esac
    path=${link%%#*}
    target=$page
    if [[ -n $path ]]; then
      target=$(dirname "$page")/$path
      [[ -e $target ]] || { violation "$page: link to $link leads nowhere"; continue; }
    fi
    [[ $link == *'#'* && $target == *.md ]] || continue
    anchors "$target" | grep -qxF -- "${link#*#}" || violation "$page: $link names no heading of $target"
  done < <(sed '/^```/,/^```/d' "$page" | grep -oE '\]\([^) ]+\)' | sed -E 's/^\]\((.*)\)$/\1/')
done < <(project_files '*.md')
finish
