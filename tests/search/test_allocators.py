import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.errors import ConfigError
from focus.search import (
    BestFirst,
    BetaBernoulli,
    Concurrency,
    EachCheckpoint,
    Edges,
    Fifo,
    FixedWidth,
    Gaussian,
    Phase,
    RootOnly,
    Search,
    Session,
    TokenEntropy,
    UniformRandom,
    ValueRefinement,
    View,
    Width,
)
from focus.search.allocators.base import Allocator
from focus.search.allocators.calibration import derivative_gain
from focus.testing.trees import Sketch, build_tree, end, fork
from focus.tree import Evidence, Returns, Stats

refinements = st.builds(
    ValueRefinement,
    model=st.sampled_from([BetaBernoulli(), Gaussian()]),
    gain=st.sampled_from(["derivative", "one_step", "preposterior"]),
)
ranked = st.one_of(
    refinements,
    st.builds(TokenEntropy, window=st.integers(1, 9), count_penalty=st.booleans()),
    st.builds(
        BestFirst,
        key=st.sampled_from(["reward", "mean_return", "critic"]),
        explore=st.sampled_from([0.0, 0.5]),
    ),
    st.builds(FixedWidth, st.just((3, 2, 2))),
)
gates = st.builds(Width, st.integers(1, 4)) | st.builds(Concurrency, st.integers(1, 4))


@given(
    allocator=ranked,
    gate=gates,
    extent=st.none() | st.builds(Edges, st.integers(1, 3)),
    seed=st.integers(0, 999),
    strength=st.sampled_from([1.0, 2.0]),
)
def test_every_choice_is_the_argmax_of_a_rescan_with_a_fresh_session(
    play, world, allocator, gate, extent, seed, strength
):
    def watch(tree, pending, launch):
        if launch.phase == 0:
            return
        session = allocator.session(View(tree, Evidence.of(tree), pending))
        scores = {
            node.id: session.score(node.id)
            for node in tree
            if not node.is_terminal
            and node.payload > 0
            and gate.admits(children=len(tree.children(node.id)), pending=pending[node.id])
        }
        eligible = {node: score for node, score in scores.items() if score > -math.inf}
        assert launch.node == min(eligible, key=lambda node: (-eligible[node], node))
        selection = tree.selections[launch.expansion]
        assert selection.score == eligible[launch.node]
        assert selection.rivals == len(eligible) - 1

    seeded = Phase(RootOnly(), attempts=4)
    search = Search([seeded, Phase(allocator, attempts=25, gate=gate, extent=extent)])
    play(
        search,
        world(seed=seed, stop=0.2, no_value=0.2),
        returns=Returns(prior_strength=strength),
        watch=watch,
    )


class Counting(Allocator):
    """Any allocator, with its evaluations counted."""

    def __init__(self, inner):
        self.inner = inner
        self.evaluations = 0

    def session(self, view):
        inner = self.inner.session(view)
        outer = self

        class Counted(Session):
            def score(self, node_id):
                outer.evaluations += 1
                return inner.score(node_id)

            def entered(self, node_id):
                inner.entered(node_id)

            def settled(self, launched_from, chain):
                return inner.settled(launched_from, chain)

        return Counted()


@pytest.mark.parametrize(
    "allocator", [Fifo(), TokenEntropy(), ValueRefinement(), BestFirst(explore=1.0)]
)
def test_scores_are_evaluated_per_event_and_never_per_node_and_event(play, world, allocator):
    counting = Counting(allocator)
    seeded = Phase(RootOnly(), attempts=50)
    run = play(Search([seeded, Phase(counting, attempts=600)]), world(stop=0.1))
    assert len(run.tree) > 1000
    deepest = max(node.depth for node in run.tree)
    touched = len(run.tree) + 2 * len(run.launches) + deepest * len(run.launches)
    assert counting.evaluations <= touched


# Fifo


