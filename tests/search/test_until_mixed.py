"""A phase may end where outcomes differ: it buys what it would have bought, and stops."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.search import (
    Concurrency,
    Fifo,
    Phase,
    PhaseEnd,
    RootOnly,
    Search,
    ValueRefinement,
)

allocators = st.sampled_from([RootOnly(), Fifo(), ValueRefinement(gain="preposterior")])
worlds = st.fixed_dictionaries(
    {"seed": st.integers(0, 10**6), "fail": st.sampled_from([0.0, 0.2])},
)


def search(allocators, *, until_mixed, concurrency, tokens=400):
    phases = [
        Phase(a, tokens=tokens, gate=Concurrency(concurrency), until_mixed=until_mixed)
        for a in allocators
    ]
    return Search(phases, concurrency=concurrency)


def outcomes(tree, upto):
    """Of the leaves that the first `upto` launches finished."""
    return {
        tree.outcome(leaf)
        for leaf in tree.terminals()
        if tree[leaf].incoming.provenance.expansion < upto
    }


@given(st.lists(allocators, min_size=1, max_size=2), worlds, st.integers(1, 4))
def test_nothing_is_bought_on_results_that_differ(play, world, chosen, facts, concurrency):
    ending = search(chosen, until_mixed=True, concurrency=concurrency)
    run = play(ending, world(**facts))
    for settled in run.settled_before:
        assert len(outcomes(run.tree, settled)) < 2


@given(allocators, worlds, st.integers(1, 4), st.integers(0, 9))
def test_it_is_the_beginning_of_the_search_that_goes_on(
    play, world, chosen, facts, concurrency, order
):
    whole, begun = (
        play(search([chosen], until_mixed=u, concurrency=concurrency), world(**facts), order=order)
        for u in (False, True)
    )
    bought = [(launch.node, launch.quota) for launch in begun.launches]
    assert bought == [(launch.node, launch.quota) for launch in whole.launches][: len(bought)]
    (report,) = begun.scheduler.reports
    mixed = len(outcomes(begun.tree, len(bought))) > 1
    if report.end is PhaseEnd.MIXED:
        assert mixed
    if not mixed:
        assert len(bought) == len(whole.launches)


def test_a_phase_after_different_outcomes_buys_nothing(play, world):
    run = play(search([RootOnly(), Fifo()], until_mixed=True, concurrency=1), world(seed=3))
    assert [report.end for report in run.scheduler.reports] == [PhaseEnd.MIXED] * 2
    assert run.scheduler.reports[1].launched == 0


@pytest.mark.parametrize(("until_mixed", "opening"), [(False, 8), (True, 2)])
def test_launches_that_outcomes_decide_are_no_fair_sample(until_mixed, opening):
    phase = Phase(RootOnly(), attempts=8, until_mixed=until_mixed)
    assert Search([phase], concurrency=2).opening == opening
