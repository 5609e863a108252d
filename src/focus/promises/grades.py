"""V: verdicts where training grades, hostile answers in bounded time, measured quality."""

from __future__ import annotations

import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.to_thread

from focus.agent import SegmentAction
from focus.errors import FocusError
from focus.problem import Problem
from focus.promises.base import Measured, Stand
from focus.promises.kills import in_fork
from focus.tasks import Grader, MathEnv
from focus.tasks.quality import UNSAFE_FAMILIES, Pair, grading_pairs, measure, wilson
from focus.testing.hostile_answers import hostile_answers

__all__ = ("Bounds", "bounded", "graded_in_training", "quality", "wrong_verdicts")

_WORKERS = 8
_LIMIT_S = 0.5
_MEMORY_MB = 1024


def graded_in_training(stand: Stand) -> Measured:
    """Known pairs through the environment's own steps, in every place that a trainer runs it.

    On an event loop of the main thread, on one of another thread, in a forked process. A
    right answer that scores 0 without an error counts like any other wrong verdict.
    """
    pairs = [pair for pair in grading_pairs() if pair.family not in UNSAFE_FAMILIES]
    pairs = pairs[:: stand.pick(quick=20, full=1)]
    places: dict[str, Callable[[Sequence[Pair]], int]] = {
        "main thread": wrong_verdicts,
        "other thread": _in_thread,
        "forked process": _in_fork,
    }
    wrong: dict[str, int] = {}
    for place, grade in places.items():
        wrong[place] = grade(pairs)
        stand.progress(len(wrong), len(places))
    return Measured(sum(wrong.values()), len(pairs) * len(places), {"wrong": wrong})


def wrong_verdicts(pairs: Sequence[Pair]) -> int:
    """How many of the pairs an environment rewards otherwise than a person would."""
    return anyio.run(_wrong_verdicts, pairs)


async def _wrong_verdicts(pairs: Sequence[Pair]) -> int:
    wrong = 0
    async with Grader() as grader:
        for pair in pairs:
            env = MathEnv(pair.reference, grader=grader)
            state, _ = await env.reset(Problem(id=0, prompt="Solve it.", label=pair.reference))
            action = SegmentAction(ids=(), finished=True, text=pair.text)
            result = await env.step(state, action, None)
            wrong += result.reward != float(pair.right)
    return wrong


def _in_thread(pairs: Sequence[Pair]) -> int:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(wrong_verdicts(pairs)))
    thread.start()
    thread.join()
    return found[0] if found else len(pairs)


def _in_fork(pairs: Sequence[Pair]) -> int:
    def grade() -> None:
        if wrong_verdicts(pairs):
            raise SystemExit(1)

    return 0 if in_fork(grade) == 0 else len(pairs)


@dataclass
class Bounds:
    """What grading hostile answers cost.

    Attributes:
        worst_s: longest verdict.
        unverifiable: answers given up at a limit.
        errors: verdicts that were errors, by type.
    """

    worst_s: float = 0.0
    unverifiable: int = 0
    errors: Counter[str] = field(default_factory=Counter)


def bounded(stand: Stand) -> Measured:
    """Hostile answers to eight workers; seconds past the limit, workers lost, peak memory."""
    answers = dict(hostile_answers(stand.pick(quick=20, full=200)))
    bounds = Bounds()
    started = anyio.run(_grade_all, answers, bounds, stand)
    # Of any process that this one, or a worker of it, has waited for.
    peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    lost = started - _WORKERS
    detail = {
        "limit_s": _LIMIT_S,
        "unverifiable": bounds.unverifiable,
        "errors": dict(bounds.errors),
        "workers_lost": lost,
        "peak_mb": round(peak_mb, 1),
        "cap_mb": _MEMORY_MB,
    }
    if lost or bounds.errors or peak_mb > _MEMORY_MB:
        raise RuntimeError(f"hostile answers cost workers, memory or verdicts: {detail}")
    return Measured(max(0.0, bounds.worst_s - _LIMIT_S), len(answers), detail)


async def _grade_all(answers: dict[str, str], bounds: Bounds, stand: Stand) -> int:
    """Eight answers at a time; returns how many processes were started for them."""
    grader = Grader(workers=_WORKERS, deadline_s=_LIMIT_S, memory_mb=_MEMORY_MB)
    todo = iter(answers.items())
    done = 0

    async def warm(number: int) -> None:
        await grader.check(str(number + 2))

    async def work() -> None:
        nonlocal done
        for _, text in todo:
            await _grade(grader, text, bounds)
            done += 1
            stand.progress(done, len(answers))

    async with grader:
        async with anyio.create_task_group() as group:
            for number in range(_WORKERS):
                group.start_soon(warm, number)
        async with anyio.create_task_group() as group:
            for _ in range(_WORKERS):
                group.start_soon(work)
        return max(grader.counts.started, _WORKERS)


async def _grade(grader: Grader, text: str, bounds: Bounds) -> None:
    began = time.monotonic()
    try:
        verdict = await grader.verdict(text, "2")
    except FocusError as error:
        bounds.errors[type(error).__name__] += 1
    else:
        bounds.unverifiable += verdict.unverifiable
    bounds.worst_s = max(bounds.worst_s, time.monotonic() - began)


def quality(stand: Stand) -> Measured:
    """The table of hand-checked pairs; counts wrong verdicts in families declared safe."""
    pairs = grading_pairs()

    async def grade() -> Any:
        async with Grader(workers=2) as grader:
            return await measure(grader.grade, pairs)

    rows = anyio.run(grade)
    families = {
        row.family: {
            "pairs": row.right + row.wrong,
            "false_positives": row.false_positives,
            "false_positives_95": _interval(row.false_positives, row.wrong),
            "false_negatives": row.false_negatives,
            "false_negatives_95": _interval(row.false_negatives, row.right),
            "declared_safe": row.family not in UNSAFE_FAMILIES,
        }
        for row in rows
    }
    safe = [row for row in rows if row.family not in UNSAFE_FAMILIES]
    wrong = sum(row.false_positives + row.false_negatives for row in safe)
    return Measured(wrong, sum(row.right + row.wrong for row in safe), {"families": families})


def _interval(hits: int, trials: int) -> list[float]:
    return [round(end, 4) for end in wilson(hits, trials)]
