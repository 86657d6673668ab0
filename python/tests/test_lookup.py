"""Lookups over the caller's own list of hashes: what is read of it, what is leased, and lists that change or lie."""

import random
import threading

import pytest
from conftest import make_hash, make_hashes

import tenure


class Prompt:
    """A pool with a prompt of one full-attention and one window group in it, and its lookup."""

    def __init__(self, pool, chunks, **options):
        groups = [tenure.GroupSpec("full", 16), tenure.GroupSpec("window", 16, window=32)]
        self.config = tenure.CacheConfig(groups, hash_block_size=16, scheduler_block_size=16)
        self.pool = pool
        self.spaces = [[pool.open_namespace(f"m@group:{group}@")] for group in range(2)]
        self.hashes = make_hashes(chunks)
        for group in range(2):
            keys = [(self.spaces[group][0], value) for value in self.hashes]
            pool.put(keys, [b"x"] * chunks)
        self.lookup = tenure.Lookup(self.config, pool, self.spaces, **options)
        self.tokens = chunks * 16 + 1


class ReadCounter(list):
    """A list that would notice being converted or copied through its own methods."""

    def __iter__(self):
        raise AssertionError("the list of hashes was iterated")

    def __getitem__(self, index):
        raise AssertionError("the list of hashes was read through Python")


@pytest.mark.parametrize("search", ["tail_first", "exhaustive"])
@pytest.mark.parametrize("lease", ["selective", "all"])
def test_finds_and_leases_the_load_set(independent_pool, search, lease):
    prompt = Prompt(independent_pool, 40, search=search, lease=lease)
    result = prompt.lookup.find(prompt.hashes, prompt.tokens)
    assert result and result.outcome == "hit" and result.length == 640 and result.hit == prompt.config.hit(640)
    assert len(result.lease) == (42 if lease == "selective" else 80)
    assert independent_pool.stats()["held_leased_objects"] == len(result.lease)
    result.lease.release()
    assert independent_pool.stats()["held_leased_objects"] == 0
    assert prompt.lookup.counters()["hits_total"] == 1


def test_closed_pool_leases_a_chain_by_its_end(closed_pool):
    prompt = Prompt(closed_pool, 40)
    result = prompt.lookup.find(prompt.hashes, prompt.tokens)
    assert result.length == 640 and len(result.lease) == 3 and result.keys_probed < 20


def test_only_the_positions_asked_for_are_read(closed_pool):
    prompt = Prompt(closed_pool, 1000)
    spoiled = ReadCounter([7] * 900 + prompt.hashes[900:])
    # Everything that the search asks for lies near the tail; the rest may be anything, since it is never looked at.
    assert prompt.lookup.find(spoiled, prompt.tokens).length == 16_000


@pytest.mark.parametrize("bad", [7, "text", b"short", bytearray(32), None])
def test_what_is_no_hash_is_a_miss(independent_pool, bad):
    prompt = Prompt(independent_pool, 40)
    hashes = list(prompt.hashes)
    hashes[39] = bad
    result = prompt.lookup.find(hashes, prompt.tokens)
    assert not result and result.outcome == "miss by error" and len(result.lease) == 0
    assert prompt.lookup.counters()["error_misses_total"] == 1
    assert independent_pool.stats()["held_leased_objects"] == 0
    assert prompt.lookup.find(prompt.hashes, prompt.tokens).length == 640


