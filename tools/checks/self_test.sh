#!/usr/bin/env bash
# usage: self_test.sh CHECK
# Shows that a check can fail: it passes a small clean tree and fails each tree with one violation in it.
set -uo pipefail
check=${1:?usage: self_test.sh CHECK}
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0
cases=0

# write FILE: standard input becomes a file of the tree.
write() {
  mkdir -p "$(dirname "$scratch/tree/$1")"
  cat >"$scratch/tree/$1"
}

clean_tree() {
  rm -rf "$scratch/tree"
  write CMakeLists.txt <<<$'tenure_layer(base)\ntenure_layer(kv DEPENDS base\n             LIBRARIES x::y)\ntenure_layer(store DEPENDS kv)'
  local layer
  for layer in base kv store; do write "src/tenure/$layer/README.md" <<<"# $layer"; done
  write src/tenure/base/a.h <<<$'#pragma once\n\n#include <string>\n\nstd::string A();'
  write src/tenure/store/b.h <<<$'#pragma once\n\n#include "tenure/base/a.h"\n\nstd::string B();'
  write src/tenure/store/b.cc <<<$'#include "tenure/store/b.h"\n\n#include "tenure/kv/c.h"\n\nstd::string B() { return A(); }'
  write src/tenure/kv/c.h <<<$'#pragma once\n\n#include <vector>\n\nstd::vector<int> C();'
  write docs/page.md <<<$'# A page\n\nSee [the top](../README.md) and [below](#two-words).\n\n## Two words'
  write .clang-format <<<$'BasedOnStyle: Google\nColumnLimit: 120'
  write README.md <<<'See [a page](docs/page.md#two-words) and [elsewhere](https://example.org/x).'
}

run_check() {
  local arguments=("$scratch/tree")
  [[ $check == headers_alone ]] && arguments+=("${CXX:-g++}" "$scratch/work")
  output=$("$here/$check.sh" "${arguments[@]}" 2>&1)
}

# fails NAME FILE [EXPECTED]: with standard input as FILE, the check fails and names FILE.
fails() {
  clean_tree
  write "$2"
  cases=$((cases + 1))
  if run_check; then
    echo "$check accepts $1"
    failures=$((failures + 1))
  elif [[ $output != *"$2"* ]]; then
    printf '%s rejects %s without naming %s:\n%s\n' "$check" "$1" "$2" "$output"
    failures=$((failures + 1))
  fi
}

# passes NAME FILE: with standard input as FILE, the check passes.
passes() {
  clean_tree
  write "$2"
  cases=$((cases + 1))
  run_check && return
  printf '%s rejects %s:\n%s\n' "$check" "$1" "$output"
  failures=$((failures + 1))
}

lines() { seq "$1" | sed 's|^|// |'; }

