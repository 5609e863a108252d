"""A chat program as an environment that forks by replay."""

from __future__ import annotations

import math
from typing import Any

from focus.agent import StepResult
from focus.agent.episodes import ReplayedEnv
from focus.agent.episodes.replayed import ReplayedState
from focus.errors import ConfigError, EnvError
from focus.integrations.chat.episode import ChatEpisode, Grade, Program
from focus.problem import Message, Problem

__all__ = ("ChatEnv",)


def _as_returned(result: Any, problem: Problem) -> float:
    """The program's result is the outcome.

    Raises:
        EnvError: it is no number.
    """
    if isinstance(result, bool | int | float) and math.isfinite(result):
        return float(result)
    raise EnvError(
        f"problem {problem.id!r}: the program returned {result!r:.80}, which is no outcome; give "
        "ChatEnv(grade=...) to make one of it"
    )


class ChatEnv(ReplayedEnv):
    """An agent program, written for a chat API, in which the policy plays the model.

    ``program(client, problem)`` asks ``client.chat.completions.create(messages=…, tools=…)``
    as often as it likes, runs its tools itself, and returns what `grade` makes an outcome
    of. It runs unchanged, in a thread of its own, from one request to the next: the messages
    of its first request are the prompt, those that each later request adds are
    observations, exact ids between them.

    A running program cannot be copied, so a second branch starts it again and plays it the
    replies of the way there; every message is compared with the first time. A program that
    then says otherwise is refused (`NondeterminismError`), and one that acts on the world
    acts again: with ``replay=False`` a second branch from the middle is refused instead, and
    rollouts from the start remain (``Search.flat``).

    Refused as well, with the reason (`EnvError`): requests that change what was said
    before, several conversations at once, streaming, images. Sampling settings of the
    program are read over.

    Args:
        program: sync or async; called once per episode.
        grade: outcome of what it returned; by default that itself.
        unfinished: outcome when allowance or context runs out.
        replay: make a second branch from the middle by playing the program again.
        patience_s: most seconds from a reply to the program's next request.
        threads: programs that are waited for at once.

    Raises:
        ConfigError: patience is not positive.
    """

    def __init__(
        self,
        program: Program,
        *,
        grade: Grade = _as_returned,
        unfinished: float = 0.0,
        replay: bool = True,
        patience_s: float = 60.0,
        threads: int = 8,
    ) -> None:
        if not (math.isfinite(patience_s) and patience_s > 0):
            raise ConfigError(f"patience_s must be positive and finite, got {patience_s}")

        def episode() -> ChatEpisode:
            return ChatEpisode(program, grade=grade, unfinished=unfinished, patience_s=patience_s)

        super().__init__(episode, threads=threads)
        self._unfinished = unfinished
        self._replay = replay

    async def reset(self, problem: Problem) -> tuple[ReplayedState, tuple[Message, ...]]:
        state, messages = await super().reset(problem)
        assert isinstance(state.episode, ChatEpisode)
        self.tools = state.episode.tools
        return state, messages

    async def step(self, state: ReplayedState, action: Any, workspace: object) -> StepResult:
        """Give the program a reply.

        Raises:
            NondeterminismError: it was played again and said otherwise.
            EnvError: it raised, is silent for too long or asks for what cannot be served;
                or it would have to be played again and may not.
        """
        if not self._replay and state.episode is None and state.way.moves:
            raise EnvError(
                "this program may not be played again (replay=False), so no second branch can "
                "start from a state that another went on from"
            )
        return await super().step(state, action, workspace)

    async def finish(self, state: ReplayedState, workspace: object, reason: str) -> float:
        """The same for every state: nothing is played for it."""
        return self._unfinished
