"""An engine's KV for tests of copies: a scheduler's and a worker's side over one pool, with blocks of three layers.

The memory is the host's, and with `device` ("cpu", 0) plays a device's, which a Mooncake pool names to Mooncake instead of copying it; with
another `device` it is that device's.
"""

import ctypes
import hashlib
import random

import tenure
from tenure._native import StoreScheduler, StoreWorker

BLOCKS, TOKENS = 32, 16
CONFIG = tenure.CacheConfig([tenure.GroupSpec("full", TOKENS)], hash_block_size=TOKENS, scheduler_block_size=TOKENS)


def hashes_of(name, count):
    return [hashlib.sha256(f"{name} {index}".encode()).digest() for index in range(count)]


def save_plan(scheduler, request, hashes, blocks):
    """The plan of the step that prefills a prompt of whole blocks and one more token, and its job."""
    tokens = TOKENS * len(hashes) + 1
    scheduler.begin_step([], [])
    scheduler.scheduled_new(request, hashes, tokens, tokens, 0, tokens)
    assert scheduler.save_requests() == [request]
    scheduler.current_blocks(request, [blocks])
    plan, ((job, pinned),) = scheduler.finish_step()
    assert sorted(pinned) == sorted(blocks)
    return plan, job


class HostMemory:
    def __init__(self, size):
        self._bytes = (ctypes.c_ubyte * size)()
        self.address = ctypes.addressof(self._bytes)

    def read(self, offset, size):
        return ctypes.string_at(self.address + offset, size)

    def write(self, offset, value):
        ctypes.memmove(self.address + offset, value, len(value))


class TorchMemory:
    def __init__(self, size, device):
        import torch

        self._torch = torch
        self._tensor = torch.zeros(size, dtype=torch.uint8, device=device)
        self.address = self._tensor.data_ptr()

    def read(self, offset, size):
        return self._tensor[offset : offset + size].cpu().numpy().tobytes()

    def write(self, offset, value):
        self._tensor[offset : offset + len(value)].copy_(self._torch.frombuffer(bytearray(value), dtype=self._torch.uint8))


class DeviceEngine:
    def __init__(self, pool, *, device=("cpu", 0), piece_bytes=256, prefix="model@", **options):
        self.pool = pool
        self.name_space = pool.open_namespace(prefix)
        self.piece_bytes = piece_bytes
        # The first storage has the parts of two layers side by side, the second those of one.
        sizes = [BLOCKS * 2 * piece_bytes, BLOCKS * piece_bytes]
        on_host = device is None or device[0] == "cpu"
        self.storages = [HostMemory(size) if on_host else TorchMemory(size, "{}:{}".format(*device)) for size in sizes]
        # (storage, offset of block 0, stride)
        self._layers = [(0, 0, 2 * piece_bytes), (0, piece_bytes, 2 * piece_bytes), (1, 0, piece_bytes)]
        self.pieces = [(self.storages[index].address + offset, stride, piece_bytes) for index, offset, stride in self._layers]
        self.regions = [(storage.address, size) for storage, size in zip(self.storages, sizes)]
        self._options = {"tp_rank": 0, "stripes": [1], "retention": 0, "device": device, **options}
        self.start()

    def start(self):
        self.scheduler = StoreScheduler(CONFIG, self.pool, [[self.name_space]], role="kv_both", world_size=1, inline_lookup=True)
        self.worker = StoreWorker(CONFIG, self.pool, [[self.name_space]], [[self.pieces]], self.regions, BLOCKS, **self._options)

    def places(self, block):
        """(address, size) of each piece of a block."""
        return [(base + block * stride, size) for base, stride, size in self.pieces]

    def block(self, block):
        """The bytes of a block's object, as stock connectors lay them out."""
        return b"".join(self.storages[index].read(offset + block * stride, self.piece_bytes) for index, offset, stride in self._layers)

    def fill(self, blocks, seed):
        generator = random.Random(seed)
        for block in blocks:
            for index, offset, stride in self._layers:
                self.storages[index].write(offset + block * stride, generator.randbytes(self.piece_bytes))

    def memory(self):
        return b"".join(storage.read(0, size) for storage, (_, size) in zip(self.storages, self.regions))

    def key_text(self, block_hash):
        return tenure.key_text(self.name_space.prefix, block_hash)

    def save(self, request, hashes, blocks, *, wait=30):
        """Begins the save of a prompt's blocks; its job. Waits `wait` seconds for its end, if any."""
        plan, job = save_plan(self.scheduler, request, hashes, blocks)
        self.worker.start_saves(plan)
        assert not wait or self.worker.drain(wait)
        return job

    def load(self, request, hashes, blocks, *, wait=30):
        tokens = TOKENS * len(hashes) + 1
        assert self.scheduler.matched_tokens(request, hashes, tokens, 0) == TOKENS * len(hashes)
        self.scheduler.allocated(request, [blocks], TOKENS * len(hashes))
        self.scheduler.begin_step([], [])
        plan, jobs = self.scheduler.finish_step()
        assert not jobs
        self.worker.start_loads(plan)
        assert not wait or self.worker.drain(wait)

    def restart(self):
        """Both sides anew, over the same memory."""
        self.close()
        self.start()

    def close(self):
        self.worker.close()
        self.scheduler.close()
