"""Text adventures by the package textworld: real games, with a state that copies.

A game is generated, compiled and played on a Z-machine; what counts is whether its quest
was done. `game_env` forks a game in the middle by copying the machine.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from focus._extras import require
from focus.agent import Tool, TurnAction, tool
from focus.agent.episodes import CopiedEnv, Transition
from focus.agent.tool_calls import checked_call
from focus.errors import LifecycleError, ProblemError, ToolError
from focus.problem import Message, Problem

__all__ = ("TextGame", "game_env", "make_game", "make_games")

SYSTEM = "You play a text adventure. Act until the task is done."
REMINDER = "Nothing happens. Use the tool act."
_DICE = 1
"""Seed of the machine's dice; textworld takes 0 for "whatever the clock says"."""
_COMMAND = re.compile(r"[A-Za-z0-9' -]{1,100}")
_MACHINE_WORDS = {"save", "restore", "restart", "quit", "q", "undo", "verify", "version"} | {
    "script",
    "transcript",
    "unscript",
    "noscript",
}
"""Commands to the machine and not to the game: they write files, or end it."""
_STATUS_LINE = re.compile(r"\n>\s*-=[^\n]*=-\s*\d+/\d+\s*$")


@tool
def act(command: str) -> str:
    """Do something in the game.

    Args:
        command: a few words, such as "open box" or "go north".
    """
    words = command.lower().split()
    if not _COMMAND.fullmatch(command) or not words:
        raise ToolError("a command is a few plain words on one line")
    if meta := _MACHINE_WORDS.intersection(words):
        raise ToolError(f"{min(meta)!r} is not part of the game")
    return " ".join(words)


def make_game(
    folder: str | Path, *, seed: int, rooms: int = 2, objects: int = 4, quest: int = 2
) -> Problem:
    """Generate a game into `folder` and give the problem of playing it.

    The same arguments give the same game. A game that is there is not compiled again
    (compiling takes about a second).

    Args:
        folder: where games are kept; made if need be.
        seed: of map, things and quest, > 0.
        rooms, objects: size of the world.
        quest: commands that the shortest solution takes; the problem's metadata has one
            as ``"walkthrough"``.

    Raises:
        ProblemError: a number is below 1.
        MissingExtra: textworld is not installed.
    """
    if min(seed, rooms, objects, quest) < 1:
        raise ProblemError(f"no game with {seed=}, {rooms=}, {objects=}, {quest=}")
    textworld = _textworld()
    name = f"{seed}-{rooms}-{objects}-{quest}"
    options = textworld.GameOptions()
    options.seeds = seed
    options.nb_rooms, options.nb_objects = rooms, objects
    options.quest_length = quest
    options.path = str(Path(folder).resolve() / f"game-{name}.z8")
    Path(folder).mkdir(parents=True, exist_ok=True)
    path, game = textworld.make(options)
    return Problem(
        id=f"textworld-{name}",
        prompt=str(game.objective),
        label=name,
        metadata={"game": path, "walkthrough": list(game.walkthrough)},
    )


def make_games(count: int, folder: str | Path, *, seed: int = 0, **size: int) -> list[Problem]:
    """`count` games of one size; another `seed` gives others.

    Raises:
        ProblemError: `count` is below 1, or as `make_game`.
    """
    if count < 1:
        raise ProblemError(f"no games with {count=}")
    first = 1 + 1_000_000 * seed
    return [make_game(folder, seed=first + number, **size) for number in range(count)]


def game_env() -> CopiedEnv:
    """The environment of games: outcome 1 for a quest that was done, else 0.

    A fork copies machine, memory and dice; nothing of a game is shared but its read-only file.
    """
    return CopiedEnv(TextGame, copy=TextGame.copy, tools=(act,))


class TextGame:
    """One game; an :class:`focus.agent.episodes.Episode`.

    Calls of a turn are acted on in order, until the game is over. Commands to the machine
    (save, restore, quit, …) are refused.
    """

    tools: Sequence[Tool] = (act,)

    def __init__(self, machine: Any = None) -> None:
        self._machine = machine

    def reset(self, problem: Problem) -> Sequence[Message]:
        """Start the game of a problem that `make_game` gave.

        Raises:
            ProblemError: it names no game, or the file is not there.
        """
        path = problem.metadata.get("game")
        if not isinstance(path, str) or not Path(path).is_file():
            raise ProblemError(
                f"problem {problem.id!r}: no game at {path!r}; make it here with make_game"
            )
        textworld = _textworld()
        self._machine = textworld.start(path, textworld.EnvInfos(won=True, lost=True))
        self._machine.seed(_DICE)
        shown, _ = _read(self._machine.reset())
        room = shown[max(0, shown.find("-= ")) :]
        return Message("system", SYSTEM), *problem.messages, Message("user", room)

    def step(self, action: TurnAction) -> Transition:
        if not action.calls:
            return Transition((Message("user", REMINDER),))
        told: list[Message] = []
        for call in action.calls:
            try:
                _, arguments = checked_call({act.name: act}, call, dialect=action.dialect)
                state, _, is_over = self._open.step(act.function(**arguments))
            except ToolError as error:
                told.append(Message("tool", f"error: {error}"))
                continue
            shown, is_won = _read(state)
            told.append(Message("tool", shown))
            if is_over:
                return Transition(reward=float(is_won), done=True)
        return Transition(tuple(told))

    def finish(self, reason: str) -> float:
        """A quest that is not done is worth nothing."""
        return 0.0

    def copy(self) -> TextGame:
        """The same game at the same place, on a machine of its own."""
        return TextGame(self._open.copy())

    def close(self) -> None:
        """Free the machine."""
        machine, self._machine = self._machine, None
        if machine is not None:
            machine.close()

    @property
    def _open(self) -> Any:
        if self._machine is None:
            raise LifecycleError("this game was not started, or is closed")
        return self._machine


def _read(state: Any) -> tuple[str, bool]:
    """What a player reads, without status line and empty lines; and whether the quest is done.

    Empties the state: it holds the game's whole description, which each copy would copy.
    """
    text, is_won = _STATUS_LINE.sub("", state.feedback).strip(), bool(state.won)
    state.clear()
    return "\n".join(line for line in text.split("\n") if line.strip()), is_won


def _textworld() -> Any:
    """The package; its machine warns of every game that no human wrote."""
    jericho = require("jericho.jericho", extra="textworld")
    warnings.filterwarnings("ignore", category=jericho.UnsupportedGameWarning)
    return require("textworld", extra="textworld")
