import dataclasses

import pytest

from focus.errors import ConfigError
from focus.sampling import Sampling
from focus.search import (
    BetaBernoulli,
    Concurrency,
    Edges,
    Fifo,
    Phase,
    RootOnly,
    Search,
    TokenEntropy,
    ValueRefinement,
)


def test_two_phase_halves_the_budget_between_its_allocators():
    search = Search.two_phase(tokens=101, concurrency=3)
    first, second = search.phases
    assert (first.tokens, second.tokens, search.tokens) == (50, 51, 101)
    assert first.allocator == TokenEntropy(window=8)
    assert second.allocator == ValueRefinement(model=BetaBernoulli())
    assert first.gate == second.gate == Concurrency(3)
    assert search.concurrency == 3


def test_flat_buys_exactly_its_rollouts_from_the_root():
    search = Search.flat(8, concurrency=5)
    assert search.phases == (Phase(RootOnly(), attempts=8, gate=Concurrency(5), siblings=5),)
    assert search.concurrency == 5


@pytest.mark.parametrize("tokens", [0, 1, -4])
def test_two_phase_refuses_a_budget_that_buys_nothing(tokens):
    with pytest.raises(ConfigError, match="tokens: budget"):
        Search.two_phase(tokens=tokens)


@pytest.mark.parametrize("cap", ["tokens", "attempts", "turns", "nodes", "wall_s"])
def test_a_cap_of_zero_is_refused_by_name(cap):
    with pytest.raises(ConfigError, match=f"{cap}: budget 0"):
        Phase(Fifo(), **{cap: 0})


def test_a_wall_time_that_is_no_number_is_refused():
    with pytest.raises(ConfigError, match="wall_s: budget nan"):
        Phase(Fifo(), wall_s=float("nan"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "never ends"),
        ({"attempts": 1, "cap": "hard"}, "set tokens"),
        ({"tokens": 1, "cap": "soft"}, "cap must be"),
        ({"tokens": 8192.0}, "must be a whole number"),
        ({"tokens": 1, "gate": 4}, "is not a gate"),
        ({"tokens": 1, "gate": Concurrency}, "is not a gate"),
    ],
)
def test_a_phase_that_cannot_work_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Phase(Fifo(), **settings)


@pytest.mark.parametrize("allocator", ["fifo", Fifo, None])
def test_only_an_allocator_ranks(allocator):
    with pytest.raises(ConfigError, match="is not an allocator"):
        Phase(allocator, tokens=1)


@pytest.mark.parametrize(
    "law", [{"temperature": 0.5}, {"top_p": 0.9}, {"top_k": 5}, {"top_k": 5, "seed": 1}]
)
def test_a_phase_cannot_change_the_sampling_law(law):
    with pytest.raises(ConfigError, match="one sampling law"):
        Phase(Fifo(), tokens=1, sampling=Sampling(**law))


def test_a_phase_may_change_limits_and_seed():
    override = Sampling(max_tokens=8, stop=(2,), seed=3)
    assert Phase(Fifo(), tokens=1, sampling=override).sampling == override


@pytest.mark.parametrize("settings", [{"phases": ()}, {"phases": (1,), "concurrency": 0}])
def test_a_search_needs_a_phase_and_a_slot(settings):
    with pytest.raises(ConfigError):
        Search(**settings)


def test_an_extent_needs_an_edge():
    with pytest.raises(ConfigError, match="at least one edge"):
        Edges(0)


def test_configuration_is_frozen_and_hashable():
    phase = Phase(TokenEntropy(), tokens=1)
    search = Search([phase])
    assert hash(search) == hash(Search((phase,)))
    assert dataclasses.replace(phase, tokens=2).budget.tokens == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        phase.tokens = 2
