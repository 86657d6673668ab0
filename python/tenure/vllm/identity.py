"""Who wrote the objects of a store whose keys cannot tell: one identity object a key prefix, put once and compared.

Stock's key format names neither dtype nor layout nor the full model id. Engines of Tenure that share such keys compare what
they are and refuse to start on a difference; a stock engine neither writes nor reads the identity.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from tenure._native import Error, KeyAnswer, Pool

if TYPE_CHECKING:
    from tenure.vllm.model import ModelStore

_OBJECT_BYTES = 4096  # A fixed size, since a reader must know it.
_KEY = hashlib.sha256(b"tenure identity").digest()


def check_identity(pool: Pool, store: ModelStore) -> None:
    """Compares this engine with the one that wrote first; writes its own identity where there is none.

    Error lists every field that differs, with both values and the remedy.
    """
    key = (pool.open_namespace(store.identity_prefix()), _KEY)
    ours = json.dumps(store.identity, sort_keys=True).encode()
    if len(ours) > _OBJECT_BYTES:
        raise Error(f"the identity of this model has {len(ours)} bytes, more than {_OBJECT_BYTES}; use key_format tenure")
    theirs = _read(pool, key)
    if theirs is None:
        pool.put([key], [ours.ljust(_OBJECT_BYTES)])
        theirs = _read(pool, key)  # Two that start together: whoever came first counts.
    if theirs is None:
        return  # The store took nothing; then it has nothing of ours to mistake either.
    _compare(theirs, json.loads(ours))


def _read(pool: Pool, key: tuple[Any, bytes]) -> dict[str, Any] | None:
    buffer = bytearray(_OBJECT_BYTES)
    if pool.get([key], [buffer])[0] is not KeyAnswer.PRESENT:
        return None
    try:
        value = json.loads(bytes(buffer).decode())
    except ValueError:
        return {"unreadable": True}
    return value if isinstance(value, dict) else {"unreadable": True}


def _compare(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    differences = [
        f"{field}: theirs {theirs.get(field)!r}, ours {ours.get(field)!r}"
        for field in sorted(set(theirs) | set(ours))
        if theirs.get(field) != ours.get(field)
    ]
    if differences:
        raise Error(
            "another engine with the same keys stores other bytes in this pool (" + "; ".join(differences) + "); set cache_prefix in "
            'kv_connector_extra_config to keep them apart, or key_format to "tenure"'
        )
