import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.errors import ConfigError
from focus.search import Fifo, Phase, Search
from focus.search.budget import Budget, PhaseEnd, PhaseLedger
from focus.search.costs import BANDS, Costs

N = 16_384


def fresh_costs(root_room: int | None = 4096) -> Costs:
    return Costs(root_room=root_room, total_tokens=N)


@given(room=st.integers(1, 4096), root=st.integers(1, 4096))
def test_a_band_holds_the_rooms_up_to_its_edge(room, root):
    room = min(room, root)
    band = Costs(root_room=root, total_tokens=N).band(room)
    assert (band - 1) * root < BANDS * room <= band * root


def test_rooms_outside_the_roots_own_fall_into_the_outer_bands():
    assert fresh_costs().band(None) == fresh_costs().band(9999) == BANDS
    assert fresh_costs(None).band(17) == BANDS


def test_before_data_a_launch_costs_the_allowance_an_eighth_or_the_whole_phase():
    costs = fresh_costs()
    assert costs.expected(costs.band(512), budget=8192) == 512
    assert costs.expected(costs.band(4096), budget=8192) == N // 8
    assert costs.expected(costs.band(4096), budget=100) == 100
    assert fresh_costs(None).expected(BANDS, budget=8192) == N // 8


@given(sizes=st.lists(st.integers(1, 256), min_size=1, max_size=16))
def test_every_suffix_of_a_finished_expansion_teaches_its_own_band(sizes):
    costs = fresh_costs()
    rooms = [4096 - 256 * index for index in range(len(sizes))]
    costs.learn(rooms, sizes, reached_end=True)
    for index, room in enumerate(rooms):
        assert costs.expected(costs.band(room), budget=8192) == sum(sizes[index:])


def test_the_mean_is_rounded_up():
    costs = fresh_costs()
    for size in (1, 2):
        costs.learn([4096], [size], reached_end=True)
    assert costs.expected(BANDS, budget=8192) == 2


def test_only_finished_expansions_teach():
    costs = fresh_costs()
    costs.learn([4096], [1], reached_end=False)
    costs.learn([4096], [1], reached_end=False, extent=2)
    assert costs.expected(BANDS, budget=8192) == N // 8
    assert costs.expected(BANDS, budget=8192, extent=2) == N // 8


def test_a_limited_expansion_teaches_its_launch_and_its_own_extent_only():
    costs = fresh_costs()
    costs.learn([4096, 3840], [30, 40], extent=2, reached_end=False)
    assert costs.expected(BANDS, budget=8192, extent=2) == 70
    assert costs.expected(costs.band(3840), budget=8192, extent=2) == N // 8
    assert costs.expected(BANDS, budget=8192) == N // 8


def test_free_is_budget_less_spent_less_reserved():
    ledger = PhaseLedger(Budget(tokens=5000), fresh_costs())
    first, second = (ledger.reserve(BANDS, room=4096) for _ in range(2))
    assert ledger.free_tokens == 5000 - 2 * 2048
    assert not ledger.affords(BANDS)
    assert ledger.affords(1)
    ledger.settle(first, tokens=100)
    ledger.settle(second, tokens=4096)
    assert ledger.free_tokens == 5000 - 4196


def test_a_hard_cap_reserves_the_whole_quota():
    ledger = PhaseLedger(Budget(tokens=5000, cap="hard"), fresh_costs())
    reservation = ledger.reserve(BANDS, room=4096)
    assert (reservation.quota, ledger.free_tokens) == (4096, 904)
    ledger.settle(reservation, tokens=3000)
    assert ledger.reserve(BANDS, room=None).quota == 2000


@pytest.mark.parametrize("cap", ["tokens", "attempts", "turns", "nodes"])
def test_failures_that_cost_nothing_still_drain_any_budget(cap):
    ledger = PhaseLedger(Budget(**{cap: 10}), Costs(root_room=4096, total_tokens=10))
    launched = 0
    while not ledger.stopped(elapsed_s=0.0) and ledger.affords(BANDS):
        ledger.settle(ledger.reserve(BANDS, room=4096), tokens=0, failed=True)
        launched += 1
    assert launched == 10
    assert ledger.stopped(elapsed_s=0.0) == PhaseEnd(cap)


def test_a_failure_forfeits_what_it_was_expected_to_cost():
    ledger = PhaseLedger(Budget(tokens=8192), fresh_costs())
    ledger.settle(ledger.reserve(BANDS, room=4096), tokens=10, failed=True)
    report = ledger.report(0, PhaseEnd.EXHAUSTED)
    assert (report.tokens, report.forfeited, report.failed) == (10, 2038, 1)


def test_wall_time_counts_from_the_phase_and_latches():
    ledger = PhaseLedger(Budget(wall_s=2.0), fresh_costs(), started_s=5.0)
    assert ledger.stopped(elapsed_s=6.9) is None
    assert ledger.stopped(elapsed_s=7.0) is PhaseEnd.WALL
    assert ledger.stopped(elapsed_s=5.0) is PhaseEnd.WALL


def test_a_phase_without_a_token_budget_has_no_free_tokens():
    ledger = PhaseLedger(Budget(attempts=1), fresh_costs())
    assert ledger.free_tokens is None
    assert ledger.affords(BANDS)
    assert ledger.reserve(BANDS, room=1).held == 0


@given(seed=st.integers(0, 99), least=st.integers(1, 60), cap=st.sampled_from(["mean", "hard"]))
def test_nothing_is_bought_with_less_than_the_useful_minimum(play, world, seed, least, cap):
    phase = Phase(Fifo(), tokens=300, least_tokens=least, cap=cap)
    run = play(Search([phase], concurrency=2), world(seed=seed))
    assert all(selection.free_tokens >= least for selection in run.tree.selections)
    (report,) = run.scheduler.reports
    assert report.tokens + report.forfeited > 300 - max(least, 64)


@pytest.mark.parametrize(("tokens", "least"), [(100, 0), (100, 101), (None, 5)])
def test_the_useful_minimum_lies_within_the_budget(tokens, least):
    with pytest.raises(ConfigError, match="least_tokens must lie in"):
        Phase(Fifo(), tokens=tokens, attempts=3, least_tokens=least)
