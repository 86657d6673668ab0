"""The program `tenure-proxy`, also as `python -m tenure.proxy`."""

from __future__ import annotations

import importlib.util
import sys


def main() -> int:
    """The exit status. aiohttp comes with the extra only, and its lack is one line."""
    try:
        found = importlib.util.find_spec("aiohttp") is not None
    except ValueError:
        found = False
    if not found:
        print('tenure-proxy: aiohttp is not installed; install it with: pip install "tenure[proxy]"', file=sys.stderr)
        return 1
    from tenure.proxy.process import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
