"""Prefill/decode disaggregation. `tenure.pd.wire`: the messages of its side channel."""
