"""R1 to R4, A4: the rows are kept, and the checker that judges them finds each planted fault."""

from __future__ import annotations

import ast
import copy
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from focus.promises import outside
from focus.promises.base import Row
from focus.promises.gauntlet import Gauntlet, checked, run
from focus.testing.chaos import Mix, fault_named
from focus.testing.chaos.plans import Alone

OUTSIDE = Path(outside.__file__).parent


@pytest.mark.timeout(3700)
@pytest.mark.parametrize("row", ["R1", "R2", "R3", "R4", "A4"])
def test_the_promise_is_kept(row: str, kept: Callable[[str], Row]) -> None:
    kept(row)


def test_the_checker_imports_nothing_but_the_standard_library() -> None:
    for path in OUTSIDE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            else:
                continue
            assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names, path


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export under faults that the checker has nothing to say about."""
    folder = tmp_path_factory.mktemp("export")
    plan = Mix(seed=2, fatal=0.0)
    anyio.run(partial(run, Gauntlet(plan=plan, trees=4, seed=2, part_faults=0.01), folder))
    verdict = checked(folder)
    assert verdict["findings"] == []
    assert verdict["trained"]["samples"] > 20
    return folder


Line = dict[str, Any]
Change = Callable[[Line, list[Line]], None]


def lines_of(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def spoiled(honest: Path, folder: Path, change: Change) -> dict[str, Any]:
    """The verdict on a copy in which `change` altered the largest tree or the server's books."""
    trees, server = lines_of(honest / "trees.jsonl"), lines_of(honest / "server.jsonl")
    change(max(trees, key=lambda tree: len(tree["actor"])), server)
    (folder / "trees.jsonl").write_text("".join(json.dumps(line) + "\n" for line in trees))
    (folder / "server.jsonl").write_text("".join(json.dumps(line) + "\n" for line in server))
    return checked(folder)


def sample(tree: Line, place: int = 1) -> Line:
    found: Line = tree["actor"][place]
    return found


def edge(tree: Line, node: int = 2) -> Line:
    found: Line = tree["tree"]["nodes"][node]["edge"]
    return found


def reply(tree: Line, server: list[Line], node: int = 2) -> Line:
    name = edge(tree, node)["request_id"]
    return next(line for line in server if line["rid"].startswith(name + "~"))


def last_leaf(tree: Line) -> Line:
    found: Line = next(node for node in tree["tree"]["nodes"] if node["terminal"])
    return found


def edit(place: Callable[[Line, list[Line]], Line], name: str, value: Any) -> Change:
    """Put another value (or what a function makes of the old one) into one field."""

    def change(tree: Line, server: list[Line]) -> None:
        target = place(tree, server)
        target[name] = value(target[name]) if callable(value) else value

    return change


def of_sample(name: str, value: Any) -> Change:
    return edit(lambda tree, server: sample(tree), name, value)


def of_edge(name: str, value: Any) -> Change:
    return edit(lambda tree, server: edge(tree), name, value)


def first(value: Any) -> Callable[[list[Any]], list[Any]]:
    return lambda old: [value, *old[1:]]


def masked(tree: Line, server: list[Line]) -> None:
    """A record that trains nothing of its only edge, yet keeps the log-probs."""
    record = sample(tree)
    record["loss_mask"] = [0] * len(record["loss_mask"])


def observed(tree: Line, server: list[Line]) -> None:
    """An edge with an observation whose positions carry numbers."""
    record = sample(tree)
    node = tree["tree"]["nodes"][record["nodes"][0]]
    node["edge"]["spans"].append({"ids": [65], "log_probs": None})
    for name, value in (("response", 65), ("loss_mask", 0), ("log_probs", -0.5), ("weights", 0.0)):
        record[name].append(value)


def trained_twice(tree: Line, server: list[Line]) -> None:
    tree["actor"].append(copy.deepcopy(sample(tree)))


def renamed(tree: Line, server: list[Line]) -> None:
    edge(tree)["request_id"] += "9"


def negative_zero(tree: Line, server: list[Line]) -> None:
    """Log-probs that are equal and not the same."""
    for values in (sample(tree)["log_probs"], reply_of(tree, server, sample(tree))["log_probs"]):
        values[0] = 0.0
    record_edge(tree, sample(tree))["spans"][0]["log_probs"][0] = -0.0


def record_edge(tree: Line, record: Line) -> Line:
    found: Line = tree["tree"]["nodes"][record["nodes"][0]]["edge"]
    return found


def reply_of(tree: Line, server: list[Line], record: Line) -> Line:
    return reply(tree, server, record["nodes"][0])


def flip_last_bit(values: list[float]) -> list[float]:
    return [values[0] * (1 + 2**-52), *values[1:]]


