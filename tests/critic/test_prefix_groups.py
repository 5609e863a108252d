"""Contexts that are prefixes of one another share one sequence."""

from hypothesis import given
from hypothesis import strategies as st

from focus.critic.local import batches, prefix_groups

CONTEXTS = st.lists(
    st.lists(st.integers(0, 2), min_size=1, max_size=6).map(tuple), min_size=1, max_size=20
)


@given(CONTEXTS)
def test_each_context_is_read_once_from_a_sequence_that_extends_it(
    contexts: list[tuple[int, ...]],
) -> None:
    groups = prefix_groups(contexts)
    reads = [index for group in groups for index, _ in group.reads]
    assert sorted(reads) == list(range(len(contexts)))
    for group in groups:
        for index, position in group.reads:
            ids = contexts[index]
            assert position == len(ids) - 1
            assert group.ids[: len(ids)] == ids


@given(CONTEXTS)
def test_a_chain_of_extensions_is_one_sequence(contexts: list[tuple[int, ...]]) -> None:
    longest = contexts[0] * 2
    chain = [longest[:length] for length in range(1, len(longest) + 1)]
    (group,) = prefix_groups(chain)
    assert group.ids == longest
    assert len(group.reads) == len(chain)


@given(CONTEXTS)
def test_there_are_as_many_sequences_as_contexts_that_nothing_extends(
    contexts: list[tuple[int, ...]],
) -> None:
    tips = {
        ids
        for ids in contexts
        if not any(other != ids and other[: len(ids)] == ids for other in contexts)
    }
    assert sorted(group.ids for group in prefix_groups(contexts)) == sorted(tips)


@given(CONTEXTS, st.integers(1, 30))
def test_batches_hold_every_group_once_and_fit(
    contexts: list[tuple[int, ...]], batch_tokens: int
) -> None:
    groups = prefix_groups(contexts)
    cut = batches(groups, batch_tokens=batch_tokens)
    assert sorted(g.ids for batch in cut for g in batch) == sorted(g.ids for g in groups)
    for batch in cut:
        padded = len(batch) * max(len(group.ids) for group in batch)
        assert len(batch) == 1 or padded <= batch_tokens
