"""How a reply becomes an action."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from focus.agent.env import SegmentAction
from focus.errors import ConfigError
from focus.tokens import FinishReason, Generation

__all__ = ("Parser", "Segments")


class Parser(Protocol):
    """Reads one accepted reply.

    Attributes:
        kind: edge kind it produces.
        duration: env transitions that discounting counts per edge.
        request_tokens: most ids one request may return; None leaves it to the sampling.
    """

    @property
    def kind(self) -> str: ...
    @property
    def duration(self) -> int: ...
    @property
    def request_tokens(self) -> int | None: ...

    def action(self, generation: Generation, text: str) -> Any:
        """The action for the environment; `text` is the whole reply so far."""
        ...


@dataclass(frozen=True)
class Segments:
    """Each reply is an exact chunk of at most `tokens` ids of one solution.

    "stop" completes the solution, "length" makes another checkpoint.

    Raises:
        ConfigError: `tokens` is below 1.
    """

    tokens: int

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise ConfigError(f"a segment needs at least one token, got {self.tokens}")

    @property
    def kind(self) -> str:
        return "segment"

    @property
    def duration(self) -> int:
        return 0

    @property
    def request_tokens(self) -> int:
        return self.tokens

    def action(self, generation: Generation, text: str) -> SegmentAction:
        finished = generation.finish is FinishReason.STOP
        return SegmentAction(ids=generation.ids, finished=finished, text=text)
