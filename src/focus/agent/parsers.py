"""How a reply becomes an action."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from focus._values import filled
from focus.agent.env import SegmentAction
from focus.errors import ConfigError
from focus.tokens import FinishReason, Generation

__all__ = ("Parser", "Segments")

_action = filled(SegmentAction)


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

    def tokens_from(self, position: int) -> int | None:
        """Most ids of a request that continues `position` ids; at most `request_tokens`."""
        ...

    def action(self, generation: Generation, text: str) -> Any:
        """The action for the environment; `text` is the whole reply so far."""
        ...


@dataclass(frozen=True)
class Segments:
    """Each reply is an exact chunk of at most `tokens` ids of one solution.

    "stop" completes the solution, "length" makes another checkpoint.

    A server whose prefix cache holds whole pages computes what lies behind the last page again
    for each branch, and the last id in any case. With `page` a segment is cut shorter where
    that makes the context end one id behind a page, so a branch costs that one id.

    Args:
        tokens: most ids of a segment.
        page: ids of a page of the server's prefix cache, at most `tokens`; None cuts at
            `tokens`.

    Raises:
        ConfigError: `tokens` is below 1, or `page` is not in 1 … `tokens`.

    >>> paged = Segments(64, page=16)
    >>> [paged.tokens_from(position) for position in (40, 97, 161)]
    [57, 64, 64]
    """

    tokens: int
    page: int | None = None

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise ConfigError(f"a segment needs at least one token, got {self.tokens}")
        if self.page is not None and not 1 <= self.page <= self.tokens:
            raise ConfigError(
                f"page must be in 1 ... {self.tokens}, the tokens of a segment, got {self.page}"
            )

    @property
    def kind(self) -> str:
        return "segment"

    @property
    def duration(self) -> int:
        return 0

    @property
    def request_tokens(self) -> int:
        return self.tokens

    def tokens_from(self, position: int) -> int:
        """Most ids of a segment that starts behind `position` ids."""
        return self.tokens - (position + self.tokens - 1) % (self.page or 1)

    def action(self, generation: Generation, text: str) -> SegmentAction:
        finished = generation.finish is FinishReason.STOP
        return _action(generation.ids, finished, text)
