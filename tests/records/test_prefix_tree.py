"""Merged sequences lose nothing, and each distinct prefix stands once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from focus.records.prefix_tree import PrefixTree, distinct_tokens, prefix_trees

ids = st.lists(st.integers(0, 2), min_size=1, max_size=8).map(tuple)
families = st.lists(ids, max_size=20)


def ancestors(tree: PrefixTree, index: int) -> list[int]:
    """By the interval rule that the attention mask uses."""
    return [j for j in range(index + 1) if index < tree.ends[j]]


@given(families, st.integers(1, 40))
def test_every_sequence_is_read_back_from_exactly_one_tree(
    sequences: list[tuple[int, ...]], most: int
) -> None:
    trees = prefix_trees(sequences, most_tokens=most)
    members = [member for tree in trees for member in tree.members]
    assert sorted(members) == list(range(len(sequences)))
    for tree in trees:
        for member, path in zip(tree.members, tree.paths, strict=True):
            assert tuple(tree.ids[index] for index in path) == sequences[member]
            assert [tree.positions[index] for index in path] == list(range(len(path)))


@given(families, st.integers(1, 40))
def test_a_token_sees_its_own_path_and_nothing_else(
    sequences: list[tuple[int, ...]], most: int
) -> None:
    for tree in prefix_trees(sequences, most_tokens=most):
        for path in tree.paths:
            for place, index in enumerate(path):
                assert ancestors(tree, index) == list(path[: place + 1])


@given(families)
def test_without_a_limit_there_is_one_token_per_distinct_prefix(
    sequences: list[tuple[int, ...]],
) -> None:
    prefixes = {s[: length + 1] for s in sequences for length in range(len(s))}
    trees = prefix_trees(sequences, most_tokens=10**6)
    assert sum(len(tree.ids) for tree in trees) == len(prefixes) == distinct_tokens(sequences)


def test_a_full_tree_ends_where_least_is_repeated() -> None:
    """Three families of three; two fit, and half of the third would."""
    stems = [(first, *range(10)) for first in range(3)]
    sequences = [(*stem, 100 + last) for stem in stems for last in range(3)]
    trees = prefix_trees(sequences, most_tokens=40)
    assert [len(tree.members) for tree in trees] == [6, 3]
    assert sum(len(tree.ids) for tree in trees) == distinct_tokens(sequences)


@given(families, st.integers(1, 40))
def test_a_tree_exceeds_the_limit_only_for_one_sequence(
    sequences: list[tuple[int, ...]], most: int
) -> None:
    for tree in prefix_trees(sequences, most_tokens=most):
        assert len(tree.ids) <= most or len({sequences[m] for m in tree.members}) == 1