def test_fifo_queues_by_the_moment_a_checkpoint_opened(play, world):
    phase = Phase(Fifo(), attempts=6, gate=Concurrency(1), extent=Edges(1))
    run = play(Search([phase], concurrency=1), world(stop=0.0))
    assert [launch.node for launch in run.launches] == [0, 1, 0, 2, 1, 3]


def test_root_only_never_leaves_the_root(play, world):
    run = play(Search.flat(6), world())
    assert {launch.node for launch in run.launches} == {0}


# Best first


def session_of(allocator, tree, *, pending=None):
    return allocator.session(View(tree, Evidence.of(tree), pending or {}))


FOREST = build_tree(
    fork(
        0.5,
        fork(0.9, end(1.0), Sketch(value=0.3, step_reward=0.25)),
        fork(None, end(0.0), end(1.0), step_reward=0.5),
    )
)


def test_best_first_by_reward_adds_up_the_path():
    session = session_of(BestFirst(key="reward"), FOREST)
    assert [session.score(node) for node in (0, 1, 3, 4)] == [0.0, 0.0, 0.25, 0.5]


def test_best_first_by_mean_return_reads_whole_episodes():
    session = session_of(BestFirst(key="mean_return"), FOREST)
    assert session.score(1) == 1.0
    assert session.score(4) == pytest.approx((0.5 + 1.5) / 2)
    assert session.score(0) == pytest.approx((1.0 + 0.5 + 1.5) / 3)


def test_best_first_by_critic_skips_a_missing_value():
    session = session_of(BestFirst(key="critic"), FOREST)
    assert [session.score(node) for node in (0, 1, 4)] == [0.5, 0.9, -math.inf]


def test_visits_wear_the_exploration_bonus_down():
    session = session_of(BestFirst(key="critic", explore=1.0), FOREST)
    visits = Counter({0: 4, 1: 2, 3: 1})
    assert [session.score(node) for node in (0, 1, 3)] == pytest.approx(
        [FOREST[node].value + 1 / (1 + visits[node]) for node in (0, 1, 3)]
    )


