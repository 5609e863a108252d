"""Whatever happens in the middle of a round: no batch is applied twice, none is skipped."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from focus.errors import FocusError, TrainerError
from focus.testing.tinker_service import Fault, FaultKind, TinkerService

from .runs import (
    CRITIC_STEPS,
    SMALL,
    Heard,
    attempts,
    check_each_round_counts_once,
    run,
)

pytestmark = pytest.mark.anyio

TWO = dataclasses.replace(SMALL, rounds=2)
PER_ROUND = CRITIC_STEPS + 1
"""forward_backward and optim_step requests of a round: the critic's, then the actor's."""

SECOND_ACTOR_STEP = PER_ROUND + CRITIC_STEPS
SECOND_CRITIC_STEP = PER_ROUND

PATIENT = [
    Fault("forward_backward", FaultKind.BUSY, skip=SECOND_ACTOR_STEP),
    Fault("forward_backward", FaultKind.UNAVAILABLE, skip=SECOND_CRITIC_STEP),
    Fault("forward_backward", FaultKind.REPLY_LOST, skip=SECOND_ACTOR_STEP),
    Fault("optim_step", FaultKind.BUSY, skip=SECOND_ACTOR_STEP),
    Fault("optim_step", FaultKind.REPLY_LOST, skip=SECOND_ACTOR_STEP),
    Fault("save_weights", FaultKind.REPLY_LOST, skip=2),
    Fault("save_weights_for_sampler", FaultKind.UNAVAILABLE, skip=2),
    Fault("retrieve_future", FaultKind.UNAVAILABLE, skip=40),
]
"""The SDK sends again under the same number, and the work is done once."""

FATAL = [
    Fault("forward_backward", FaultKind.FAILED, skip=SECOND_ACTOR_STEP),
    Fault("forward_backward", FaultKind.FAILED, skip=SECOND_CRITIC_STEP),
    Fault("forward_backward", FaultKind.GONE, skip=SECOND_ACTOR_STEP),
    Fault("forward_backward", FaultKind.CRASH, skip=SECOND_ACTOR_STEP),
    Fault("forward_backward", FaultKind.RESTART, skip=SECOND_ACTOR_STEP),
    Fault("optim_step", FaultKind.FAILED, skip=SECOND_ACTOR_STEP),
    Fault("optim_step", FaultKind.GONE, skip=SECOND_ACTOR_STEP),
    Fault("optim_step", FaultKind.CRASH, skip=SECOND_ACTOR_STEP),
    Fault("optim_step", FaultKind.CRASH, skip=SECOND_CRITIC_STEP),
    Fault("optim_step", FaultKind.RESTART, skip=SECOND_ACTOR_STEP),
    Fault("save_weights", FaultKind.FAILED, skip=2),
    Fault("save_weights", FaultKind.GONE, skip=3),
    Fault("save_weights_for_sampler", FaultKind.GONE, skip=3),
    Fault("asample", FaultKind.RESTART, skip=150),
]
"""Weights or session are lost: the round is collected again from the last saved state."""

QUICK = {
    ("forward_backward", FaultKind.REPLY_LOST),
    ("optim_step", FaultKind.CRASH),
    ("forward_backward", FaultKind.GONE),
    ("optim_step", FaultKind.RESTART),
}


def cases(faults: list[Fault]) -> list[object]:
    """A few on every change, all of them behind --full."""
    seen: set[tuple[str, FaultKind]] = set()
    found: list[object] = []
    for fault in faults:
        kind = (fault.route, fault.kind)
        marks = () if kind in QUICK and kind not in seen else (pytest.mark.full,)
        seen.add(kind)
        name = f"{fault.route}-{fault.kind}-{fault.skip}"
        found.append(pytest.param(fault, id=name, marks=marks))
    return found


@pytest.mark.parametrize("fault", cases(PATIENT))
async def test_what_is_sent_again_is_done_once(fault: Fault, tmp_path: Path) -> None:
    with TinkerService(faults=[fault]) as service:
        summary = await run(service, tmp_path, settings=TWO)
        assert service.faults.shown == [fault.kind]
        check_each_round_counts_once(service, tmp_path, rounds=2)
    assert summary["recovered"] == []
    assert attempts(tmp_path) == [(0, 0, "applied"), (1, 0, "applied")]


@pytest.mark.parametrize("fault", cases(FATAL))
async def test_what_is_lost_is_collected_again(fault: Fault, tmp_path: Path) -> None:
    heard = Heard()
    with TinkerService(faults=[fault]) as service:
        summary = await run(service, tmp_path, settings=TWO, heard=heard)
        assert service.faults.shown == [fault.kind]
        check_each_round_counts_once(service, tmp_path, rounds=2)
    assert len(summary["recovered"]) == 1
    assert summary["optimizer_steps"] == 2
    assert "start over from the last saved state" in heard.stages
    states = [state for _, _, state in attempts(tmp_path)]
    assert states.count("applied") == 2


async def test_a_service_that_stays_broken_ends_the_run_and_a_later_call_goes_on(
    tmp_path: Path,
) -> None:
    broken = [Fault("optim_step", FaultKind.FAILED, skip=PER_ROUND)] * (4 * CRITIC_STEPS)
    with TinkerService(faults=broken) as service:
        with pytest.raises(TrainerError, match="the round does not count"):
            await run(service, tmp_path, settings=TWO)
        assert [state for *_, state in attempts(tmp_path)].count("applied") == 1
        await run(service, tmp_path, settings=TWO)
        check_each_round_counts_once(service, tmp_path, rounds=2)


async def test_a_mistake_of_ours_is_not_tried_again(tmp_path: Path) -> None:
    with TinkerService() as service:
        await run(service, tmp_path, settings=dataclasses.replace(SMALL, rounds=1))
        other = dataclasses.replace(SMALL, rounds=2, seed=5)
        with pytest.raises(FocusError, match="other settings"):
            await run(service, tmp_path, settings=other)
