"""Who shares blocks: requests by vLLM's own hashes, through the connector's scheduler side and an embedded pool."""

import pytest

from configurations import engine, full, groups
from tenure import PutAnswer
from tenure.vllm.model import ModelStore, Parallelism
from tenure.vllm.options import StoreOptions
from tenure.vllm.pools import open_worker_pool
from tenure.vllm.store_scheduler import SchedulerSide
from waiting import until
from vllm import SamplingParams
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.request import Request

TOKENS = [index * 7 % 500 for index in range(101)]
WHOLE = 96
BLOCK = 16


def image(name, at=0):
    return [MultiModalFeatureSpec(data=None, modality="image", identifier=name, mm_position=PlaceholderRange(offset=at, length=20))]


KINDS = {
    "plain": {},
    "salted": {"cache_salt": "a"},
    "of another tenant": {"cache_salt": "b"},
    "adapted": {"lora_request": LoRARequest("one", 1, "/adapters/one")},
    "with another adapter": {"lora_request": LoRARequest("two", 2, "/adapters/two")},
    "with a new version of an adapter": {"lora_request": LoRARequest("one", 3, "/adapters/one-2")},
    "with an image": {"mm_features": image("first image")},
    "with another image": {"mm_features": image("second image")},
    "adapted and salted": {"cache_salt": "a", "lora_request": LoRARequest("one", 1, "/adapters/one")},
}


def request(name, algorithm, **fields):
    hash_block = get_hash_fn_by_name(algorithm)
    init_none_hash(hash_block)
    return Request(
        name, TOKENS, SamplingParams(temperature=0, max_tokens=1), None, block_hasher=get_request_block_hasher(BLOCK, hash_block), **fields
    )


@pytest.fixture
def side():
    """A scheduler's side, and the pool of its engine."""
    config, kv, options = engine(), groups(full()), StoreOptions(embedded_memory="128MiB", lookup_deadline=60.0)
    worker_pool = open_worker_pool(config, options)
    started = SchedulerSide(config, kv, options)
    yield started
    started.close()
    worker_pool.close()


def keep(side, stored):
    """Puts what an engine would save of the request."""
    ((prefix,),) = side._model.lookup_prefixes()
    space = side._pool.pool.open_namespace(prefix)
    keys = [(space, value) for value in stored.block_hashes]
    assert set(side._pool.pool.put(keys, [bytes(64)] * len(keys))) == {PutAnswer.STORED}


def found(side, asked):
    """Tokens that a load could bring; a busy machine may answer in a later step only."""
    answers = []

    def ask():
        answers.append(side.num_new_matched_tokens(asked, 0)[0])
        return answers[-1] is not None

    until(ask, "the lookup is not answered", 60)
    return answers[-1]


@pytest.mark.parametrize("algorithm", ["sha256", "sha256_cbor"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_request_finds_blocks_of_its_own_kind_only(side, algorithm, kind):
    keep(side, request("stored", algorithm, **KINDS[kind]))
    shared = {name: found(side, request(name, algorithm, **fields)) for name, fields in KINDS.items()}
    assert shared == {name: WHOLE if name == kind else 0 for name in KINDS}


def test_prompts_share_what_lies_before_their_images(side):
    keep(side, request("stored", "sha256", mm_features=image("first image", at=40)))
    assert found(side, request("other", "sha256", mm_features=image("second image", at=40))) == 32
    assert found(side, request("moved", "sha256", mm_features=image("first image", at=41))) == 32


def test_a_model_id_that_only_ends_alike_shares_nothing():
    """Stock's keys name the last part of the model id; with ours its whole and the revision count."""
    options = StoreOptions()
    names = {
        ModelStore(config, groups(full()), options, Parallelism.of_config(config)).lookup_prefixes()[0][0]
        for config in (engine(model="one/Model"), engine(model="two/Model"))
    }
    assert len(names) == 2
