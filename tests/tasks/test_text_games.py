"""Text adventures: real games that fork in the middle; the machine's own commands are refused."""

from pathlib import Path
from typing import Any

import pytest

from focus.agent import TurnAction, Turns
from focus.agent.episodes import Transition
from focus.errors import LifecycleError, ProblemError
from focus.problem import Problem
from focus.rendering import Call, dialect_named
from focus.tasks.text_games import TextGame, game_env, make_game, make_games
from focus.testing.env_check import check_env

pytestmark = pytest.mark.xdist_group("textworld")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("games")


@pytest.fixture(scope="module")
def problem(folder: Path) -> Problem:
    return make_game(folder, seed=1, rooms=2, objects=4, quest=3)


def turn(*commands: str) -> TurnAction:
    return TurnAction("", tuple(Call("act", {"command": command}) for command in commands))


def told(answer: Transition) -> list[str]:
    return [message.content for message in answer.messages]


def started(problem: Problem) -> TextGame:
    game = TextGame()
    game.reset(problem)
    return game


def test_a_game_is_won_by_its_walkthrough_and_by_nothing_less(problem: Problem) -> None:
    game = started(problem)
    *before, last = problem.metadata["walkthrough"]
    for command in before:
        assert not game.step(turn(command)).done
    assert game.finish("allowance") == 0.0
    assert game.step(turn(last, "look")) == Transition(reward=1.0, done=True)
    game.close()


def test_equal_arguments_give_the_equal_game_and_do_not_compile_it_again(
    folder: Path, problem: Problem
) -> None:
    path = Path(problem.metadata["game"])
    stamp = path.stat().st_mtime_ns
    assert make_game(folder, seed=1, rooms=2, objects=4, quest=3) == problem
    assert path.stat().st_mtime_ns == stamp


def test_a_copy_goes_its_own_way(problem: Problem) -> None:
    one = started(problem)
    other = one.copy()
    first, *rest = problem.metadata["walkthrough"]
    away = told(one.step(turn(first)))
    one.close()
    assert away == told(other.step(turn(first)))
    assert [other.step(turn(command)).reward for command in rest] == [0.0, 1.0]
    with pytest.raises(LifecycleError, match="closed"):
        one.step(turn("look"))


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("save", "'save' is not part of the game"),
        ("look then restore", "'restore' is not part of the game"),
        ("QUIT", "'quit' is not part of the game"),
        ("look. save", "a few plain words"),
        ("look\nsave", "a few plain words"),
        ("öffne box", "a few plain words"),
        ("a" * 101, "a few plain words"),
        ("  ", "a few plain words"),
    ],
)
def test_commands_to_the_machine_are_refused(problem: Problem, command: str, answer: str) -> None:
    game = started(problem)
    before = told(game.step(turn("look")))
    [text] = told(game.step(turn(command)))
    assert text.startswith("error: ")
    assert answer in text
    assert told(game.step(turn("look"))) == before
    game.close()


def test_calls_that_cannot_be_served_are_answered_and_cost_no_move(problem: Problem) -> None:
    game = started(problem)
    calls = (Call("fly", {}), Call("", {}, fault="no name"), Call("act", {"command": 3}))
    answers = told(game.step(TurnAction("", calls)))
    assert [text.split(":")[0] for text in answers] == ["error"] * 3
    assert told(game.step(TurnAction("hm"))) == ["Nothing happens. Use the tool act."]
    game.close()


def test_the_environment_of_games_forks_as_a_tree_needs_it(problem: Problem) -> None:
    write = dialect_named("hermes").write
    commands = ["look", "save", *problem.metadata["walkthrough"]]
    actions: list[Any] = [write("act", {"command": command}) for command in commands]
    report = check_env(
        game_env, problem=problem, actions=[*actions, "hm"], parser=Turns("hermes"), sequences=2
    )
    assert report.ok, report


def test_what_is_no_game_is_named(folder: Path) -> None:
    with pytest.raises(ProblemError, match="no game at None"):
        TextGame().reset(Problem(id=1, prompt="Play."))
    with pytest.raises(ProblemError, match="no games with count=0"):
        make_games(0, folder)
    with pytest.raises(ProblemError, match="quest=0"):
        make_game(folder, seed=1, quest=0)