def test_list_that_grows_and_shrinks_meanwhile(independent_pool):
    """Another thread changes the list all the time: every answer is a right one or a miss, and the process lives."""
    seed = random.randrange(1 << 32)
    prompt = Prompt(independent_pool, 200)
    hashes = list(prompt.hashes)
    stop = threading.Event()

    def change():
        generator = random.Random(seed)
        while not stop.is_set():
            size = generator.randrange(0, 201)
            hashes[:] = prompt.hashes[:size]
            hashes.extend(prompt.hashes[size : size + generator.randrange(0, 50)])

    thread = threading.Thread(target=change)
    thread.start()
    outcomes = {}
    try:
        for _ in range(2000):
            result = prompt.lookup.find(hashes, prompt.tokens)
            outcomes[result.outcome] = outcomes.get(result.outcome, 0) + 1
            assert result.length % 16 == 0 and result.length <= 3200, f"seed {seed}"
            result.lease.release()
    finally:
        stop.set()
        thread.join()
    print("seed", seed, outcomes)
    assert outcomes.get("hit", 0) > 0, f"seed {seed}: {outcomes}"
    assert independent_pool.stats()["held_leased_objects"] == 0


def test_one_lookup_from_many_threads(independent_pool):
    prompt = Prompt(independent_pool, 100)
    lengths = []

    def work():
        for _ in range(100):
            lengths.append(prompt.lookup.find(prompt.hashes, prompt.tokens).length)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lengths == [1600] * 400 and prompt.lookup.counters()["lookups_total"] == 400


def test_searches_agree(independent_pool):
    """Random holes: tail-first is never shorter than exhaustive, and its load set is present."""
    seed = random.randrange(1 << 32)
    generator = random.Random(seed)
    prompt = Prompt(independent_pool, 60)
    exhaustive = tenure.Lookup(prompt.config, independent_pool, prompt.spaces, search="exhaustive")
    shorter = 0
    for _ in range(200):
        group, index = generator.randrange(2), generator.randrange(60)
        key = (prompt.spaces[group][0], prompt.hashes[index])
        if generator.random() < 0.5:
            independent_pool.remove([key])
        else:
            independent_pool.put([key], [b"x"])
        tokens = generator.randrange(1, prompt.tokens)
        found = prompt.lookup.find(prompt.hashes, tokens)
        assert found.length == exhaustive.find(prompt.hashes, tokens).length, f"seed {seed}"
        for load_group, load_index in prompt.config.load_set(found.hit):
            key = (prompt.spaces[load_group][0], prompt.hashes[load_index])
            assert independent_pool.probe([key]) == [tenure.KeyAnswer.PRESENT], f"seed {seed}"
        shorter += found.length < tokens // 16 * 16
    print("seed", seed, "with holes", shorter)
    assert shorter > 0


def test_closed_pool_is_an_error_and_not_a_crash():
    pool = tenure.EmbeddedPool("1MiB", slab_bytes="64KiB")
    prompt = Prompt(pool, 10)
    result = prompt.lookup.find(prompt.hashes, prompt.tokens)
    pool.close()
    with pytest.raises(tenure.Error, match="closed"):
        prompt.lookup.find(prompt.hashes, prompt.tokens)
    result.lease.release()


def test_bad_arguments_are_named(closed_pool, independent_pool):
    prompt = Prompt(closed_pool, 4)
    for text, options in (("search is", {"search": "fast"}), ("lease is", {"lease": "none"}), ("lease_ttl is", {"lease_ttl": 0})):
        with pytest.raises(ValueError, match=text):
            tenure.Lookup(prompt.config, closed_pool, prompt.spaces, **options)
    with pytest.raises(ValueError, match="namespaces has 1 groups"):
        tenure.Lookup(prompt.config, closed_pool, prompt.spaces[:1])
    with pytest.raises(ValueError, match="namespaces.1. is empty"):
        tenure.Lookup(prompt.config, closed_pool, [prompt.spaces[0], []])
    with pytest.raises(ValueError, match="of another pool"):
        tenure.Lookup(prompt.config, independent_pool, prompt.spaces)
    with pytest.raises(ValueError, match="num_tokens is -1"):
        prompt.lookup.find(prompt.hashes, -1)
    with pytest.raises(TypeError):
        prompt.lookup.find(tuple(prompt.hashes), 10)
    assert prompt.lookup.find([], 1000).outcome == "miss"
    assert prompt.lookup.find(prompt.hashes, 0).outcome == "miss"
    assert make_hash(0) == prompt.hashes[0]
