import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.errors import ConfigError, LifecycleError
from focus.problem import Problem
from focus.sampling import Sampling
from focus.search import (
    BestFirst,
    Concurrency,
    Done,
    Edges,
    Fifo,
    Launch,
    Phase,
    PhaseEnd,
    RootOnly,
    Scheduler,
    Search,
    TokenEntropy,
    ValueRefinement,
    Wait,
    Width,
)
from focus.tokens import Span
from focus.tree import Edge, Evidence, Provenance, Returns, SuffixMeans, Tree, TreeHeader

ALLOWANCE = 64

allocators = st.one_of(
    st.just(Fifo()),
    st.builds(
        BestFirst,
        key=st.sampled_from(["reward", "mean_return", "critic"]),
        explore=st.sampled_from([0.0, 0.5]),
    ),
    st.builds(TokenEntropy, window=st.integers(1, 9), count_penalty=st.booleans()),
    st.builds(ValueRefinement, gain=st.sampled_from(["derivative", "one_step", "preposterior"])),
)
gates = st.builds(Width, st.integers(1, 4)) | st.builds(Concurrency, st.integers(1, 4))
extents = st.none() | st.builds(Edges, st.integers(1, 3))
budgets = st.one_of(
    st.fixed_dictionaries({"tokens": st.integers(1, 600)}),
    st.fixed_dictionaries({"tokens": st.integers(1, 600), "cap": st.just("hard")}),
    st.fixed_dictionaries({"attempts": st.integers(1, 20)}),
    st.fixed_dictionaries({"nodes": st.integers(1, 40)}),
    st.fixed_dictionaries({"tokens": st.integers(100, 900), "attempts": st.integers(1, 20)}),
)


@st.composite
def phases(draw):
    budget = draw(budgets)
    lockstep = "cap" not in budget and draw(st.booleans())
    return Phase(
        draw(allocators),
        gate=draw(gates),
        extent=None if lockstep else draw(extents),
        siblings=1 if lockstep else draw(st.sampled_from([1, 1, 2, 3])),
        lockstep=lockstep,
        **budget,
    )


@st.composite
def whole_searches(draw):
    chosen = draw(st.lists(phases(), min_size=1, max_size=3))
    least = max(phase.siblings for phase in chosen)
    return Search(chosen, concurrency=draw(st.integers(least, 5)))


searches = whole_searches()
chances = st.sampled_from([0.0, 0.2, 0.6])
worlds = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 999),
        "allowance": st.sampled_from([ALLOWANCE, 20]),
        "stop": st.sampled_from([0.1, 0.5]),
        "fail": chances,
        "waste": chances,
        "no_value": chances,
    }
)


def fresh_tree(**header) -> Tree[int]:
    problem = Problem(id=1, prompt="2+2?")
    return Tree(TreeHeader(problem=problem, prompt_ids=(1,), **header), ALLOWANCE, value=0.5)


def scheduler_of(*phases: Phase, concurrency: int = 2, tree: Tree[int] | None = None) -> Scheduler:
    search = Search(phases, concurrency=concurrency)
    return Scheduler(search, tree or fresh_tree(), remaining_tokens=lambda _: ALLOWANCE)


def grow(tree: Tree[int], parent: int, *, tokens: int = 4, is_terminal: bool = True) -> int:
    edge = Edge(
        spans=(Span((7,) * tokens, (-1.0,) * tokens),),
        provenance=Provenance(expansion=0, index=0, phase=0),
    )
    return tree.attach(parent, edge, ALLOWANCE, value=0.5, is_terminal=is_terminal)


# Laws over whole searches


@given(search=searches, settings_=worlds, orders=st.tuples(st.integers(), st.integers()))
def test_completion_order_changes_nothing(play, world, search, settings_, orders):
    one, other = (play(search, world(**settings_), order=order) for order in orders)
    assert one.launches == other.launches
    assert one.tree.selections == other.tree.selections
    assert list(one.tree) == list(other.tree)
    assert one.scheduler.reports == other.scheduler.reports