PLANTED: dict[str, tuple[str, Change]] = {
    "id past the vocabulary": ("I1", of_sample("prefix", first(2**40))),
    "bool for an id": ("I1", of_sample("prefix", first(True))),
    "one weight short": ("I2", of_sample("weights", lambda old: old[1:])),
    "empty response": ("I2", of_sample("response", [])),
    "another prefix": ("I3", of_sample("prefix", first(7))),
    "one log-prob, one bit": ("I4", of_sample("log_probs", flip_last_bit)),
    "the sign of zero": ("I4", negative_zero),
    "another id": ("I4", of_sample("response", first(43))),
    "numbers where the mask is 0": ("I5", observed),
    "log-prob of infinity": ("I6", of_sample("log_probs", first(float("inf")))),
    "null log-prob": ("I6", of_sample("log_probs", first(None))),
    "positive log-prob": ("I6", of_sample("log_probs", first(0.5))),
    "more ids than asked for": (
        "I7",
        edit(lambda tree, server: reply(tree, server), "most", 0),
    ),
    "a context that was not asked with": (
        "I8",
        edit(lambda tree, server: reply(tree, server), "prefix", lambda old: old[:-1]),
    ),
    "ids of no reply": ("I9", renamed),
    "trained twice": ("I10", trained_twice),
    "not trained": ("I10", masked),
    "record left out": ("I10", lambda tree, server: tree["actor"].pop()),
    "reward beyond the range": (
        "I11",
        edit(lambda tree, server: last_leaf(tree)["edge"], "reward", 2.0),
    ),
    "reward that is none": (
        "I11",
        edit(lambda tree, server: last_leaf(tree)["edge"], "reward", float("nan")),
    ),
    "advantage, one bit": (
        "I12",
        of_sample("weights", lambda old: [value + 2**-50 for value in old]),
    ),
    "another value in the tree": (
        "I12",
        edit(lambda tree, server: tree["tree"]["nodes"][0], "value", 0.625),
    ),
    "another run": ("I13", of_sample("run", "elsewhere")),
    "truncated": ("I14", of_sample("truncated", lambda old: not old)),
    "aborted": ("I14", of_edge("finish", "abort")),
    "other weights": ("I15", of_edge("policy_version", "chaos-2")),
    "weights the server did not have": (
        "I15",
        edit(lambda tree, server: reply(tree, server), "version", "chaos-2"),
    ),
    "another temperature": ("I16", of_sample("temperature", 0.7)),
    "advantage for outcome": ("I17", of_sample("outcome", -0.25)),
    "beyond the context": (
        "I18",
        edit(lambda tree, server: tree["tree"]["header"], "context_limit", 9),
    ),
    "critic context": (
        "C1",
        edit(lambda tree, server: tree["critic"][0]["context"], "ids", [1]),
    ),
    "critic target, one bit": (
        "C2",
        edit(lambda tree, server: tree["critic"][0], "target", lambda old: old + 2**-50),
    ),
    "critic prior": ("C3", edit(lambda tree, server: tree["critic"][0], "prior", 0.1)),
    "two targets of one checkpoint": (
        "C4",
        lambda tree, server: tree["critic"].append(tree["critic"][0]),
    ),
    "critic truncation": (
        "C5",
        edit(lambda tree, server: tree["critic"][0], "truncated", lambda old: not old),
    ),
    "a lost expansion": (
        "lost",
        edit(lambda tree, server: tree["books"], "expansions_completed", lambda old: old + 1),
    ),
    "an expansion of no books": (
        "books",
        edit(lambda tree, server: tree["books"], "expansions_started", lambda old: old + 1),
    ),
    "a request of no books": (
        "books",
        edit(lambda tree, server: tree["books"], "requests_sent", lambda old: old + 1),
    ),
    "a try that arrived twice": (
        "doubled",
        lambda tree, server: server.append({**server[0], "whole": False}),
    ),
    "an edge twice": (
        "doubled",
        lambda tree, server: edge(tree, 2).update(request_id=edge(tree, 1)["request_id"]),
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_each_invariant_broken_once_is_found(name: str, honest: Path, tmp_path: Path) -> None:
    invariant, change = PLANTED[name]
    found = spoiled(honest, tmp_path, change)["by_invariant"]
    assert found.get(invariant, 0) >= 1, found


def test_every_invariant_has_a_planted_fault() -> None:
    assert {f"I{number}" for number in range(1, 19)} <= {name for name, _ in PLANTED.values()}


def test_a_reply_of_another_request_without_echo_is_the_checkers_find(tmp_path: Path) -> None:
    """The one gap: no client can tell, so the checker must."""
    plan = Alone(fault_named("another_reply_without_echo"))
    anyio.run(partial(run, Gauntlet(plan=plan, trees=1, tokens=60), tmp_path))
    verdict = checked(tmp_path)
    assert verdict["by_invariant"]["I4"] > 0
    assert verdict["matrix"]["another_reply_without_echo"]["detectable"] is False


def test_two_trees_of_one_identity_are_found(honest: Path, tmp_path: Path) -> None:
    def twice(path: Path) -> Iterator[str]:
        for line in path.read_text().splitlines():
            yield line + "\n"
            yield line + "\n"

    (tmp_path / "trees.jsonl").write_text("".join(twice(honest / "trees.jsonl")))
    (tmp_path / "server.jsonl").write_text((honest / "server.jsonl").read_text())
    assert checked(tmp_path)["by_invariant"]["I13"] == 4