case_layers() {
  fails 'an include of a higher layer' src/tenure/kv/up.h <<<'#include "tenure/store/b.h"'
  fails 'an include of a higher layer in a test' src/tenure/base/up_test.cc <<<'#include "tenure/kv/c.h"'
  fails 'a folder that is no layer' src/tenure/odd/x.h <<<'#include "tenure/base/a.h"'
  fails 'a relative include' src/tenure/store/near.cc <<<'#include "../kv/c.h"'
  fails 'a layer below its dependency' CMakeLists.txt <<<$'tenure_layer(kv DEPENDS base)\ntenure_layer(base)\ntenure_layer(store DEPENDS kv)'
  passes 'an include through two layers' src/tenure/store/down.h <<<'#include "tenure/base/a.h"'
}
case_headers_alone() {
  fails 'a header without its include' src/tenure/kv/bare.h <<<$'#pragma once\nstd::string Bare();'
  fails 'a header with a warning' src/tenure/kv/narrow.h <<<$'#pragma once\ninline int Narrow(long value) { return value; }'
}
case_heavy_headers() {
  fails 'JSON in a header' src/tenure/sim/x.h <<<'#include <nlohmann/json.hpp>'
  fails 'JSON in the store' src/tenure/store/x.cc <<<'#include <nlohmann/json.hpp>'
  fails 'spdlog outside the log' src/tenure/base/other.cc <<<'#include <spdlog/spdlog.h>'
  fails 'HTTP outside its layer' src/tenure/store/x.cc <<<'#include <httplib.h>'
  fails 'ZeroMQ in a header' src/tenure/handoff/x.h <<<'#include <zmq.h>'
  fails 'CLI11 outside cli' src/tenure/sim/x.cc <<<'#include <CLI/CLI.hpp>'
  fails 'gtest in the library' src/tenure/kv/x.cc <<<'#include <gtest/gtest.h>'
  fails 'benchmark in a test' src/tenure/kv/x_test.cc <<<'#include <benchmark/benchmark.h>'
  passes 'spdlog in the log' src/tenure/base/log.cc <<<'#include <spdlog/spdlog.h>'
  passes 'JSON in a source of sim' src/tenure/sim/x.cc <<<'#include <nlohmann/json.hpp>'
}
case_clocks() {
  fails 'a wall clock' src/tenure/kv/x.cc <<<'auto now = std::chrono::system_clock::now();'
  fails 'absl::Now' src/tenure/kv/x.h <<<'absl::Time t = absl::Now();'
  fails 'a seed from the machine' src/tenure/kv/x_test.cc <<<'std::random_device device;'
  fails 'a sleeping test' src/tenure/kv/x_test.cc <<<'std::this_thread::sleep_for(1ms);'
  passes 'a wall clock in the log' src/tenure/base/log.cc <<<'auto now = std::chrono::system_clock::now();'
}
case_ordered() {
  fails 'a loop over a hash map' src/tenure/kv/x.cc <<<$'absl::flat_hash_map<int, int> seen;\nfor (auto& [k, v] : seen) Use(k);'
  fails 'a loop over a member declared in the header' src/tenure/kv/c.cc < <(
    echo 'std::unordered_set<int> ids_;'
    echo 'for (int id : this->ids_) Use(id);'
  )
  fails 'iterators of a hash set' src/tenure/kv/x.cc <<<$'std::unordered_set<int> ids_;\nauto it = ids_.begin();'
  passes 'a loop over an ordered map' src/tenure/kv/x.cc <<<$'std::map<int, int> seen;\nfor (auto& [k, v] : seen) Use(k);'
  passes 'a loop with a reason' src/tenure/kv/x.cc <<<$'std::unordered_set<int> ids;\n// order-free: a sum.\nfor (int id : ids) sum += id;'
}
case_shape() {
  fails 'a long header' src/tenure/kv/long.h < <(echo '#pragma once' && lines 300)
  fails 'a long source' src/tenure/kv/long.cc < <(lines 701)
  fails 'a long layer page' src/tenure/kv/README.md < <(lines 26)
  fails 'a header without a guard' src/tenure/kv/x.h <<<'int x;'
  clean_tree
  rm "$scratch/tree/src/tenure/kv/README.md"
  cases=$((cases + 1))
  run_check && echo "$check accepts a layer without a page" && failures=$((failures + 1))
}
case_finished() {
  fails 'unfinished work' src/tenure/kv/x.cc <<<"// TO""DO: later"
  fails 'a test that is off' src/tenure/kv/x_test.cc <<<"TEST(X, DIS""ABLED_Y) {}"
  fails 'commented-out code' src/tenure/kv/x.cc <<<'  // return x;'
  passes 'a sentence about to do' src/tenure/kv/x.cc <<<'// What is left to do is a list.'
}
case_portable() {
  fails 'a home folder' src/tenure/kv/x.cc <<<"open(\"/ro""ot/x\")"
  fails 'a work folder in a page' docs/page.md <<<"Run it in /wo""rk/main."
  fails 'a registry host' tools/x.sh <<<"pip install -i https://py""pi.org/simple x"
  fails 'a page outside the repository' docs/page.md <<<"See shar""ed/spec/store_connector.md."
  passes 'a relative path that ends alike' src/tenure/kv/x.cc <<<'open(dir + "net/work/load")'
}
case_links() {
  fails 'a link to nowhere' docs/page.md <<<'[x](absent.md)'
  fails 'an anchor to nowhere' docs/page.md <<<'[x](#absent)'
  passes 'a link in a code block' docs/page.md <<<$'## Two words\n```\n[x](absent.md)\n```'
}
case_format() {
  fails 'unformatted code' src/tenure/kv/x.cc <<<'int   x ;'
}

clean_tree
run_check || { echo "$check rejects a clean tree: $output"; failures=$((failures + 1)); }
"case_$check"
((cases > 0)) || { echo "no case for $check"; exit 1; }
echo "$check: $cases cases, $failures wrong"
((failures == 0))
