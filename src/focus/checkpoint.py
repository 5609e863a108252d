"""Where an agent stands: its context, environment state, workspace and remaining allowance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from focus._values import filled
from focus.errors import ConfigError
from focus.tokens import TokenChain

__all__ = ("Allowance", "Checkpoint", "Fold")


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """Sampled tokens and turns left from here to the leaf; ``None`` is no limit.

    A forked child inherits what remains, never a fresh allowance.

    >>> Allowance(tokens=10).after(tokens=4)
    Allowance(tokens=6, turns=None)
    """

    tokens: int | None = None
    turns: int | None = None

    def __post_init__(self) -> None:
        if self.tokens is not None and self.tokens < 0:
            raise ConfigError(f"allowance: tokens must be >= 0, got {self.tokens}")
        if self.turns is not None and self.turns < 0:
            raise ConfigError(f"allowance: turns must be >= 0, got {self.turns}")

    def after(self, *, tokens: int = 0, turns: int = 0) -> Allowance:
        """What is left once `tokens` and `turns` are used; never below zero."""
        return _allowance(
            tokens=None if self.tokens is None else max(0, self.tokens - tokens),
            turns=None if self.turns is None else max(0, self.turns - turns),
        )

    @property
    def is_spent(self) -> bool:
        return self.tokens == 0 or self.turns == 0


_allowance = filled(Allowance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """A fold under way: the policy has been asked for notes that will replace its context.

    Attributes:
        calls_answered: replies with tool calls so far.
        repairs: notes that were refused so far.
    """

    calls_answered: int = 0
    repairs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One agent's position in a problem; a node of the tree carries one.

    Attributes:
        context: every token the policy is conditioned on next.
        prompt_length: how many of them precede the reply that is being written: the
            prompt, and once the reply before was answered everything up to its answer.
        state: the environment's own immutable state.
        allowance: what is left to the leaf.
        workspace: forkable files, or None.
        fold: set while the next reply is notes for a fold.
    """

    context: TokenChain
    prompt_length: int
    state: Any
    allowance: Allowance
    workspace: Any = None
    fold: Fold | None = None
