"""E1: evaluation between training prompts, with exceptions, changes nothing of training."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel

from focus.agent import SegmentAction, StepResult
from focus.errors import FocusError
from focus.integrations.slime import make_generate
from focus.integrations.slime._generate import Hook
from focus.promises.base import Measured, Stand
from focus.promises.hosts import HostSample, Walker, host_args
from focus.records import JsonlDirectory, read_critic_records
from focus.testing.envs import WalkEnv

__all__ = ("Round", "separated", "trained_with")

_PROMPTS = 2
_MOST_EVALUATIONS = 3


class _FailingEnv(WalkEnv):
    """An environment whose every step raises."""

    async def step(self, state: int, action: SegmentAction, workspace: object) -> StepResult:
        raise RuntimeError("no reward today")


class Round:
    """What a round of training prompts gave: a hash of the samples, one of the critic files."""

    def __init__(self, samples: Mapping[int, list[Any]], folder: Path) -> None:
        payload = repr([[sorted(vars(s).items()) for s in samples[n]] for n in sorted(samples)])
        self.samples = hashlib.sha256(payload.encode()).hexdigest()
        self.records = {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.iterdir())
        }
        self.problems = {record.source.problem for record in read_critic_records(folder)}


def separated(stand: Stand) -> Measured:
    """Train two prompts, with evaluations before, between and beside them, in random order.

    Some evaluations fail in their environment, some are cancelled. Counts rounds whose
    samples or critic files differ from those without evaluations, and records of evaluated
    prompts.
    """
    trials = stand.pick(quick=200, full=10_000)
    expected = anyio.run(trained_with, random.Random(0), 0, stand.folder / "alone")
    counts: Counter[str] = Counter()
    for trial in range(trials):
        rng, folder = random.Random(trial), stand.folder / str(trial)
        found = anyio.run(trained_with, rng, rng.randint(1, _MOST_EVALUATIONS), folder)
        counts["payloads_changed"] += found.samples != expected.samples
        counts["files_changed"] += found.records != expected.records
        counts["evaluation_records"] += len(found.problems - set(range(_PROMPTS)))
        stand.progress(trial + 1, trials)
    return Measured(counts.total(), trials, dict(counts))


async def trained_with(rng: random.Random, evaluations: int, folder: Path) -> Round:
    """One round of prompts with so many evaluations at random moments."""
    walks, failing = Walker(), Walker(env=_FailingEnv)
    sink = JsonlDirectory(folder)
    train = make_generate(walks, profile="token_chunk", critic_sink=sink)
    broken = make_generate(failing, profile="token_chunk", critic_sink=sink)
    samples: dict[int, list[Any]] = {}

    async def prompt(number: int) -> None:
        await _wait(rng)
        samples[number] = await train(_ARGS, _sample(number), {})

    async with anyio.create_task_group() as group:
        for number in range(_PROMPTS):
            group.start_soon(prompt, number)
        for number in range(evaluations):
            hook = rng.choice([train, train, broken])
            group.start_soon(_evaluate, hook, 1_000 + number, rng)
    return Round(samples, folder)


_ARGS = host_args(rollout_batch_size=_PROMPTS)


def _sample(number: int) -> HostSample:
    return HostSample(index=number, prompt=f"Walk {number}.")


async def _evaluate(hook: Hook, number: int, rng: random.Random) -> None:
    """An evaluation that may fail, or be given up half-way."""
    await _wait(rng)
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            if rng.random() < 0.3:
                group.start_soon(_cancel_later, scope, rng)
            try:
                await hook(_ARGS, _sample(number), {}, evaluation=True)
            except FocusError:
                return


async def _cancel_later(scope: anyio.CancelScope, rng: random.Random) -> None:
    await _wait(rng)
    scope.cancel()


async def _wait(rng: random.Random) -> None:
    for _ in range(rng.randrange(60)):
        await anyio.lowlevel.checkpoint()
