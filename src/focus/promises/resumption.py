"""E2: a real training run that crashes at every step, at every step after that, and so on."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from focus.promises.base import Measured, Stand
from focus.promises.lives import Crash, Fuse, disagreements, live, tiny

__all__ = ("STEPS", "histories", "resumed")

STEPS = (
    "collect",  # issued, a tree stored
    "update_critic",  # collected
    "update_actor",
    "publish",
    "save",  # the checkpoint half written
    "optimizer_steps",  # checkpoint and mark written, the round not applied
    "applied",
)
"""Where a round can be cut, by the call that it makes there."""


def resumed(stand: Stand) -> Measured:
    """All ways to spend up to 8 (12) steps in lives that each end in a crash.

    Every history is then finished by a last life, and model, ledger, sink and metrics must
    name the same rounds, each once.
    """
    depth = stand.pick(quick=8, full=12)
    states, wrong = 0, Counter[str]()
    broken: list[str] = []
    for history, found in histories(stand.folder, depth):
        states += 1
        wrong.update(found)
        broken += [".".join(map(str, history))] if found else []
        stand.progress(states, 2**depth - 1)
    detail = {"depth": depth, "broken_histories": broken[:10], "disagreements": dict(wrong)}
    return Measured(wrong.total(), states, detail)


def histories(folder: Path, depth: int) -> Iterator[tuple[tuple[int, ...], list[str]]]:
    """Each sequence of life lengths with at most `depth` steps, and what went wrong in it.

    (2, 3): the first life crashed in its second step, the next one in its third, and the
    last one finished.
    """
    settings = tiny(rounds=2)
    stack: list[tuple[tuple[int, ...], Path]] = [((), folder / "begun")]
    while stack:
        lives, before = stack.pop()
        for steps in range(1, depth - sum(lives) + 1):
            history = (*lives, steps)
            after = folder / ".".join(map(str, history))
            if before.exists():
                shutil.copytree(before, after)
            try:
                live(after, Fuse(steps, only=STEPS), settings=settings)
            except Crash:
                stack.append((history, after))
            else:
                shutil.rmtree(after)
                break  # fewer steps were left than this life could take
        if lives:
            live(before, Fuse(), settings=settings)
            yield lives, disagreements(before, rounds=2)
            shutil.rmtree(before)
