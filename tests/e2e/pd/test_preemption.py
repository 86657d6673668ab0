"""Engines with too few blocks for what they decode: requests are preempted on both sides, and answers stay those of one engine."""

from engine import prompt

NEW_TOKENS = 128


def test_preempted_requests_give_the_same_tokens(pair):
    handed_over = [prompt(300 + index, seed=20 + index) for index in range(6)]
    expected = [pair.prefill.ask(tokens, max_tokens=NEW_TOKENS)["tokens"] for tokens in handed_over]
    assert pair.prefill.forget()
    own = [pair.prefill.begin(prompt(300, seed=30 + index), max_tokens=NEW_TOKENS) for index in range(6)]
    params = [pair.params() for _ in handed_over]
    decodes = [pair.decode.begin(tokens, to_decode, max_tokens=NEW_TOKENS) for tokens, (_, to_decode) in zip(handed_over, params)]
    prefills = [pair.prefill.begin(tokens, to_prefill, max_tokens=1) for tokens, (to_prefill, _) in zip(handed_over, params)]
    for request in own + prefills:
        pair.prefill.finish(request)
    assert [pair.decode.finish(request)["tokens"] for request in decodes] == expected
    for peer in (pair.prefill, pair.decode):
        assert peer.state()["preemptions"] > 0, "there was room for all"
    pair.wait_idle()