@given(search=searches, settings_=worlds)
def test_a_launch_waits_for_exactly_the_results_it_may_see(play, world, search, settings_):
    run = play(search, world(**settings_))
    for number, settled in enumerate(run.settled_before):
        assert settled >= max(0, number - search.concurrency + 1)


def test_a_launch_sees_no_more_than_the_law_says(play, world):
    search = Search([Phase(TokenEntropy(), attempts=40)], concurrency=3)
    run = play(search, world(stop=0.2))
    assert run.settled_before == [max(0, number - 2) for number in range(40)]


@given(search=searches, settings_=worlds)
def test_books_close(play, world, search, settings_):
    run = play(search, world(**settings_))
    reports = run.scheduler.reports
    assert run.scheduler.in_flight == 0
    assert [report.phase for report in reports] == list(range(len(search.phases)))
    assert sum(report.launched for report in reports) == len(run.launches)
    assert [launch.expansion for launch in run.launches] == list(range(len(run.launches)))
    assert [selection.node for selection in run.tree.selections] == [
        launch.node for launch in run.launches
    ]
    for report in reports:
        results = [run.results[x.expansion] for x in run.launches if x.phase == report.phase]
        assert report.launched == len(results)
        assert report.failed == sum(result.failed for result in results)
        assert report.cut == sum(result.cut for result in results)
        assert report.tokens == run.tokens(report.phase)


@given(search=searches, settings_=worlds)
def test_a_phase_starts_only_when_the_last_one_has_settled(play, world, search, settings_):
    run = play(search, world(**settings_))
    assert [x.phase for x in run.launches] == sorted(x.phase for x in run.launches)
    for earlier, later in itertools.pairwise(run.launches):
        if earlier.phase < later.phase:
            assert run.settled_before[later.expansion] == later.expansion


@given(search=searches, settings_=worlds)
def test_budgets_hold(play, world, search, settings_):
    run = play(search, world(**settings_))
    for report, phase in zip(run.scheduler.reports, search.phases, strict=True):
        launches = [x for x in run.launches if x.phase == report.phase]
        if phase.attempts is not None:
            assert report.launched <= phase.attempts
        if phase.cap == "hard":
            assert report.overshoot == 0
            assert all(run.results[x.expansion].tokens <= x.quota for x in launches)
        elif phase.tokens is not None and not settings_["waste"]:
            assert report.overshoot <= search.concurrency * settings_["allowance"]
        if phase.nodes is not None and not phase.lockstep:
            settled_nodes = 0
            for launch in launches[: -search.concurrency]:
                settled_nodes += len(run.results[launch.expansion].edges)
            assert settled_nodes < phase.nodes


@given(search=searches, settings_=worlds)
def test_gates_and_forkability_hold_at_every_launch(play, world, search, settings_):
    def watch(tree, pending, launch):
        gate = search.phases[launch.phase].gate
        node = tree[launch.node]
        children = len(tree.children(launch.node))
        assert gate.admits(children=children, pending=pending[launch.node])
        assert not node.is_terminal
        assert node.payload > 0

    play(search, world(**settings_), watch=watch)


@given(search=searches, settings_=worlds)
def test_evidence_equals_what_the_settled_tree_tells(play, world, search, settings_):
    run = play(search, world(**settings_))
    rebuilt = Evidence.of(run.tree)
    assert all(run.scheduler.evidence[node.id] == rebuilt[node.id] for node in run.tree)
    means = SuffixMeans.of(run.tree, run.tree.header.returns)
    for node in run.tree:
        seen = rebuilt[node.id]
        assert means.counts[node.id] == (0 if node.is_terminal else seen.count)
        assert means.means[node.id] == pytest.approx(seen.mean, abs=1e-12)


@given(attempts=st.integers(1, 30), concurrency=st.integers(1, 6), seed=st.integers(0, 99))
def test_flat_searches_launch_exactly_their_attempts_from_the_root(
    play, world, attempts, concurrency, seed
):
    run = play(Search.flat(attempts, concurrency=concurrency), world(seed=seed, fail=0.2))
    assert [launch.node for launch in run.launches] == [0] * attempts
    assert run.scheduler.reports[0].end is PhaseEnd.ATTEMPTS


