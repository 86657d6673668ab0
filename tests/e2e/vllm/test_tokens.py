"""Right tokens from the store: one engine, one model, one way of loading, many cases. The embedded pool, or a daemon's.

A hit from the store is compared with vLLM's own local prefix hit of the same length in the same engine: only that runs the
same kernels over the same number of tokens (a cold run does not).
"""

import hashlib

import pytest

import tenure
from engine import Engine, prompt, require_same
from faults import flip_bytes_in_pool, load_listener, pool_of, store_keys, watch_hashes, zeroed_loads
from processes import Daemon

# Prompt length, what a hit of it covers, and the tokens of another prompt's beginning that has no boundary of its own.
LENGTHS = {"llama": (300, 288), "gemma3": (300, 288), "qwen3next": (3000, 2304)}


MEMORY = "128MiB"
# Of a model with states vLLM keeps those of generated tokens at these boundaries only.
RETAINED = {"qwen3next": {"prefix_cache_retention_interval": 1152}}


@pytest.fixture(scope="session")
def daemon(pool_kind, tmp_path_factory):
    """None where the pool is embedded."""
    if pool_kind == "embedded":
        yield None
        return
    started = Daemon(tmp_path_factory.mktemp("daemon"), MEMORY)
    yield started
    started.stop()


@pytest.fixture(scope="session")
def engine(model, load, daemon):
    place = {"pool": "embedded", "embedded_memory": MEMORY} if daemon is None else {"pool": f"unix:{daemon.socket}"}
    options = {**place, "lookup_deadline": 60.0, "load_async": load == "async", "save_decode_cache": True}  # A busy machine is no fault here.
    started = Engine(model, options, **RETAINED.get(model, {}))
    watch_hashes(started)
    yield started
    started.close()


@pytest.fixture(autouse=True)
def nothing_pinned_afterwards(engine):
    yield
    engine.settle()
    assert not engine.connector.has_pending_push_work()
    assert engine.scheduler.get_num_unfinished_requests() == 0
    engine.settle_leases()


@pytest.fixture
def lengths(model):
    return LENGTHS[model]


def store_hit(engine, tokens):
    """The answer with the engine's own cache empty."""
    engine.forget_local()
    return engine.ask(tokens)


def local_hit(engine, tokens):
    """The answer when the engine itself has the prompt's blocks."""
    engine.ask(tokens)
    return engine.ask(tokens)


def test_cold_again_and_after_reset(engine, lengths):
    length, hit = lengths
    tokens = prompt(length, seed=1)
    assert engine.ask(tokens).cached == 0
    reference = engine.ask(tokens)
    assert reference.cached == hit
    loaded = store_hit(engine, tokens)
    assert loaded.cached == hit
    require_same(loaded, reference)


def test_longer_prompt_continues_the_stored_one(engine, lengths):
    length, hit = lengths
    tokens = prompt(length, seed=2)
    longer = tokens + [5, 6, 7] * 40
    reference = local_hit(engine, longer)
    engine.forget_local()
    require_same(engine.ask(longer), reference)
    assert reference.cached >= hit


def test_several_prompts_at_once(engine, lengths):
    length, hit = lengths
    prompts = [prompt(length, seed=10 + index) for index in range(4)]
    references = [local_hit(engine, tokens) for tokens in prompts]
    engine.forget_local()
    for answer, reference in zip(engine.ask(*prompts), references):
        require_same(answer, reference)
        assert answer.cached == hit


def test_a_b_a(engine, lengths):
    length, hit = lengths
    first, second = prompt(length, seed=20), prompt(length, seed=21)
    reference = local_hit(engine, first)
    other = local_hit(engine, second)
    for _ in range(2):
        require_same(store_hit(engine, first), reference)
        require_same(store_hit(engine, second), other)


def test_the_tokens_depend_on_what_is_loaded(engine, lengths):
    """The control: with zeroes instead of the loaded bytes the tokens change, so the other tests can fail."""
    tokens = prompt(lengths[0], seed=30)
    reference = local_hit(engine, tokens)
    engine.forget_local()
    with zeroed_loads(engine) as loads:
        answer = engine.ask(tokens)
    assert loads.count > 0
    assert answer.tokens != reference.tokens


