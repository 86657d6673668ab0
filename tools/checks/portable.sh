#!/usr/bin/env bash
# Nothing in the tree names one machine: no absolute path of a home or work folder, no registry host, nothing outside the repository.
source "$(dirname "$0")/lib.sh"
mapfile -t text < <(project_files '*.h' '*.cc' '*.sh' '*.py' '*.cmake' '*.md' '*.txt' '*.json' '*.supp' '*.toml' dev LICENSE NOTICE)
forbid '(^|[^A-Za-z0-9._*}-])/(tmp|root|work|home)/[a-z]' 'a path of one machine; use a temporary folder or a path from an argument' "${text[@]}"
forbid 'https?://(pypi|files|deb|security|proxy|registry)[.]' 'a registry host; name the package only' "${text[@]}"
forbid '(^|[^A-Za-z_])\.\./shared|(^|[^A-Za-z_/])shared/(spec|traces|cases|vllm|design|style)' \
  'not in this repository; name the page instead (store_connector spec §1.3)' "${text[@]}"
finish