def test_two_phases_measure_what_the_first_one_planted(play, world):
    run = play(Search.two_phase(tokens=4000), world(stop=0.2))
    first, second = run.scheduler.reports
    assert first.end is second.end is PhaseEnd.TOKENS
    assert {launch.phase for launch in run.launches} == {0, 1}
    assert 0 < run.tokens(1) < 2000 + 4 * ALLOWANCE


def test_an_overspent_phase_does_not_tax_the_next(play, world):
    greedy = Phase(RootOnly(), tokens=8)
    run = play(Search([greedy, Phase(RootOnly(), tokens=4000)]), world(stop=0.0))
    first, second = run.scheduler.reports
    assert first.overshoot == ALLOWANCE - 8
    assert run.tree.selections[first.launched].free_tokens == 4000
    assert second.tokens > 3900


def test_with_unlimited_room_a_search_still_ends(play, world):
    run = play(Search.two_phase(tokens=2000), world(allowance=None))
    assert all(report.end is PhaseEnd.TOKENS for report in run.scheduler.reports)


@pytest.mark.parametrize("phase", [{"tokens": 50}, {"attempts": 7}, {"turns": 7}, {"nodes": 7}])
def test_a_dead_backend_drains_every_budget(play, world, phase):
    run = play(Search([Phase(TokenEntropy(), **phase)]), world(fail=1.0))
    (report,) = run.scheduler.reports
    assert report.launched == report.failed > 0
    assert len(run.tree) == 1


def test_a_hard_cap_leaves_a_forkable_tip(play, world):
    run = play(Search([Phase(Fifo(), tokens=20, cap="hard")], concurrency=1), world(stop=0.0))
    (tip,) = run.tree.leaves()
    assert not run.tree[tip].is_terminal
    assert run.tree[tip].payload == ALLOWANCE - 20
    assert run.scheduler.reports[0].cut == 1


def test_width_one_grows_a_single_chain(play, world):
    phase = Phase(Fifo(), attempts=30, gate=Width(1), extent=Edges(1))
    run = play(Search([phase]), world(stop=0.0))
    assert all(len(run.tree.children(node.id)) <= 1 for node in run.tree)
    assert run.scheduler.reports[0].end is PhaseEnd.EXHAUSTED


# Phases that cannot rank


@pytest.mark.parametrize("allocator", [ValueRefinement(), BestFirst(key="critic")])
def test_without_any_value_the_phase_is_declined_and_recorded(play, world, allocator):
    search = Search([Phase(allocator, attempts=3), Phase(RootOnly(), attempts=2)])
    run = play(search, world(), root_value=None)
    assert [report.end for report in run.scheduler.reports] == [
        PhaseEnd.DECLINED,
        PhaseEnd.ATTEMPTS,
    ]
    assert {launch.phase for launch in run.launches} == {1}


def test_an_unmeasured_tree_is_worth_nothing_to_refinement(play, world):
    run = play(Search([Phase(ValueRefinement(), attempts=3)]), world())
    assert run.launches == []
    assert run.scheduler.reports[0].end is PhaseEnd.EXHAUSTED


def test_a_root_without_room_buys_nothing():
    search = Search([Phase(Fifo(), attempts=3)])
    scheduler = Scheduler(search, fresh_tree(), remaining_tokens=lambda _: 0)
    assert scheduler.next() == Done()
    assert scheduler.reports[0].end is PhaseEnd.EXHAUSTED


# The conversation


def test_a_launch_carries_what_its_phase_says():
    override = Sampling(max_tokens=8, seed=3)
    phase = Phase(Fifo(), tokens=40, cap="hard", extent=Edges(2), sampling=override)
    assert scheduler_of(phase).next() == Launch(
        expansion=0, node=0, phase=0, sampling=override, extent=2, quota=40
    )


