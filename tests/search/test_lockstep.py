"""Rollouts that wait for each other at every checkpoint, and branch before they pass it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.errors import ConfigError
from focus.search import (
    Concurrency,
    Edges,
    Phase,
    PhaseEnd,
    Search,
    ValueRefinement,
)

worlds = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 999),
        "allowance": st.sampled_from([64, 20]),
        "stop": st.sampled_from([0.1, 0.5]),
        "fail": st.sampled_from([0.0, 0.2]),
        "waste": st.sampled_from([0.0, 0.3]),
        "no_value": st.sampled_from([0.0, 0.3]),
    }
)
cascades = st.builds(Search.cascade, tokens=st.integers(10, 900), concurrency=st.integers(1, 24))


@given(search=cascades, settings_=worlds)
def test_a_checkpoint_is_asked_for_all_its_branches_at_once(play, world, search, settings_):
    run = play(search, world(**settings_))
    for node, continued in run.continued.items():
        if node != 0:
            assert len({known for _, known in continued}) == 1
            assert len(continued) >= len(run.tree.children(node))


@given(search=cascades, settings_=worlds)
def test_the_root_begins_anew_only_when_nothing_is_under_way(play, world, search, settings_):
    run = play(search, world(**settings_))
    for expansion, known in run.continued[0]:
        under_way = [
            earlier.expansion
            for earlier in run.launches[:expansion]
            if run.results[earlier.expansion].attached[-1:] >= [known]
        ]
        began_with_it = {other for other, nodes in run.continued[0] if nodes == known}
        assert set(under_way) <= began_with_it


@given(search=cascades, settings_=worlds)
def test_outcomes_move_nothing(play, world, search, settings_):
    """So the branches of a checkpoint are a sample whose size was fixed before."""
    poor, rich = (play(search, world(**settings_, success=rate)) for rate in (0.0, 1.0))
    assert poor.launches == rich.launches
    assert [node.edge and node.edge.spans for node in poor.tree] == [
        node.edge and node.edge.spans for node in rich.tree
    ]


@given(rollouts=st.integers(1, 8), settings_=worlds)
def test_without_room_for_branches_it_is_flat(play, world, rollouts, settings_):
    """The same rollouts, each under its own number, whether or not they wait for each other."""
    gate = Concurrency(rollouts)
    phase = Phase(ValueRefinement(gain="preposterior"), attempts=rollouts, gate=gate, lockstep=True)
    waiting = play(Search([phase], concurrency=3 * rollouts), world(**settings_))
    freely = play(Search.flat(rollouts, concurrency=rollouts), world(**settings_))
    assert [x.node for x in waiting.launches] == [0] * rollouts
    for number in range(rollouts):
        one, other = waiting.results[number], freely.results[number]
        assert (one.edges, one.tokens, one.failed) == (other.edges, other.tokens, other.failed)
    assert waiting.scheduler.evidence[0].count == freely.scheduler.evidence[0].count
    assert waiting.scheduler.reports[0].tokens == freely.scheduler.reports[0].tokens


def depths(run):
    return [run.tree[launch.node].depth for launch in run.launches]


def test_the_root_takes_a_third_and_every_wave_after_it_an_even_part(play, world):
    """64 tokens of room in edges of 8; before any rollout ended, min(room, 320/8) is expected.

    320 − 3·40 = 200 ≤ ⅔·320: three rollouts. They stand with 56 tokens of room, expect 40
    each, and walked 8: 176 are free for 40/8 = 5 waves, and one branch takes 40 ≥ 176/5.
    At depth 2 four stand, 56 are spent, and 104 are free.
    """
    run = play(Search.cascade(tokens=320), world(stop=0.0))
    assert depths(run)[:5] == [0, 0, 0, 1, 2]
    frees = [selection.free_tokens for selection in run.tree.selections[:5]]
    assert frees == [320, 280, 240, 176, 104]


def test_few_slots_are_shared_out_alike(play, world):
    run = play(Search.cascade(tokens=10_000, concurrency=6), world(stop=0.0))
    assert depths(run)[:3] == [0, 0, 1]


def test_branches_go_where_the_value_is_least_certain(play, world):
    def watch(tree, pending, launch):
        if launch.node == 0:
            return
        open_tips = [n.id for n in tree if pending[n.id] and n.id != 0]
        doubt = {n: tree[n].value * (1 - tree[n].value) for n in open_tips if pending[n] == 1}
        if pending[launch.node] == 1:
            assert doubt[launch.node] == pytest.approx(max(doubt.values()))

    play(Search.cascade(tokens=320), world(stop=0.0), watch=watch)


def test_the_opening_is_what_was_bought_before_any_result(play, world):
    search = Search.cascade(tokens=320)
    assert search.opening == 1
    run = play(search, world(stop=0.0))
    assert run.scheduler.opening == 3 == [known for _, known in run.continued[0]].count(1)


def test_a_budget_is_spent_and_hardly_more(play, world):
    run = play(Search.cascade(tokens=4000), world(stop=0.2))
    (report,) = run.scheduler.reports
    assert report.end is PhaseEnd.TOKENS
    assert 4000 - 125 - 64 < report.tokens < 4000 + 64


@pytest.mark.parametrize(
    "settings", [{"siblings": 2}, {"extent": Edges(1)}, {"cap": "hard"}], ids=str
)
def test_lockstep_decides_about_siblings_itself(settings):
    with pytest.raises(ConfigError, match="a phase in lockstep"):
        Phase(ValueRefinement(), tokens=100, lockstep=True, **settings)
