"""The rules through Python against published vectors (store_connector spec, section 14), and every bad argument."""

import pytest

import tenure


def bits(text):
    return [letter == "1" for letter in text]


def config(groups, h, b, **options):
    return tenure.CacheConfig(groups, hash_block_size=h, scheduler_block_size=b, **options)


FULL_WINDOW = [tenure.GroupSpec("full", 32), tenure.GroupSpec("window", 8, window=8)]


def test_masks_are_the_published_ones():
    mixed = config(FULL_WINDOW, 8, 32)
    assert mixed.lookup_mask(128) == [None, bits("0001000100010001")]
    assert mixed.store_mask(128, num_prompt_tokens=100) == [None, bits("0000000000010000")]
    assert mixed.store_mask(128, num_prompt_tokens=100, retention=None) == [None, bits("0001000100010001")]
    assert mixed.store_mask(128, num_prompt_tokens=100, retention=64) == [None, bits("0000000100010001")]
    assert mixed.store_mask(128, start=64, num_prompt_tokens=100) == [None, bits("00010000")]
    assert mixed.load_mask(64) == [bits("11"), bits("00000001")]


def test_hits_are_the_published_ones():
    mixed = config(FULL_WINDOW, 8, 32)
    present = {0: {3, 7, 11}, 1: {3, 7}}
    hit = mixed.find_hit(12, 97, lambda group, index: index in present[group])
    assert (hit.length, hit.tails) == (64, [64, 64])
    assert mixed.load_set(hit) == [(0, 3), (0, 7), (1, 7)]
    assert hit == mixed.hit(64) and bool(hit)
    assert not mixed.find_hit(12, 97, lambda group, index: False)


def test_a_hit_leaves_a_token_to_compute():
    full = config([tenure.GroupSpec("full", 16)], 16, 16)
    assert full.find_hit(4, 64, lambda group, index: True).length == 48
    assert full.find_hit(4, 65, lambda group, index: True).length == 64


def test_fine_hits_name_their_tails():
    fine = config([tenure.GroupSpec("full", 16), tenure.GroupSpec("state", 16)], 4, 16, fine=True)
    present = {0: {3, 7, 11}, 1: {8}}
    hit = fine.find_hit(12, 50, lambda group, index: index in present[group])
    assert (hit.length, hit.tails) == (36, [48, 36])
    assert fine.load_set(hit) == [(0, 3), (0, 7), (0, 11), (1, 8)]


def test_what_the_caller_raises_comes_through():
    def fail(group, index):
        raise KeyError("gone")

    with pytest.raises(KeyError, match="gone"):
        config(FULL_WINDOW, 8, 32).find_hit(12, 97, fail)


def test_boundaries_margins_and_checkpoints():
    assert tenure.replay_boundaries(100, 32) == [99]
    assert tenure.replay_boundaries(96, 32, True) == [32, 64]
    assert tenure.eagle_proof_margin(64, 16, True) == 16
    assert tenure.state_checkpoint(45, 4) == 44 and tenure.state_checkpoint(48, 4, True) == 44
    assert tenure.reachable_mask(tenure.GroupSpec("window", 8, window=16), 0, 8, alignment=32) == bits("00110011")
    assert tenure.reachable_mask(tenure.GroupSpec("full", 8), 0, 8, alignment=32) is None


def test_block_sizes_are_those_of_vllm():
    sizes = tenure.resolve_block_sizes([tenure.ModelGroup("full", 16), tenure.ModelGroup("state", 64, dcp_sharded=False)])
    assert (sizes.scheduler_block_size, sizes.hash_block_size, sizes.hit_alignment) == (64, 16, 16)
    with pytest.raises(ValueError, match="prefix_match_unit is 8"):
        tenure.resolve_block_sizes([tenure.ModelGroup("full", 16)], prefix_match_unit=8)


def test_specs_are_values():
    spec = tenure.GroupSpec("window", 8, window=16, eagle=True)
    assert spec == tenure.GroupSpec("window", 8, window=16, eagle=True) and hash(spec) == hash(spec)
    assert spec != tenure.GroupSpec("window", 8, window=17) and spec != "window"
    assert repr(spec) == "GroupSpec('window', 8, window=16, eagle=True)"
    assert config([spec], 8, 8).groups == [spec]


BAD_CALLS = {
    "kind is ": lambda: tenure.GroupSpec("mamba", 8),
    "block_size is 0": lambda: tenure.GroupSpec("full", 0),
    "block_size is -1": lambda: tenure.GroupSpec("full", -1),
    "window is 0": lambda: tenure.GroupSpec("window", 8),
    "chunk is 0": lambda: tenure.GroupSpec("chunked", 8),
    "groups has 0": lambda: config([], 8, 8),
    "hash_block_size is 0": lambda: config(FULL_WINDOW, 0, 32),
    "scheduler_block_size is 33": lambda: config(FULL_WINDOW, 8, 33),
    "length is -1": lambda: config(FULL_WINDOW, 8, 32).lookup_mask(-1),
    "length is 4611686018427387904": lambda: config(FULL_WINDOW, 8, 32).lookup_mask(1 << 62),
    "length is 33; use a multiple": lambda: config(FULL_WINDOW, 8, 32).load_mask(33),
    "length is 40; use a multiple": lambda: config(FULL_WINDOW, 8, 32).store_mask(40),
    "start is -8": lambda: config(FULL_WINDOW, 8, 32).store_mask(64, start=-8),
    "retention is 8": lambda: config(FULL_WINDOW, 8, 32).store_mask(64, retention=8),
    "num_prompt_tokens is 0": lambda: config(FULL_WINDOW, 8, 32).store_mask(64, num_prompt_tokens=0),
    "tails has 1": lambda: config(FULL_WINDOW, 8, 32).hit(64, [64]),
    "tails.. is 32": lambda: config(FULL_WINDOW, 8, 32).hit(64, [64, 32]),
    "length is 16": lambda: config(FULL_WINDOW, 8, 32).load_set(config([tenure.GroupSpec("full", 16)], 16, 16).hit(16)),
    "num_hashes is -1": lambda: config(FULL_WINDOW, 8, 32).find_hit(-1, 10, lambda group, index: True),
    "num_tokens is -1": lambda: config(FULL_WINDOW, 8, 32).find_hit(1, -1, lambda group, index: True),
    "end is 1": lambda: tenure.reachable_mask(FULL_WINDOW[0], 2, 1),
    "alignment is 0": lambda: tenure.reachable_mask(FULL_WINDOW[0], 0, 1, alignment=0),
    "num_tokens is 0": lambda: tenure.replay_boundaries(0, 32),
    "scheduler_block_size is 0": lambda: tenure.replay_boundaries(1, 0),
    "hash_block_size is 0; use": lambda: tenure.state_checkpoint(1, 0),
    "groups is empty": lambda: tenure.resolve_block_sizes([]),
}


@pytest.mark.parametrize("text", BAD_CALLS)
def test_bad_arguments_are_named(text):
    with pytest.raises(ValueError, match=text):
        BAD_CALLS[text]()