def test_every_launch_leaves_a_selection():
    tree = fresh_tree()
    scheduler = scheduler_of(Phase(Fifo(), tokens=640), tree=tree, concurrency=1)
    scheduler.next()
    (selection,) = tree.selections
    assert (selection.expansion, selection.node, selection.phase) == (0, 0, 0)
    assert (selection.rivals, selection.free_tokens) == (0, 640)


def test_next_repeats_itself_until_the_awaited_expansion_is_settled():
    scheduler = scheduler_of(Phase(RootOnly(), attempts=9))
    assert [scheduler.next().expansion for _ in range(2)] == [0, 1]
    assert scheduler.next() == scheduler.next() == Wait(0)
    scheduler.settle(0, chain=(), tokens=0, failed=True)
    assert scheduler.next().expansion == 2


def test_when_all_is_done_it_stays_done():
    scheduler = scheduler_of(Phase(RootOnly(), attempts=1))
    scheduler.next()
    scheduler.next()
    scheduler.settle(0, chain=(), tokens=0, failed=True)
    assert scheduler.next() == scheduler.next() == Done()


def test_wall_time_stops_buying_and_waits_for_what_is_in_flight():
    scheduler = scheduler_of(Phase(RootOnly(), wall_s=2.0))
    assert isinstance(scheduler.next(elapsed_s=1.0), Launch)
    assert scheduler.next(elapsed_s=3.0) == Wait(0)
    scheduler.settle(0, chain=(), tokens=0, failed=True)
    assert scheduler.next(elapsed_s=0.0) == Done()
    assert scheduler.reports[0].end is PhaseEnd.WALL


@pytest.mark.parametrize("expansion", [0, 1, 7])
def test_only_the_awaited_expansion_may_settle(expansion):
    scheduler = scheduler_of(Phase(RootOnly(), attempts=9))
    scheduler.next()
    with pytest.raises(LifecycleError, match=f"expansion {expansion} is not due"):
        scheduler.settle(expansion, chain=(), tokens=0, failed=True)


def awaited(tree: Tree[int]) -> Scheduler:
    scheduler = scheduler_of(Phase(RootOnly(), attempts=9), tree=tree, concurrency=1)
    scheduler.next()
    scheduler.next()
    return scheduler


def test_a_chain_that_does_not_fit_is_refused_and_may_be_mended():
    tree = fresh_tree()
    scheduler = awaited(tree)
    with pytest.raises(LifecycleError, match="no progress and no failure"):
        scheduler.settle(0, chain=(), tokens=0)
    first, second = grow(tree, 0, is_terminal=False), grow(tree, 0)
    with pytest.raises(LifecycleError, match="is not what was attached"):
        scheduler.settle(0, chain=(first,), tokens=8)
    with pytest.raises(LifecycleError, match="does not hang below it"):
        scheduler.settle(0, chain=(first, second), tokens=8)


def test_fewer_tokens_than_the_chain_holds_are_refused():
    tree = fresh_tree()
    scheduler = awaited(tree)
    chain = (grow(tree, 0, tokens=4),)
    with pytest.raises(LifecycleError, match="3 tokens reported, 4 attached"):
        scheduler.settle(0, chain=chain, tokens=3)
    scheduler.settle(0, chain=chain, tokens=4)


def test_a_tree_is_searched_once():
    tree = fresh_tree()
    scheduler_of(Phase(Fifo(), attempts=1), tree=tree).next()
    with pytest.raises(LifecycleError, match="fresh tree"):
        scheduler_of(Phase(Fifo(), attempts=1), tree=tree)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"returns": Returns(prior_strength=2.0)}, "differs from the collection's 2.0"),
        ({"critic_range": (1.0, 1.0)}, "is not an interval"),
    ],
)
def test_a_header_that_an_allocator_cannot_honour_is_refused_before_any_launch(header, message):
    refine = Phase(ValueRefinement(prior_strength=1.0), tokens=1)
    with pytest.raises(ConfigError, match=message):
        scheduler_of(Phase(Fifo(), tokens=1), refine, tree=fresh_tree(**header))
