"""One mutable episode: what most existing environments are, and what a kind makes forkable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from focus.agent.env import StepResult
from focus.problem import Message, Problem

__all__ = ("Episode", "Transition")


@dataclass(frozen=True, slots=True)
class Transition:
    """What an episode answers to one action; the episode itself is the next state.

    Attributes:
        messages, reward, step_reward, done: as in :class:`focus.agent.StepResult`.

    >>> Transition(done=True, reward=1.0).at("the end").state
    'the end'
    """

    messages: tuple[Message, ...] = ()
    reward: float = 0.0
    step_reward: float = 0.0
    done: bool = False

    def at(self, state: Any) -> StepResult:
        """The environment's answer, `state` being where the episode stands now."""
        return StepResult(state, self.messages, self.reward, self.step_reward, self.done)


class Episode(Protocol):
    """A game, a simulator, a session: an object that changes when it is stepped.

    Plain blocking methods, called one at a time and never on the event loop. An episode
    that holds something outside itself also has ``close()``, called once.
    """

    def reset(self, problem: Problem) -> Sequence[Message]:
        """Begin; what the policy is told. Called once, first."""
        ...

    def step(self, action: Any) -> Transition:
        """Take one action."""
        ...

    def finish(self, reason: str) -> float:
        """Outcome of an episode that ran out of allowance or context; changes nothing."""
        ...
