"""Folding a long context: when, how the policy is asked for notes, and which notes count."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from focus.checkpoint import Checkpoint
from focus.errors import ConfigError
from focus.rendering import Reading

__all__ = ("AnyOf", "Compactor", "PromptTokens", "StateCounter", "Trigger", "Verdict")

INSTRUCTION = (
    "This conversation will now be cut: only the task and your next message stay. Write down "
    "everything you need to go on: what was asked, what you found and where, what is left to do."
)
RESUME = "Go on from your notes above."
NO_MORE_CALLS = "No more calls now: write your notes."
_FENCE = re.compile(r"```\w*\n.*\n```", re.DOTALL)


class Trigger(Protocol):
    """Decides whether the next reply is notes for a fold."""

    def fires(self, checkpoint: Checkpoint) -> bool:
        """Whether to fold before the next turn; `checkpoint` holds its whole prompt."""
        ...

    def relieved(self, state: Any) -> Any:
        """The environment's state after a fold."""
        ...


@dataclass(frozen=True)
class PromptTokens:
    """Fires when the prompt of the next turn is longer than `limit` tokens.

    Raises:
        ConfigError: `limit` is below 1.
    """

    limit: int = 8192

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise ConfigError(f"PromptTokens needs a limit >= 1, got {self.limit}")

    def fires(self, checkpoint: Checkpoint) -> bool:
        return len(checkpoint.context) > self.limit

    def relieved(self, state: Any) -> Any:
        return state


@dataclass(frozen=True)
class StateCounter:
    """Fires when a number in the environment's state is used up; a fold refills it.

    Attributes:
        name: field of the state, a frozen dataclass; e.g. ``"calls_left"`` of a ToolEnv.
        refill: its value after a fold.

    Raises:
        ConfigError: `refill` is below 1, which would fire again at once.
    """

    name: str
    refill: int

    def __post_init__(self) -> None:
        if self.refill < 1:
            raise ConfigError(f"StateCounter needs a refill >= 1, got {self.refill}")

    def fires(self, checkpoint: Checkpoint) -> bool:
        value = getattr(checkpoint.state, self.name, None)
        if not isinstance(value, int):
            raise ConfigError(
                f"StateCounter({self.name!r}): the state {checkpoint.state!r} counts no such thing"
            )
        return value <= 0

    def relieved(self, state: Any) -> Any:
        if not dataclasses.is_dataclass(state) or isinstance(state, type):
            raise ConfigError(f"StateCounter({self.name!r}) cannot refill {state!r}")
        return dataclasses.replace(state, **{self.name: self.refill})


@dataclass(frozen=True)
class AnyOf:
    """Fires when one of its triggers does; a fold relieves all of them."""

    triggers: Sequence[Trigger]

    def __post_init__(self) -> None:
        object.__setattr__(self, "triggers", tuple(self.triggers))
        if not self.triggers:
            raise ConfigError("AnyOf needs at least one trigger")

    def fires(self, checkpoint: Checkpoint) -> bool:
        return any(trigger.fires(checkpoint) for trigger in self.triggers)

    def relieved(self, state: Any) -> Any:
        for trigger in self.triggers:
            state = trigger.relieved(state)
        return state


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether notes are taken.

    Attributes:
        issue: what is wrong with them, for the policy; "" when they are taken.
        penalty: taken off the edge's step reward, >= 0.
    """

    issue: str = ""
    penalty: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Compactor:
    """How a context is folded.

    When the trigger fires, the policy itself is asked for notes, under the tree's one
    sampling law. Its reply is an edge of kind ``"fold"``, trained like any other. After it
    the context is the prompt, then the notes as they were sampled, id by id, then `resume`:
    nothing is encoded again (docs/decisions/0007). With tools in the workspace the policy
    may use them first.

    Notes that are empty, cut off or lack a section are refused: the policy reads why and
    may mend them; when its repairs are used up the episode ends there, truncated.

    Attributes:
        trigger: when; checked before every turn but the one right after a fold.
        instruction: how notes are asked for.
        resume: what follows the notes in the new context.
        sections: headings that the notes must have, each with text below it.
        most_calls: replies with workspace calls before the notes.
        repairs: refused notes that may be mended.
        reply_tokens: most ids of one reply in a fold; None leaves it to the sampling.
        malformed_penalty: for refused notes.
        wrapped_penalty: for notes inside a code fence, which are taken.

    Raises:
        ConfigError: a number is out of range.
    """

    trigger: Trigger
    instruction: str = INSTRUCTION
    resume: str = RESUME
    sections: Sequence[str] = ()
    most_calls: int = 8
    repairs: int = 1
    reply_tokens: int | None = 2048
    malformed_penalty: float = 0.01
    wrapped_penalty: float = 0.002

    def __post_init__(self) -> None:
        object.__setattr__(self, "sections", tuple(self.sections))
        if min(self.most_calls, self.repairs) < 0:
            raise ConfigError("a fold's most_calls and repairs must be >= 0")
        if self.reply_tokens is not None and self.reply_tokens < 1:
            raise ConfigError(f"reply_tokens must be >= 1, got {self.reply_tokens}")
        if min(self.malformed_penalty, self.wrapped_penalty) < 0:
            raise ConfigError("a penalty is a number >= 0 that is taken off")

    def judge(self, reading: Reading, *, closed: bool) -> Verdict:
        """Whether these notes are taken.

        >>> Compactor(trigger=PromptTokens(100)).judge(Reading("the key is 7"), closed=True)
        Verdict(issue='', penalty=0.0)
        """
        issue = self._issue(reading, closed)
        if issue:
            return Verdict(issue, self.malformed_penalty)
        is_wrapped = _FENCE.fullmatch(reading.text) is not None
        return Verdict(penalty=self.wrapped_penalty if is_wrapped else 0.0)

    def _issue(self, reading: Reading, closed: bool) -> str:
        if not closed:
            return "they were cut off; write shorter notes"
        if reading.calls:
            return "they hold a tool call; write text only"
        if reading.is_thinking:
            return "the reasoning before them was not closed"
        if not reading.text:
            return "they are empty"
        missing = [name for name in self.sections if not _has_section(reading.text, name)]
        return f"sections without text: {', '.join(missing)}" if missing else ""


def _has_section(text: str, name: str) -> bool:
    heading = re.search(rf"^#*[ ]*{re.escape(name)}:?[ ]*(.*)$", text, re.MULTILINE)
    if heading is None:
        return False
    below = text[heading.end() :].lstrip("\n").partition("\n")[0]
    return bool(heading.group(1).strip() or (below.strip() and not below.startswith("#")))
