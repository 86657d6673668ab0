"""Checks of one connector option's value, for every connector. Each returns the value, or raises ValueError or TypeError with one line
that names the option, its value and the remedy."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection
from typing import Any, NoReturn


def refuse_unknown(name: str, value: object, known: Collection[str], page: str) -> NoReturn:
    """Raises for an option that is none of `known`; `page` of docs/reference lists them."""
    close = difflib.get_close_matches(name, sorted(known), n=1)
    hint = f"did you mean {close[0]}?" if close else f"remove it, or see docs/reference/{page}"
    raise ValueError(f"unknown option {name} with the value {value!r}; {hint}")


def text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}; use text")
    return value


def one_of(*choices: str) -> Callable[[str, Any], str]:
    def check(name: str, value: Any) -> str:
        if value not in choices:
            raise ValueError(f"{name} is {value!r}; use {' or '.join(choices)}")
        return str(value)

    return check


def seconds(at_most: int) -> Callable[[str, Any], float]:
    def check(name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or not 0 < value <= at_most:
            raise ValueError(f"{name} is {value!r}; use seconds above 0, at most {at_most}")
        return float(value)

    return check


def threads(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 64:
        raise ValueError(f"{name} is {value!r}; use a whole number from 1 to 64")
    return value
