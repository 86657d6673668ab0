"""Keys of CURVE, ZeroMQ's encryption, for the side channel between a prefill engine (P) and a decode engine (D).

    python -m tenure.pd.keys NAME

writes a new pair: NAME.secret for P, which its owner alone may read, and NAME.public for every D. Existing files are left as they are.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from tenure import _native

__all__ = ["main", "read_key", "write_pair"]

_FILE_BYTES_MAX = 1024


def write_pair(name: str) -> None:
    """A new pair as NAME.secret and NAME.public. OSError when a file is there or cannot be written."""
    public, secret = _native.pd_make_curve_keys()
    for suffix, key, mode in ((".secret", secret, 0o600), (".public", public, 0o644)):
        with os.fdopen(os.open(name + suffix, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
            file.write(key + "\n")


def read_key(option: str, path: Any) -> str:
    """The key in a file, with or without a line's end. ValueError or TypeError names the option, the file and the remedy, never the
    key; PoolUnavailable when this ZeroMQ has no CURVE."""
    if not isinstance(path, str):
        raise TypeError(f"{option} is {path!r}; use the path of a key file")
    try:
        with open(path, "rb") as file:
            content = file.read(_FILE_BYTES_MAX)
    except (OSError, ValueError) as error:  # ValueError: a path with a zero byte.
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ValueError(f"{option} is {path!r}, which cannot be read ({reason}); use the path of a key file") from None
    key = content.decode("latin-1").strip()
    _native.pd_check_curve_key(f"{option} is {path!r}, whose content", key)
    return key


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns its exit status."""
    names = sys.argv[1:] if arguments is None else arguments
    if len(names) != 1 or names[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        write_pair(names[0])
    except OSError as error:
        print(f"tenure.pd.keys: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
