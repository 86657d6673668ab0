#!/usr/bin/env bash
# The store connector's tests on a GPU: tokens, faults and partial tails with KV tensors in device memory, and the same memory named to a
# real Mooncake.
#
#   tools/gpu_check.sh PYTHON      PYTHON: the interpreter of a virtual environment with vLLM 0.32 for CUDA, mooncake-transfer-engine-cuda13
#                                  0.3.14 or newer, and pytest in it
#
# Installs this tree's package into that environment. On a machine without a GPU it says so and ends with 1.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=${1:?gpu_check.sh: give the interpreter of an environment with vLLM 0.32 for CUDA}

"$python" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' ||
  { echo "gpu_check.sh: torch of $python sees no CUDA device; run it on a GPU machine" >&2; exit 1; }
"$python" -c 'import vllm, sys; sys.exit(not vllm.__version__.startswith("0.32"))' ||
  { echo "gpu_check.sh: $python has another vLLM than 0.32; install vllm==0.32.0" >&2; exit 1; }
site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
export LD_LIBRARY_PATH=$site/nvidia/cu13/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}  # Mooncake links CUDA 13's runtime.
"$python" -c 'import mooncake.store' ||
  { echo "gpu_check.sh: $python has no Mooncake; install mooncake-transfer-engine-cuda13==0.3.14" >&2; exit 1; }

"$root/dev" build
"$python" -m pip install -q --force-reinstall --no-deps "$root/python"
models=$(mktemp -d)
trap 'rm -rf "$models"' EXIT
"$python" "$root/tests/e2e/vllm/tiny_models.py" "$models" llama gemma3 qwen3next
export TENURE_TEST_MODELS=$models TENURE_PROGRAM=$root/build/release/bin/tenure PYTHONPATH=$root/tests/e2e
TENURE_TEST_DEVICE=cuda:0 "$python" -m pytest -q -x -p no:cacheprovider "$root/tests/e2e/mooncake_device_test.py"
cd "$root/tests/e2e/vllm"
for model in llama gemma3 qwen3next; do
  "$python" -m pytest -q -x -p no:cacheprovider test_tokens.py --model "$model"
done
"$python" -m pytest -q -x -p no:cacheprovider test_partial_tails.py
ranks=()
"$python" -c 'import torch, sys; sys.exit(torch.cuda.device_count() > 1)' && ranks=(-k 'not two_ranks')  # Each takes a GPU of its own.
"$python" -m pytest -q -x -p no:cacheprovider test_daemon.py "${ranks[@]}"
# Copies of a store that stands still for a minute hold their blocks for that long, and each answer of that test waits for its saves.
"$python" -m pytest -q -x -p no:cacheprovider test_mooncake.py -k 'not takes_a_minute'
