"""S: the rows are kept, and what they look for they would find."""

from __future__ import annotations

import ast
import logging
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from focus.errors import ProblemError
from focus.problem import Message
from focus.promises.base import Row
from focus.promises.canaries import CANARIES, Output, canaries_in
from focus.promises.forged_turns import FAMILIES, tokenizer_of
from focus.promises.hostile_replies import fuzzed, honest
from focus.promises.hostile_server import Findings, ask
from focus.promises.names import hostile_ids, stored_ids
from focus.promises.sources import code_from_data
from focus.promises.supply import dependencies, import_events, pins
from focus.records.strict_json import dumps
from focus.rendering import encode, render_chat
from focus.testing.envs import walk_script
from focus.testing.policies import ScriptedPolicy


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("row", ["S1", "S2", "S3", "S4", "S5", "S6", "S7"])
def test_the_promise_is_kept(row: str, kept: Callable[[str], Row]) -> None:
    kept(row)


def test_ids_are_different_and_hostile() -> None:
    ids = list(hostile_ids(500))
    texts = [problem for problem in ids if isinstance(problem, str)]
    assert len({(type(problem), problem) for problem in ids}) == 500
    for part in ("..", "/", "\0", "\u202e", "NUL"):
        assert any(part in text for text in texts), part
    assert max(map(len, texts)) >= 4_096


def test_two_records_under_one_name_are_found_out(tmp_path: Path) -> None:
    counts = stored_ids(["a", "b", "a"], tmp_path)
    assert counts["collisions"] == 2, "the file of records and the row of a collection"
    assert (counts["refused"], counts["stored"]) == (1, 2), "a link stood in the first one's way"


def test_the_scan_of_sources_sees_every_way() -> None:
    source = "import pickle\nfrom dill import x\neval('1')\nf(shell=True)\ntorch.load(p)"
    assert len(list(code_from_data(ast.parse(source)))) == 5


def test_a_payload_that_runs_is_heard() -> None:
    code = (
        "import os; from focus.promises.loading import Watch\n"
        "watch = Watch()\n"
        "os.system('true')\n"
        "with watch.watching():\n"
        "    os.system('true')\n"
        "    exec('1')\n"
        "print(len([e for e in watch.events if e.startswith(('os.system', 'exec'))]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "2\n"


def test_fuzzed_replies_are_seldom_honest_and_often_new() -> None:
    rng = random.Random(0)
    bodies = {fuzzed(rng, "rid") for _ in range(500)}
    assert len(bodies) > 450
    assert dumps(honest("rid"), what="reply") not in bodies


class Deleting(random.Random):
    """Deletes the first thing there is, as often as it may."""

    def randint(self, low: int, high: int) -> int:
        return high

    def randrange(self, *bounds: Any) -> int:
        return 0

    def choice(self, options: Any) -> Any:
        return options[0]

    def random(self) -> float:
        return 0.9


def test_a_reply_may_be_spoiled_until_nothing_is_left() -> None:
    assert fuzzed(Deleting(), "rid") == b"{}"


class Crashing(ScriptedPolicy):
    """Stumbles over a reply with an error of Python's own."""

    async def generate(self, *args: Any, **named: Any) -> Any:
        raise KeyError("meta_info")


@pytest.mark.anyio
async def test_a_client_that_crashes_or_takes_anything_is_found_out() -> None:
    findings = Findings()
    await ask(Crashing(walk_script()), "a reply", findings)
    assert findings.crashes == ["a reply: KeyError: 'meta_info'"]
    await ask(ScriptedPolicy(walk_script(), version="another"), "a reply", findings)
    assert findings.outcomes["FatalError"] == 1


def test_a_leak_is_found_wherever_it_is() -> None:
    output = Output()
    output.add("log", "nothing")
    output.add("repr", f"Policy({CANARIES['bearer']})")
    assert list(output.leaks()) == ["bearer in repr"]
    assert len(canaries_in(" ".join(CANARIES.values()))) == len(CANARIES)


def test_debug_logs_of_the_http_client_hold_no_key(caplog: pytest.LogCaptureFixture) -> None:
    from focus.policies.http import HttpServer

    server = HttpServer("http://127.0.0.1:9", api_key="canary-in-a-log")
    log = logging.getLogger("httpcore.http11")
    with caplog.at_level(logging.DEBUG, logger="httpcore"):
        log.debug("headers %r", [(b"x-echo", b"canary-in-a-log")])
        assert "***" in caplog.text
        assert "canary" not in caplog.text
        del server
        log.debug("%s of another", "canary-in-a-log")
    assert "canary-in-a-log of another" in caplog.text


@pytest.mark.parametrize("family", FAMILIES)
def test_every_tokenizer_would_let_a_marker_through(family: str) -> None:
    """Without FOCUS's check data would become control tokens: the row tests something."""
    tokenizer = tokenizer_of(family)
    marker = FAMILIES[family].special[0]
    (token,) = encode(tokenizer, marker)
    assert tokenizer.added_tokens_decoder[token].content == marker
    with pytest.raises(ProblemError, match="control tokens"):
        render_chat(tokenizer, (Message("user", f"say {marker}"),))


def test_an_import_that_writes_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "writes_at_import.py").write_text(f"open({str(tmp_path / 'x')!r}, 'w').close()")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    assert len(import_events("writes_at_import")) == 1


def test_pins_are_read_by_canonical_name(tmp_path: Path) -> None:
    path = tmp_path / "constraints.txt"
    path.write_text("# a comment\nPy_Test.xdist==3.8.0  # why\n\nanyio>=4\n")
    assert pins(path) == {"py-test-xdist": "3.8.0"}
    project = tmp_path / "pyproject.toml"
    project.write_text(
        '[project]\nname = "own"\ndependencies = ["AnyIO>=4"]\n'
        '[project.optional-dependencies]\nx = ["own[y]", "a.b[c]==1; python_version > \'3\'"]\n'
    )
    assert dependencies(project) == ({"anyio"}, {"a-b"})
