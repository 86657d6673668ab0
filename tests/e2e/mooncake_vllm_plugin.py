"""Runs vLLM's store tests over tenure.compat.mooncake_store. A pytest plugin of `./dev test-vllm-units`.

Puts a store over an embedded Tenure pool in the place of a test module's `_DictStore`. Counts the calls of each test, and after
each reads every object back that its put stored, since vLLM's tests look at keys and not at bytes. Addresses outside of what a test
registered (some invent them, one names a block past its memory) stand for places in an arena of real memory.
TENURE_GATE_FAULT=zeroes makes every get deliver zeroes: the gate must fail then.
"""

import collections
import ctypes
import itertools
import os
import random

import pytest

from tenure.compat.mooncake_store import MooncakeDistributedStore

ARENA_BYTES = 1 << 21
_tenants = itertools.count()
_stores = []
_results = collections.OrderedDict()


class _Keys:
    """The keys that are there, as the dict of a _DictStore shows them."""

    def __init__(self, store):
        self._store = store

    def keys(self):
        return [key for key, found in zip(self._store.sources, self._store.exists(list(self._store.sources))) if found == 1]

    def __iter__(self):
        return iter(self.keys())

    def __len__(self):
        return len(self.keys())

    def __delitem__(self, key):
        assert self._store.real.remove(key, True) == 0


class TenureStore:
    """What vLLM's worker needs of a store; each call goes to tenure.compat.mooncake_store."""

    def __init__(self):
        self.real = MooncakeDistributedStore()
        self.calls = collections.Counter()
        self.sources = {}
        self._registered = []
        self._arena = ctypes.create_string_buffer(random.Random(7).randbytes(ARENA_BYTES), ARENA_BYTES)
        assert self.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", "") == 0
        # What a test registered may be freed by the time of the read-back; this is not.
        self._scratch = ctypes.create_string_buffer(ARENA_BYTES)
        for memory in (self._arena, self._scratch):
            assert self.real.register_buffer(ctypes.addressof(memory), ARENA_BYTES) == 0
        self._registered.append((ctypes.addressof(self._scratch), ARENA_BYTES))
        self.calls.clear()
        _stores.append(self)

    def setup(self, *arguments, **_options):
        self.calls["setup"] += 1
        if self.real.health_check() == 0:
            return 0
        return self.real.setup(*arguments[:6], "embedded:64MiB", tenant_id=f"vllm-{next(_tenants)}")

    def register_buffer(self, address, size):
        self.calls["register_buffer"] += 1
        # Zeroes would hide what the read-back looks for.
        ctypes.memmove(address, random.Random(address).randbytes(size), size)
        self._registered.append((address, size))
        return self.real.register_buffer(address, size)

    def exists(self, keys):
        return self.real.batch_is_exist(keys)

    def batch_is_exist(self, keys):
        self.calls["batch_is_exist"] += 1
        return self.exists(keys)

    def _real_addresses(self, addresses, sizes):
        def place(address, size):
            if any(first <= address and address + size <= first + length for first, length in self._registered):
                return address
            assert address >= 0 and size < ARENA_BYTES
            return ctypes.addressof(self._arena) + address % (ARENA_BYTES - size)

        return [[place(a, s) for a, s in zip(*pair)] for pair in zip(addresses, sizes)]

    def batch_put_from_multi_buffers(self, keys, addresses, sizes, *_rest, **_options):
        self.calls["batch_put_from_multi_buffers"] += 1
        places = self._real_addresses(addresses, sizes)
        codes = self.real.batch_put_from_multi_buffers(keys, places, sizes)
        for key, code, key_places, key_sizes in zip(keys, codes, places, sizes):
            if code == 0:
                self.sources.setdefault(key, b"".join(map(ctypes.string_at, key_places, key_sizes)))
        return codes

    def batch_get_into_multi_buffers(self, keys, addresses, sizes, *_rest, **_options):
        self.calls["batch_get_into_multi_buffers"] += 1
        places = self._real_addresses(addresses, sizes)
        codes = self.real.batch_get_into_multi_buffers(keys, places, sizes)
        if os.environ.get("TENURE_GATE_FAULT") == "zeroes":
            for key_places, key_sizes in zip(places, sizes):
                for place, size in zip(key_places, key_sizes):
                    ctypes.memset(place, 0, size)
        return codes

    @property
    def _data(self):
        return _Keys(self)

    def read_back(self):
        """Every object that is there, against the bytes that its put had. How many."""
        count = 0
        for key in self._data.keys():
            size, scratch = len(self.sources[key]), ctypes.addressof(self._scratch)
            calls = self.calls.copy()
            assert self.batch_get_into_multi_buffers([key], [[scratch]], [[size]]) == [size], key
            self.calls = calls  # The gate's own.
            if self._scratch.raw[:size] != self.sources[key]:  # No assert: pytest would look for how they differ.
                pytest.fail(f"{key}: other bytes than were put")
            count += 1
        return count


@pytest.fixture(autouse=True)
def tenure_in_place_of_the_dict(request, monkeypatch):
    _stores.clear()
    if hasattr(request.module, "_DictStore"):
        monkeypatch.setattr(request.module, "_DictStore", TenureStore)
    yield
    calls = sum((store.calls for store in _stores), collections.Counter())
    read_back = sum(store.read_back() for store in _stores)
    for store in _stores:
        store.real.remove_all(True)
        store.real.close()
    if sum(calls.values()) > 0:
        _results[request.node.name] = (calls, read_back)


def pytest_terminal_summary(terminalreporter):
    bad = {report.nodeid.split("::")[-1] for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, [])}
    terminalreporter.write_line("tests that reached the store (calls; objects read back):")
    for name, (calls, read_back) in _results.items():
        counts = ", ".join(f"{call} {count}" for call, count in sorted(calls.items()))
        terminalreporter.write_line(f"  {'FAILED' if name in bad else 'passed'}  {name}: {counts}; {read_back} read back")
    terminalreporter.write_line(f"{len(_results)} tests reached the store")


def pytest_sessionfinish(session, exitstatus):
    if exitstatus == 0 and not _results:
        session.exitstatus = 1
