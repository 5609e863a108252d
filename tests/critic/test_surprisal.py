"""Laws of the surprisal critic: what it reads, what it minimises, what it refuses."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focus.checkpoint import Allowance, Checkpoint
from focus.critic import render_context
from focus.critic.surprisal import PROFILE, SURPRISAL, SurprisalModel, surprisal_profile
from focus.errors import ConfigError, CriticError, StoreError
from focus.records.records import CriticContext, CriticRecord, RecordKey
from focus.testing.policies import ScriptedPolicy
from focus.tokens import TokenChain
from focus.tree import Identity

log_probs = st.lists(st.floats(-50, 0), max_size=30)


def context(values: list[float]) -> CriticContext:
    return CriticContext(renderer=SURPRISAL, text=json.dumps(surprisal_profile(values)))


def record(values: list[float], target: float, count: int = 1) -> CriticRecord:
    source = RecordKey(
        identity=Identity(run="t"), problem="p", key="p", policy_version="a", critic_version="c"
    )
    return CriticRecord(
        source=source, node=0, context=context(values), target=target, count=count, prior=0.5,
        depth=0,
    )  # fmt: skip


@given(log_probs)
def test_profile_does_not_depend_on_order(values: list[float]) -> None:
    shuffled = random.Random(0).sample(values, len(values))
    assert surprisal_profile(values) == surprisal_profile(shuffled)


@given(log_probs, st.floats(-50, 0))
def test_every_number_but_the_mean_grows_with_a_token(values: list[float], more: float) -> None:
    before, after = surprisal_profile(values), surprisal_profile([*values, more])
    for name, one, two in zip(PROFILE, before, after, strict=True):
        assert name == "mean" or two >= one


@given(log_probs)
def test_non_finite_log_probs_say_nothing(values: list[float]) -> None:
    assert surprisal_profile([*values, -math.inf, math.nan]) == surprisal_profile(values)


def test_rendering_reads_sampled_tokens_and_nothing_else() -> None:
    prompt = TokenChain((1, 2, 3))
    written = prompt.extended((4, 5), (-0.5, -2.0)).extended((6, 7)).extended((8,), (-4.0,))
    checkpoint = Checkpoint(
        context=written, prompt_length=3, state=None, allowance=Allowance(tokens=7)
    )
    found = render_context(SURPRISAL, ScriptedPolicy(lambda prompt, so_far, rng: ""), checkpoint)
    assert json.loads(found.text) == pytest.approx(surprisal_profile([-0.5, -2.0, -4.0]), abs=1e-6)
    assert (found.ids, found.remaining_tokens) == (None, 7)


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.lists(st.floats(-9, 0), max_size=8), st.floats(0, 1), st.integers(1, 5)),
        min_size=1,
        max_size=25,
    )
)
def test_fit_is_the_minimum(rows: list[tuple[list[float], float, int]]) -> None:
    """The gradient of the penalised cross-entropy vanishes at the fit: it is convex."""
    records = [record(*row) for row in rows]
    ridge = 1.0
    model = SurprisalModel.constant(0.5, version="0").fitted(records, version="1", ridge=ridge)
    slopes = [2 * ridge * weight for weight in model.weights]
    for one in records:
        gap = one.count * (model.predict([one.context])[0] - one.target)
        profile = json.loads(one.context.text)
        for i, (x, m, s) in enumerate(zip(profile, model.centre, model.spread, strict=True)):
            slopes[i] += gap * (x - m) / s
    assert max(map(abs, slopes)) < 1e-6


def test_a_slip_that_costs_probability_is_found_from_few_trees() -> None:
    """Forty rollouts of a policy that fails iff it slipped; a slip costs four nats."""
    rng = random.Random(3)

    def rollout() -> tuple[list[float], float]:
        slips = [rng.random() < 0.15 for _ in range(6)]
        return [-4.0 if slip else -rng.random() for slip in slips], float(not any(slips))

    start = SurprisalModel.constant(0.5, version="0")
    model = start.fitted([record(*rollout()) for _ in range(40)], version="1")
    fresh = [rollout() for _ in range(400)]
    predicted = model.predict([context(values) for values, _ in fresh])
    mean = sum(outcome for _, outcome in fresh) / len(fresh)
    error = sum((p - y) ** 2 for p, (_, y) in zip(predicted, fresh, strict=True)) / len(fresh)
    assert error < 0.25 * mean * (1 - mean)


@pytest.mark.parametrize("outcome", [0.0, 1.0])
def test_equal_outcomes_stay_finite_and_go_there(outcome: float) -> None:
    records = [record([-float(i)], outcome) for i in range(20)]
    model = SurprisalModel.constant(0.5, version="0").fitted(records, version="1")
    (value,) = model.predict([context([-3.0])])
    assert abs(value - outcome) < 0.05


@pytest.mark.parametrize(
    "bad",
    [
        CriticContext(renderer="token_chunk/1", text="[0,0,0,0,0,0,0,0,0]", ids=(1,)),
        CriticContext(renderer=SURPRISAL, text="[1, 2]"),
        CriticContext(renderer=SURPRISAL, text="not json"),
        CriticContext(renderer=SURPRISAL, text='["a", 0, 0, 0, 0, 0, 0, 0, 0]'),
        CriticContext(renderer=SURPRISAL, text="[NaN, 0, 0, 0, 0, 0, 0, 0, 0]"),
    ],
)
def test_what_is_no_profile_is_refused(bad: CriticContext) -> None:
    with pytest.raises(CriticError, match="surprisal critic reads 9 numbers"):
        SurprisalModel.constant(0.5, version="0").predict([bad])


def test_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(ConfigError, match="weights must be 9 finite numbers"):
        SurprisalModel(version="0", weights=(math.nan,) * len(PROFILE))
    with pytest.raises(CriticError, match="no records"):
        SurprisalModel.constant(0.5, version="0").fitted([], version="1")


@given(st.lists(st.tuples(st.lists(st.floats(-9, 0), max_size=4), st.floats(0, 1)), min_size=1))
def test_what_is_saved_comes_back_equal(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[list[float], float]]
) -> None:
    path = tmp_path_factory.mktemp("model") / "surprisal.json"
    start = SurprisalModel.constant(0.5, version="0")
    model = start.fitted([record(*row) for row in rows], version="1")
    model.save(path)
    assert SurprisalModel.load(path) == model


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-5],
        lambda data: data.replace(b"surprisal_critic/1", b"surprisal_critic/9"),
        lambda data: data.replace(b'"bias"', b'"bios"'),
        lambda data: data.replace(b'"spread":[', b'"spread":[1.0,'),
        lambda data: b"[]",
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "surprisal.json"
    SurprisalModel.constant(0.5, version="0").save(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(StoreError, match="not a surprisal critic of this version"):
        SurprisalModel.load(path)
