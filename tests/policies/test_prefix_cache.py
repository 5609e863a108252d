"""The radix tree of keys and values, against the plain set of what was inserted."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from focus.policies._engine.prefix_cache import Held, PrefixCache

sequences = st.lists(
    st.lists(st.integers(0, 2), min_size=1, max_size=8).map(tuple), min_size=1, max_size=25
)


def kv_of(ids: tuple[int, ...], start: int, stop: int) -> torch.Tensor:
    """Stand-in keys and values that name the whole prefix up to each position."""
    codes = [float(hash(ids[: i + 1]) % 10_007) for i in range(start, stop)]
    return torch.tensor(codes).reshape(1, 1, 1, -1, 1)


def put(cache: PrefixCache, ids: tuple[int, ...]) -> None:
    cache.insert(ids, lambda start, stop: kv_of(ids, start, stop))


def joined(pieces: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([kv_of((), 0, 0), *pieces], dim=3)


def shared(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b),
        min(len(left), len(right)),
    )


@given(inserted=sequences, asked=st.lists(st.integers(0, 2), max_size=9).map(tuple))
def test_match_gives_the_longest_prefix_and_its_own_values(
    inserted: list[tuple[int, ...]], asked: tuple[int, ...]
) -> None:
    cache = PrefixCache(10_000)
    for ids in inserted:
        put(cache, ids)
    held = cache.match(asked)
    assert held.length == max(shared(asked, ids) for ids in inserted)
    assert torch.equal(joined(held.pieces), kv_of(asked, 0, held.length))


@given(inserted=sequences, known=st.sets(st.integers(0, 24)), asked=st.integers(0, 24))
def test_logits_are_those_after_exactly_these_ids(
    inserted: list[tuple[int, ...]], known: set[int], asked: int
) -> None:
    cache = PrefixCache(10_000)
    told = {}
    for number, ids in enumerate(inserted):
        logits = torch.tensor([float(number)]) if number in known else None
        cache.insert(ids, lambda start, stop, ids=ids: kv_of(ids, start, stop), logits=logits)
        if logits is not None:
            told[ids] = logits
    for ids in {*inserted, *(ids[:-1] for ids in inserted), (*inserted[asked % len(inserted)], 0)}:
        found = cache.match(ids).logits
        assert (None if found is None else found.item()) == (
            told[ids].item() if ids in told else None
        )


@given(inserted=sequences)
def test_holds_each_distinct_token_once(inserted: list[tuple[int, ...]]) -> None:
    cache = PrefixCache(10_000)
    for ids in inserted:
        put(cache, ids)
    assert len(cache) == len({ids[: i + 1] for ids in inserted for i in range(len(ids))})


@given(inserted=sequences, capacity=st.integers(0, 12))
def test_never_exceeds_its_capacity_nor_lies_after_eviction(
    inserted: list[tuple[int, ...]], capacity: int
) -> None:
    cache = PrefixCache(capacity)
    for ids in inserted:
        put(cache, ids)
        assert len(cache) <= capacity
        held = cache.match(ids)
        assert held.length == len(ids) or len(ids) > capacity
        assert torch.equal(joined(held.pieces), kv_of(ids, 0, held.length))


def test_evicts_the_least_recently_used_leaf_first() -> None:
    cache = PrefixCache(4)
    put(cache, (1, 2))
    put(cache, (1, 3))
    cache.match((1, 2))
    put(cache, (1, 2, 4, 5))
    assert cache.match((1, 3)).length == 1
    assert cache.match((1, 2, 4, 5)).length == 4
    assert cache.evicted_tokens == 1


def test_splitting_lets_go_of_memory() -> None:
    cache = PrefixCache(100)
    put(cache, (1, 2, 3, 4))
    put(cache, (1, 2, 9))
    pieces = cache.match((1, 2, 3, 4)).pieces
    assert [piece.untyped_storage().nbytes() for piece in pieces] == [8, 8]


def test_clear_forgets() -> None:
    cache = PrefixCache(100)
    put(cache, (1, 2))
    cache.clear()
    assert len(cache) == 0
    assert cache.match((1, 2)) == Held(0, [])
