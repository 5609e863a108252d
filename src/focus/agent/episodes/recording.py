"""What an episode was asked and a digest of what it answered: enough to make it again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from focus.agent.episodes.episode import Episode, Transition
from focus.agent.episodes.plain import (
    decode_action,
    digest,
    encode_action,
    encode_messages,
    encode_transition,
)
from focus.errors import EnvError, NondeterminismError, RecordError
from focus.problem import Message, Problem
from focus.records.codec import decode_problem, encode_problem
from focus.records.strict_json import Fields

__all__ = ("Recording", "begin", "close_episode")


@dataclass(frozen=True, slots=True)
class Recording:
    """The way to one state, from the first message.

    Attributes:
        problem: what the episode was reset with.
        opening: digest of its first messages.
        moves: each action with the digest of its answer.
    """

    problem: Problem
    opening: str
    moves: tuple[tuple[Any, str], ...] = ()

    def then(self, action: Any, answer: Transition) -> Recording:
        """The way one action further.

        Raises:
            EnvError: the answer holds what no JSON can, such as a reward that is not finite.
        """
        try:
            told = digest(encode_transition(answer))
        except RecordError as error:
            raise EnvError(f"an episode answered {answer!r}: {error}") from error
        return replace(self, moves=(*self.moves, (action, told)))

    def play(self, make: Callable[[], Episode]) -> Episode:
        """A new episode at the end of the way.

        Raises:
            NondeterminismError: it answered otherwise than when it was recorded.
        """
        episode = make()
        try:
            self._compare(self.opening, _told(episode.reset(self.problem)), "reset")
            for number, (action, told) in enumerate(self.moves, start=1):
                answer = digest(encode_transition(episode.step(action)))
                self._compare(told, answer, f"step {number} of {len(self.moves)}")
        except BaseException:
            close_episode(episode)
            raise
        return episode

    def _compare(self, told: str, answer: str, where: str) -> None:
        if told != answer:
            raise NondeterminismError(
                f"problem {self.problem.id!r}: made again, the episode answers {where} otherwise "
                "than the first time, so it cannot be had back from its actions; seed every source "
                "of chance in reset(), or fork it by copy, directory or process"
            )

    def to_plain(self) -> dict[str, Any]:
        """As JSON, for a journal.

        Raises:
            RecordError: the problem or an action would not come back equal.
        """
        return {
            "problem": encode_problem(self.problem),
            "opening": self.opening,
            "moves": [[encode_action(action), told] for action, told in self.moves],
        }

    @classmethod
    def from_plain(cls, value: Any) -> Recording:
        """Inverse of `to_plain`.

        Raises:
            SchemaError: another shape or type.
        """
        fields = Fields(value, where="recording")
        problem, opening = decode_problem(fields.raw("problem")), fields.text("opening")
        moves = tuple((decode_action(move[0]), str(move[1])) for move in fields.items("moves"))
        fields.done()
        return cls(problem, opening, moves)


def begin(episode: Episode, problem: Problem) -> tuple[Recording, tuple[Message, ...]]:
    """Reset an episode and begin to record it."""
    messages = tuple(episode.reset(problem))
    return Recording(problem, _told(messages)), messages


def close_episode(episode: Episode) -> None:
    """Let go of what an episode holds, if it says how."""
    close = getattr(episode, "close", None)
    if close is not None:
        close()


def _told(messages: Sequence[Message]) -> str:
    return digest(encode_messages(messages))
