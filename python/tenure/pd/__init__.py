"""Prefill/decode disaggregation. `tenure.pd.wire`: the messages of its side channel; `tenure.pd.keys`: what encrypts it; `tenure.pd.peers`: whom a client may name."""
