"""Shared by all tests: pools that are small and closed in the end, and hashes by number."""

import hashlib

import pytest

import tenure


def make_hash(number, size=32):
    """A block hash of its own for each number."""
    return hashlib.sha256(str(number).encode()).digest()[:size]


def make_hashes(count, size=32):
    return [make_hash(number, size) for number in range(count)]


@pytest.fixture
def closed_pool():
    with tenure.EmbeddedPool("1MiB", slab_bytes="64KiB", objects_max=8192, mode="closed") as pool:
        yield pool


@pytest.fixture
def independent_pool():
    with tenure.EmbeddedPool("1MiB", slab_bytes="64KiB", objects_max=8192, mode="independent") as pool:
        yield pool
