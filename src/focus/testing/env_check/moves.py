"""What a check lets an environment do: actions, as an agent's parser would make them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from focus.agent import Parser
from focus.errors import ConfigError
from focus.tokens import FinishReason, Generation

__all__ = ("Move", "Moves", "Path")


@dataclass(frozen=True, slots=True, order=True)
class Move:
    """One action by its place in the list, and whether it ends a reply made of segments."""

    index: int
    is_last: bool = False


Path = tuple[Move, ...]
"""The way to a state; it decides every answer of a sound environment."""


class Moves:
    """Actions to choose from.

    Args:
        actions: texts, which `parser` reads as it reads a policy's replies, or actions.
        parser: the agent's.

    Raises:
        ConfigError: there is no action.
    """

    def __init__(self, actions: Sequence[Any], parser: Parser) -> None:
        if not actions:
            raise ConfigError("a check needs at least one action to take")
        self._actions = tuple(actions)
        self._parser = parser
        self._has_segments = parser.kind == "segment"

    def drawn(self, chance: random.Random) -> Move:
        """Any action; with segments one in four ends the reply."""
        index = chance.randrange(len(self._actions))
        is_last = self._has_segments and chance.random() < 0.25
        return Move(index, is_last and isinstance(self._actions[index], str))

    def action(self, path: Path) -> Any:
        """The last action of a path."""
        move = path[-1]
        found = self._actions[move.index]
        if not isinstance(found, str):
            return found
        ends = move.is_last or not self._has_segments
        generation = Generation(
            ids=tuple(found.encode()),
            log_probs=(0.0,) * len(found.encode()),
            finish=FinishReason.STOP if ends else FinishReason.LENGTH,
            version="check",
        )
        return self._parser.action(generation, self._text(path))

    def _text(self, path: Path) -> str:
        if not self._has_segments:
            return str(self._actions[path[-1].index])
        said = (self._actions[move.index] for move in path)
        return "".join(text for text in said if isinstance(text, str))

    def shown(self, move: Move) -> str:
        """A move as a reader sees it."""
        text = repr(self._actions[move.index])
        shown = text if len(text) <= 60 else f"{text[:57]}…"
        return f"{shown}, the end" if move.is_last else shown
