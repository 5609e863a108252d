"""Episodes without a model: a tape that tells, at each step, all that it has heard.

One slip between two branches and their tapes differ for good, so every isolation break shows.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from focus.agent.episodes import Transition
from focus.problem import Message, Problem

__all__ = ("FolderTape", "Tape", "heard")


def heard(action: Any) -> str:
    """The text of an action: of a segment or turn, or a plain text."""
    return action if isinstance(action, str) else str(action.text)


class Tape:
    """Hears actions, says them back with a die; "stop" ends it, worth the share of "+".

    The die is the episode's own, so a fork that copies all of it rolls the same.
    """

    def __init__(self, *, seed: int = 0) -> None:
        self.words: list[str] = []
        self.die = random.Random(seed)

    def reset(self, problem: Problem) -> Sequence[Message]:
        self.words.append(str(problem.id))
        return problem.messages

    def step(self, action: Any) -> Transition:
        word = heard(action)
        self.words.append(word)
        if word.endswith("stop"):
            return Transition(done=True, reward=self.finish("stop"))
        told = f"{self.die.randrange(6)}: {' '.join(self.words)}"
        return Transition((Message("user", told),), step_reward=0.0)

    def finish(self, reason: str) -> float:
        said = "".join(self.words[1:])
        return said.count("+") / max(1, len(said))


class FolderTape:
    """The same with all of it in a folder: words in one file, the die's seed in another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def _words(self) -> list[str]:
        return (self.folder / "words").read_text(encoding="utf-8").split("\n")

    def reset(self, problem: Problem) -> Sequence[Message]:
        (self.folder / "words").write_text(str(problem.id), encoding="utf-8")
        return problem.messages

    def step(self, action: Any) -> Transition:
        word = heard(action)
        with open(self.folder / "words", "a", encoding="utf-8") as file:
            file.write(f"\n{word}")
        if word.endswith("stop"):
            return Transition(done=True, reward=self.finish("stop"))
        words = self._words
        told = f"{random.Random(len(words)).randrange(6)}: {' '.join(words)}"
        return Transition((Message("user", told),))

    def finish(self, reason: str) -> float:
        said = "".join(self._words[1:])
        return said.count("+") / max(1, len(said))
