"""Branches that are bought at once: runs of launches from one checkpoint."""

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.errors import ConfigError
from focus.search import Concurrency, Edges, FixedWidth, Phase, RootOnly, Search, TokenEntropy


def runs(run):
    """Launches that were decided on the same results, by checkpoint."""
    decided = zip(run.launches, run.settled_before, strict=True)
    return [
        (node, len(list(launches)))
        for (node, _), launches in groupby(decided, key=lambda pair: (pair[0].node, pair[1]))
    ]


@given(siblings=st.integers(1, 4), more=st.integers(0, 4), attempts=st.integers(1, 20))
def test_siblings_start_once_all_of_them_fit(play, world, siblings, more, attempts):
    concurrency = siblings + more
    gate = Concurrency(concurrency)
    phase = Phase(RootOnly(), attempts=attempts, gate=gate, siblings=siblings)
    run = play(Search([phase], concurrency=concurrency), world())
    starts = [siblings * (number // siblings) for number in range(attempts)]
    assert run.settled_before == [max(0, start + siblings - concurrency) for start in starts]


@pytest.mark.parametrize(("width", "siblings"), [(4, 4), (3, 4)])
def test_a_fixed_tree_is_bought_checkpoint_by_checkpoint(play, world, width, siblings):
    phase = Phase(
        FixedWidth((width, width)),
        attempts=width + width**2,
        extent=Edges(1),
        gate=Concurrency(8),
        siblings=siblings,
    )
    run = play(Search([phase], concurrency=8), world(stop=0.0))
    together = min(width, siblings)
    assert runs(run) == [(node, together) for node in range(width + 1)]


@given(seed=st.integers(0, 99), siblings=st.integers(2, 4))
def test_an_adaptive_choice_is_followed_by_its_siblings(play, world, seed, siblings):
    phase = Phase(TokenEntropy(), tokens=600, siblings=siblings)
    run = play(Search([phase], concurrency=siblings), world(seed=seed))
    sizes = [size for _, size in runs(run)]
    assert all(size <= siblings for size in sizes)
    assert sizes[0] == siblings


@pytest.mark.parametrize("siblings", [0, -1])
def test_a_purchase_is_of_one_branch_at_least(siblings):
    with pytest.raises(ConfigError, match="siblings must be >= 1"):
        Phase(RootOnly(), attempts=1, siblings=siblings)


def test_siblings_must_fit_into_what_may_be_in_flight():
    with pytest.raises(ConfigError, match="3 siblings at once need a concurrency of 3, got 2"):
        Search([Phase(RootOnly(), attempts=1, siblings=3)], concurrency=2)