def test_a_salted_prompt_shares_nothing(engine, lengths):
    length, _ = lengths
    tokens = prompt(length, seed=40)
    engine.ask(tokens)
    engine.forget_local()
    from vllm import SamplingParams

    salted = engine.llm.generate(
        [{"prompt_token_ids": tokens, "cache_salt": "other tenant"}], SamplingParams(temperature=0, max_tokens=1), use_tqdm=False
    )
    assert salted[0].num_cached_tokens == 0


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_keys_gone_between_lookup_and_load(engine, lengths, share):
    """Removed after the lookup, before the load reads them: the request is computed, not wrong and not lost."""
    length, _ = lengths
    tokens = prompt(length, seed=50 + int(share * 10))
    reference = local_hit(engine, tokens)
    pool, keys = pool_of(engine), store_keys(engine)
    before = engine.counter("load_orders_failed")
    engine.forget_local()
    with load_listener(engine, lambda: pool.remove(keys[:: max(1, int(1 / share))])) as loads:
        answer = engine.ask(tokens)
    assert loads.count > 0
    assert answer.tokens == reference.tokens
    assert engine.counter("load_orders_failed") == before + 1
    # What is left of it is offered again, or computed; either way the tokens are right.
    assert store_hit(engine, tokens).tokens == reference.tokens


def test_a_flipped_byte_is_never_served(engine, daemon, lengths):
    length, _ = lengths
    tokens = prompt(length, seed=60)
    reference = local_hit(engine, tokens)
    if daemon is None:
        assert flip_bytes_in_pool(engine) > 0
    else:
        daemon.flip_bytes()
    engine.forget_local()
    before = engine.counter("load_orders_failed")
    answer = engine.ask(tokens)
    assert answer.tokens == reference.tokens
    assert engine.counter("load_orders_failed") > before
    # The damaged objects are gone from the pool, so the next request is not led into them again.
    engine.ask(tokens)
    require_same(store_hit(engine, tokens), reference)


def test_what_is_computed_after_a_load_is_saved_too(engine, lengths):
    """Also when the step that loads computes the rest of the prompt."""
    length, hit = lengths
    tokens = prompt(length, seed=65)
    longer = tokens + [7, 9, 11, 13] * (hit // 4)
    engine.ask(tokens)
    engine.forget_local()
    engine.ask(longer)
    assert store_hit(engine, longer).cached > hit


def test_what_was_generated_is_found_again(engine, model, lengths):
    """As the next turn of a conversation asks for it. The windows of gemma3 are kept at the end of its prompt only."""
    _, hit = lengths
    tokens = prompt(hit - 40, seed=66)
    longer = tokens + engine.ask(tokens, new_tokens=48).tokens + [5] * 8
    engine.forget_local()
    answer = engine.ask(longer)
    assert answer.cached == hit if model != "gemma3" else answer.cached < hit
    require_same(answer, local_hit(engine, longer))


def test_reset_of_the_store_forgets_everything(engine, lengths):
    tokens = prompt(lengths[0], seed=70)
    engine.ask(tokens)
    engine.settle()
    assert engine.llm.reset_prefix_cache(reset_connector=True)
    assert engine.ask(tokens).cached == 0
    assert pool_of(engine).stats()["held_leased_objects"] == 0


def test_a_save_that_finds_no_room_half_way(engine, lengths):
    """The pool takes the first objects of a prompt and refuses the rest: nothing fails, nothing stays pinned."""
    tokens = prompt(lengths[0], seed=80)
    pool = pool_of(engine)
    pool.clear()
    size = sum(size for _, _, size in engine.worker._worker.memory.pieces[0][0])
    space = pool.open_namespace("filler@")
    leases, fillers = [], []
    while True:
        key = (space, hashlib.sha256(str(len(fillers)).encode()).digest())  # A pool's index takes hashes to be uniform.
        if pool.put([key], [bytes(size)]) != [tenure.PutAnswer.STORED]:
            break
        leases.append(pool.lease([key], 600)[0])
        fillers.append(key)
    pool.remove(fillers[-2:])
    refused = pool.stats()["refused_full_total"]
    answer = engine.ask(tokens)
    engine.settle()
    assert pool.stats()["refused_full_total"] > refused
    for lease in leases:
        lease.release()
    pool.clear()
    assert engine.ask(tokens).tokens == answer.tokens
    require_same(store_hit(engine, tokens), local_hit(engine, tokens))


def test_vllm_books_the_hits_under_their_tier(engine):
    cached = {labels: value for (name, labels), value in engine.metrics().items() if name == "vllm:prompt_tokens_cached_by_source"}
    by_source = {source: sum(value for labels, value in cached.items() if f"'{source}'" in labels) for source in ("device", "host", "external_unspecified")}
    assert by_source["host"] > 0 and by_source["device"] > 0 and by_source["external_unspecified"] == 0


def test_conserved_tokens(engine):
    """Every prompt token is local, loaded, failed and recomputed, or computed."""
    total = {name: engine.counter(f"{name}_tokens") for name in ("prompt", "local", "external", "recomputed", "computed")}
    assert total["prompt"] > 0 and total["external"] > 0
    assert total["prompt"] == total["local"] + total["external"] + total["recomputed"] + total["computed"]
