"""The tabular games: the same searches and estimators, with the true gradient at hand."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from bench.learning.tabular.game import Game
from bench.learning.tasks.family import Family

from focus.agent import SegmentAction, StepResult
from focus.problem import Message, Problem
from focus.tasks.arithmetic import Split
from focus.tasks.registry import Task

__all__ = ("GAMES", "GameEnv")

RULES = Game()


class GameEnv:
    """One game: succeeds or fails at its last step."""

    def __init__(self, game: Game, place: int) -> None:
        self.game = game
        self.place = place

    async def reset(self, problem: Problem) -> tuple[str, tuple[Message, ...]]:
        return "", problem.messages

    async def step(self, state: str, action: SegmentAction, workspace: Any) -> StepResult:
        played = tuple(map(int, action.text))
        done = len(played) == self.game.horizon
        return StepResult(action.text, reward=self._outcome(played) if done else 0.0, done=done)

    async def finish(self, state: str, workspace: Any, reason: str) -> float:
        return 0.0

    def _outcome(self, played: tuple[int, ...]) -> float:
        return float(self.game.wrong_after(self.place, played) <= self.game.slack)


def _task(name: str, game: Game) -> Task:
    def draw(split: Split, count: int, seed: int) -> tuple[Problem, ...]:
        places = [(seed + number) % game.games for number in range(count)]
        return tuple(
            Problem(id=f"{place}-{number}", prompt=str(place), label=place)
            for number, place in enumerate(places)
        )

    return Task(
        name=name,
        segment_tokens=game.segment,
        allowance_tokens=game.horizon,
        draw=draw,
        make_env=lambda problem: GameEnv(game, int(str(problem.label))),
    )


_RULES = {
    "tabular": RULES,
    "tabular-repair": replace(RULES, repair=True, slack=0),
    "tabular-strict": replace(RULES, slack=0, start=0.85),
    "tabular-exact": replace(RULES, exact_critic=True),
}
GAMES = {
    name: Family(make_task=partial(_task, name, game), start="", game=game)
    for name, game in _RULES.items()
}
