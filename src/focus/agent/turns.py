"""The parser of agents with tools: a reply is a message with calls."""

from __future__ import annotations

from dataclasses import dataclass, replace

from focus.errors import ConfigError
from focus.rendering import Call, Dialect, Reading, dialect_named
from focus.tokens import FinishReason, Generation

__all__ = ("TurnAction", "Turns")

LAST_TURN = "This is your last turn. Give your answer now; no other tool will be run."


@dataclass(frozen=True, slots=True)
class TurnAction:
    """What the policy did: one message.

    Attributes:
        text: what it says beside reasoning and calls.
        calls: its tool calls in order; one with a fault could not be decoded.
        reasoning: what it thought before.
        is_last: no turn is left after this one.
        finished: the policy ended its message; a message that was cut off by a token limit
            never reaches an environment before it is whole.
        dialect: name of the dialect it was read in.
    """

    text: str
    calls: tuple[Call, ...] = ()
    reasoning: str = ""
    is_last: bool = False
    finished: bool = True
    dialect: str = "hermes"


@dataclass(frozen=True)
class Turns:
    """Each reply is one message; the environment answers its tool calls.

    A reply cut off by a token limit becomes an edge of its own and is continued by the next
    one; nothing of it is executed before it is whole.

    Attributes:
        dialect: how calls are written: ``"hermes"`` or ``"qwen_xml"``.
        tokens: most ids per request; None leaves it to the sampling.
        last_turn: said before the last turn of an allowance of turns; None says nothing.

    Raises:
        ConfigError: no such dialect, or `tokens` is below 1.

    >>> Turns("hermes").kind
    'turn'
    """

    dialect: str = "hermes"
    tokens: int | None = None
    last_turn: str | None = LAST_TURN

    def __post_init__(self) -> None:
        dialect_named(self.dialect)
        if self.tokens is not None and self.tokens < 1:
            raise ConfigError(f"a turn needs at least one token, got {self.tokens}")

    @property
    def kind(self) -> str:
        return "turn"

    @property
    def duration(self) -> int:
        return 1

    @property
    def request_tokens(self) -> int | None:
        return self.tokens

    def tokens_from(self, position: int) -> int | None:
        """As `request_tokens`, wherever the reply starts."""
        return self.tokens

    def read(self, text: str) -> Reading:
        """A whole reply taken apart."""
        reader: Dialect = dialect_named(self.dialect)
        return reader.read(text)

    def action(self, generation: Generation, text: str) -> TurnAction:
        """The message; `text` is the whole reply, without the token that ended it."""
        if generation.finish is not FinishReason.STOP:
            return TurnAction(text, finished=False, dialect=self.dialect)
        reading = self.read(text)
        return TurnAction(reading.text, reading.calls, reading.reasoning, dialect=self.dialect)

    def last(self, action: TurnAction) -> TurnAction:
        """The same action, marked as the last one there is a turn for."""
        return replace(action, is_last=True)
