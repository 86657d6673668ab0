"""Faults that the tests put between an engine in this process and its store."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys

import torch

from engine import Engine
from processes import HERE, end
from tenure import KeyAnswer


class Count:
    """How often a fault came to act."""

    def __init__(self):
        self.count = 0


def pool_of(engine: Engine):
    """The pool of the engine's scheduler."""
    return engine.connector._scheduler._pool.pool


def store_keys(engine: Engine):
    """The keys under which the last prompt's objects lie in the pool: (namespace, hash) of each group, rank and hash."""
    model = engine.connector._scheduler._model
    pool = pool_of(engine)
    spaces = [pool.open_namespace(prefix) for prefixes in model.lookup_prefixes() for prefix in prefixes]
    keys = [(space, value) for value in last_hashes(engine) for space in spaces]
    return [key for key, answer in zip(keys, pool.probe(keys)) if answer is KeyAnswer.PRESENT]


def last_hashes(engine: Engine):
    return list(engine.connector.last_hashes)


def watch_hashes(engine: Engine):
    """Remembers the block hashes of the request that was looked up last."""
    connector = engine.connector
    asked = type(connector).get_num_new_matched_tokens

    def listen(request, computed):
        connector.last_hashes = list(request.block_hashes)
        return asked(connector, request, computed)

    connector.get_num_new_matched_tokens = listen
    connector.last_hashes = []


@contextlib.contextmanager
def load_listener(engine: Engine, action):
    """Runs `action` between the lookup and each step's loads."""
    side = engine.worker._worker
    seen = Count()
    start = side.start_loads

    def begin(metadata):
        if engine.connector._scheduler._loading and metadata.plan:
            seen.count += 1
            action()
        start(metadata)

    side.start_loads = begin
    try:
        yield seen
    finally:
        del side.start_loads


def stand_still_once():
    """An action that stops this whole process at its first call, until somebody continues it."""
    calls = iter([signal.SIGSTOP])
    return lambda: os.kill(os.getpid(), next(calls, 0))


@contextlib.contextmanager
def neighbour(engine: Engine, pool, victims=0):
    """neighbour.py on a pool, ready to push out keys of the last prompt. Yields what waits for and returns how many are gone."""
    (prefix,) = engine.connector._scheduler._model.lookup_prefixes()[0]
    size = sum(size for _, _, size in engine.worker._worker.memory.pieces[0][0])
    hashes = [value.hex() for value in last_hashes(engine)]
    process = subprocess.Popen(
        [sys.executable, str(HERE / "neighbour.py"), pool, prefix, str(size), str(victims), str(os.getpid()), *hashes],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, process_group=0,
    )

    def after(word):
        """What it writes behind a word; a pool's client may write lines of its own before."""
        for line in process.stdout:
            if line.startswith(word):
                return line.removeprefix(word)
        raise AssertionError(f"the neighbour ended before it wrote {word!r}")

    try:
        after("ready")
        yield lambda: int(after("gone "))
    finally:
        end(process)


@contextlib.contextmanager
def zeroed_loads(engine: Engine):
    """After each load has ended, its blocks hold zeroes instead."""
    scheduler, side = engine.connector._scheduler, engine.worker._worker
    seen = Count()
    finished, start = side.finished_loads, side.start_loads

    def zero(requests):
        for request in requests:
            for block in scheduler._loading.get(request, ()):
                for base, stride, size in side.memory.pieces[0][0]:
                    _bytes_of_engine(side.memory, base + block * stride, size).zero_()
                    seen.count += 1

    def end():
        loaded, failed = finished()
        zero(loaded)
        return loaded, failed

    def begin(metadata):
        start(metadata)
        if not scheduler._model.load_async:
            zero(list(scheduler._loading))

    side.finished_loads, side.start_loads = end, begin
    try:
        yield seen
    finally:
        del side.finished_loads, side.start_loads


class _DeviceBytes:
    """Bytes on a GPU, as torch takes them from others."""

    def __init__(self, address, size):
        self.__cuda_array_interface__ = {"data": (address, False), "shape": (size,), "typestr": "|u1", "version": 3}


def _bytes_of_engine(memory, address, size):
    """A tensor over so many bytes of the engine's KV cache."""
    kind, index = memory.device
    if kind == "cpu":
        return torch.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=torch.uint8)
    return torch.as_tensor(_DeviceBytes(address, size), device=f"{kind}:{index}")


def flip_bytes_in_pool(engine: Engine):
    """Flips the first byte of each object of the last prompt in the embedded pool of this process. Returns how many.

    Objects are found by their content, which the engine's own cache still has: in any memory but the engine's.
    """
    memory = engine.worker._worker.memory
    storages = [range(base, base + size) for base, size in memory.regions]
    heads = [
        bytes(_bytes_of_engine(memory, base + block * stride, 64).tolist())
        for block in cached_blocks(engine)
        for base, stride, _ in memory.pieces[0][0][:1]
    ]
    flipped = 0
    for low, high in _anonymous_mappings(64 << 20):
        if any(low < storage.stop and storage.start < high for storage in storages):
            continue
        content = ctypes.string_at(low, high - low)
        for head in heads:
            at = content.find(head)
            if at >= 0:
                ctypes.memmove(low + at, bytes([head[0] ^ 0x40]), 1)
                flipped += 1
    return flipped


def cached_blocks(engine: Engine):
    """Blocks in which the engine has the last prompt."""
    manager = engine.scheduler.kv_cache_manager
    groups = len(engine.scheduler.kv_cache_config.kv_cache_groups)
    found = set()
    for value in last_hashes(engine):
        for group in range(groups):
            for block in manager.block_pool.get_cached_block(value, [group]) or ():
                found.add(block.block_id)
    return sorted(found)


def _anonymous_mappings(bytes_min):
    with open("/proc/self/maps", encoding="ascii") as maps:
        for line in maps:
            fields = line.split()
            low, high = (int(part, 16) for part in fields[0].split("-"))
            if fields[1].startswith("rw") and high - low >= bytes_min and len(fields) == 5:
                yield low, high