@pytest.mark.parametrize("settings", [{"key": "luck"}, {"explore": -1.0}, {"explore": math.nan}])
def test_best_first_refuses_what_it_cannot_rank_by(settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        BestFirst(**settings)


# Value refinement


def test_values_are_clipped_to_the_inner_range_before_calibration():
    tree = build_tree(fork(1.0, end(1.0), end(1.0), end(1.0)))
    inner = BetaBernoulli().posterior(0.98, Stats(3, 1.0), prior_strength=1.0)
    expected = derivative_gain(inner, count=3, pending=0, prior_strength=1.0)
    assert session_of(ValueRefinement(), tree).score(0) == pytest.approx(expected) != 0.0


def test_a_checkpoint_without_a_usable_value_is_never_bought():
    tree = build_tree(fork(0.5, fork(None, end(9.0)), fork(math.nan, end(9.0))))
    session = session_of(ValueRefinement(), tree)
    assert session.score(1) == session.score(3) == -math.inf


def test_a_gain_that_is_not_positive_is_never_bought():
    session = session_of(ValueRefinement(), build_tree(Sketch(value=0.5)))
    assert session.score(0) == -math.inf


def test_the_documented_anomaly_pending_work_opens_an_unmeasured_checkpoint():
    tree = build_tree(Sketch(value=0.5))
    assert session_of(ValueRefinement(), tree, pending={0: 1}).score(0) == 0.03125
    for gain in ("one_step", "preposterior"):
        idle, busy = (
            session_of(ValueRefinement(gain=gain), tree, pending={0: m}).score(0) for m in (0, 1)
        )
        assert busy < idle


@pytest.mark.parametrize("model", [BetaBernoulli(), Gaussian()])
@given(low=st.floats(-5, 5), width=st.floats(0.1, 20), value=st.floats(0.05, 0.95))
def test_scores_do_not_depend_on_the_unit_of_the_critics_range(model, low, width, value):
    def score(low, width):
        high = low + width
        tree = build_tree(
            fork(low + width * value, end(low), end(high), end(high)), critic_range=(low, high)
        )
        return session_of(ValueRefinement(model=model), tree).score(0)

    assert score(low, width) == pytest.approx(score(0.0, 1.0), rel=1e-6)


@pytest.mark.parametrize("settings", [{"gain": "luck"}, {"model": "beta"}])
def test_refinement_refuses_an_unknown_gain_or_model(settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        ValueRefinement(**settings)


class TestUniformRandom:
    def test_every_open_checkpoint_is_as_likely_as_any_other(self):
        tree = build_tree(fork(0.5, *(fork(0.5) for _ in range(4))))
        counts = Counter()
        for seed in range(2000):
            session = UniformRandom(seed=seed).session(View(tree, Evidence.of(tree), {}))
            for node in tree:
                session.entered(node.id)
            counts[max(range(5), key=session.score)] += 1
        chi_square = sum((counts[node] - 400) ** 2 / 400 for node in range(5))
        assert chi_square < 18.5  # 99.9 % quantile with 4 degrees of freedom

    def test_it_draws_with_replacement_and_latecomers_are_no_worse_off(self):
        counts = Counter()
        for seed in range(2000):
            tree = build_tree(fork(0.5, fork(0.5), fork(0.5)))
            pending = Counter()
            session = UniformRandom(seed=seed).session(View(tree, Evidence.of(tree), pending))
            for node in (0, 1):
                session.entered(node)
            for _ in range(3):
                chosen = max((0, 1), key=session.score)
                pending[chosen] += 1
                session.score(chosen)
            session.entered(2)
            counts[max(range(3), key=session.score)] += 1
        chi_square = sum((counts[node] - 2000 / 3) ** 2 / (2000 / 3) for node in range(3))
        assert chi_square < 13.9  # 99.9 % quantile with 2 degrees of freedom

    def test_the_draws_belong_to_the_problem_and_the_seed(self, play, world):
        def bought(seed):
            search = Search([Phase(UniformRandom(seed=seed), attempts=30)])
            return [launch.node for launch in play(search, world(stop=0.1)).launches]

        assert bought(1) == bought(1)
        assert bought(1) != bought(2)


@given(
    widths=st.lists(st.integers(1, 3), min_size=1, max_size=4),
    seed=st.integers(0, 99),
    order=st.integers(0, 9),
    extent=st.none() | st.just(Edges(1)),
)
def test_fixed_width_fills_every_live_checkpoint_and_nothing_more(
    play, world, widths, seed, order, extent
):
    search = Search([Phase(FixedWidth(tuple(widths)), attempts=10**6, extent=extent)])
    run = play(search, world(seed=seed), order=order)
    for node in run.tree:
        if not node.is_terminal:
            wanted = widths[node.depth] if node.depth < len(widths) else 1
            assert len(run.tree.children(node.id)) == wanted
    assert run.scheduler.reports[-1].end == "exhausted"


@given(count=st.integers(1, 3), seed=st.integers(0, 99), fail=st.sampled_from([0.0, 0.2]))
def test_each_checkpoint_of_earlier_phases_gets_its_probes_whatever_fails(
    play, world, count, seed, fail
):
    search = Search(
        [Phase(RootOnly(), attempts=3), Phase(EachCheckpoint(count), attempts=10**6)],
    )
    run = play(search, world(seed=seed, fail=fail))
    tree = run.tree
    earlier = [n for n in tree if n.edge is None or n.incoming.provenance.phase == 0]
    bought = Counter(
        tree[node.id].parent
        for node in tree.edges()
        if node.incoming.provenance.phase == 1 and node.incoming.provenance.index == 0
    )
    assert bought == {node.id: count for node in earlier if not node.is_terminal}


@pytest.mark.parametrize(
    ("make", "culprit"),
    [
        (lambda: FixedWidth(()), "widths"),
        (lambda: FixedWidth((2, 0)), "widths"),
        (lambda: EachCheckpoint(0), "count"),
    ],
)
def test_sizes_are_checked(make, culprit):
    with pytest.raises(ConfigError, match=culprit):
        make()
