"""Runs the P/D tests: one pytest process for each pair of engines, two at a time, and one line with the sum at the end.

    run_pd.py LOG_FOLDER [NAME ...]        NAME: only the sessions whose name contains one of them

Two pairs at a time, since each waits for much of its time; a pair takes 25 s to start on two idle cores.
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "vllm"))

from run import main  # noqa: E402

SESSIONS = {
    "connector": ["test_connector.py", "test_memory.py"],
    "llama-requests-ends": ["test_requests.py", "test_ends.py", "--bootstrap", "external", "--keys"],
    "tokens-llama-ucx": ["test_tokens.py", "test_preemption.py", "--model", "llama", "--transport", "ucx", "--blocks", "69"],
    "tokens-llama-tcp": ["test_tokens.py", "--model", "llama", "--transport", "tcp"],
    "tokens-gemma3": ["test_tokens.py", "--model", "gemma3", "--transport", "local"],
    "tokens-qwen3next": ["test_tokens.py", "--model", "qwen3next"],
    "tokens-tp-1-2": ["test_tokens.py", "--model", "gemma3", "--tp", "1:2"],
    "tokens-tp-2-1": ["test_tokens.py", "--model", "llama", "--tp", "2:1"],
    "tokens-pp-1-2": ["test_tokens.py", "--model", "gemma3", "--pp", "1:2", "-k", "d_goes_on or other_kv or many or first_token"],
    "tokens-pp-2-1": ["test_tokens.py", "--model", "llama", "--pp", "2:1", "-k", "d_goes_on or other_kv"],
    "failures": ["test_failures.py"],
    "both": ["test_both.py"],
    "proxy": ["test_proxy.py"],
    "data-parallel": ["test_data_parallel.py"],
    "stock": ["test_stock.py"],
    "multi-connector": ["test_multi_connector.py"],
}

if __name__ == "__main__":
    sys.exit(main(HERE, SESSIONS, lanes=2, seconds=840))
