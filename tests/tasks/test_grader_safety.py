"""S6: what a model writes is parsed, never executed; a grading child can't reach out."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from focus.tasks import Grader
from focus.tasks.gym_catalogue import SAFE

pytestmark = pytest.mark.anyio

PYTHON = (
    "__import__('os').system('touch {marker}')",
    "open('{marker}', 'w')",
    "().__class__.__base__.__subclasses__()",
    "exec(\"open('{marker}', 'w')\")",
    "[x for x in [open('{marker}', 'w')]]",
    "2 if open('{marker}', 'w') else 3",
    "1 + open('{marker}', 'w').fileno()",
    "lambda: open('{marker}', 'w')",
)


@pytest.mark.parametrize("code", PYTHON)
async def test_s6_python_in_an_answer_is_not_run(warm, tmp_path, code):
    marker = tmp_path / "touched"
    answer = code.format(marker=marker)
    for text in (rf"\boxed{{{answer}}}", rf"\boxed{{\text{{{answer}}}}}", rf"\boxed{{${answer}$}}"):
        assert await warm.grade(text, "2") == 0.0
    assert not marker.exists()


WATCH = r"""
    import json, logging, sys
    logging.disable(logging.CRITICAL)
    texts, seen, watching = json.load(sys.stdin), set(), False

    def watch(event, arguments):
        if not watching:
            return
        if event == "compile" and not str(arguments[1]).endswith(".py"):
            seen.add(f"compile {watching} {arguments[0]}")
        if event == "open" and arguments[2] & 0o3103:
            seen.add(f"open {watching} {arguments[0]}")
        if event.split(".")[0] in ("os", "subprocess", "socket", "ctypes", "shutil"):
            if event not in ("os.listdir", "os.scandir"):
                seen.add(f"{event} {watching}")

    sys.addaudithook(watch)
"""
MATH = r"""
    from focus.tasks.quality import grading_pairs
    from focus.tasks.scoring import MathScorer
    scorer = MathScorer()
    for watching in (False, "second time"):
        for text in texts:
            scorer.score(text, "2")
    for pair in grading_pairs()[::5]:
        scorer.score(pair.text, pair.reference)
    print("\n" + json.dumps(sorted(seen)))
"""
GYM = r"""
    from focus.tasks.gym_catalogue import SAFE, open_dataset
    for name in SAFE:
        watching = False
        dataset = open_dataset(name, {}, size=2, seed=5)
        entry = dataset[1]
        for watching in (False, name):
            for text in texts:
                try:
                    dataset.score_answer(text, entry)
                except Exception:
                    pass
    print("\n" + json.dumps(sorted(seen)))
"""


def events_of(script: str, texts: list[str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-B", "-W", "ignore", "-c", textwrap.dedent(WATCH + script)],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        timeout=500,
        check=True,
    )
    found: list[str] = json.loads(done.stdout.strip().split("\n")[-1])
    return found


def test_s6_the_math_scorer_evaluates_no_text_and_reaches_nothing(tmp_path):
    """The algebra system compiles code of its own, in which an answer's digits may stand."""
    code = [text.format(marker=tmp_path / "canary") for text in PYTHON]
    more = ("9**9", "1+1", "lambda: canary", r"canary(2)^{canary}", r"\text{canary}", "x=canary")
    events = events_of(MATH, [rf"\boxed{{{text}}}" for text in (*code, *more)])
    assert [event for event in events if not event.startswith("compile")] == []
    assert [event for event in events if "canary" in event or "__" in event] == []


def test_s6_no_safe_gym_scorer_evaluates_text_or_reaches_anything(tmp_path):
    code = [text.format(marker=tmp_path / "touched") for text in PYTHON]
    assert events_of(GYM, [*code, "[1, 2]", "[[1, 2], [3, 4]]", "(1, 2)", "1 + 1"]) == []


REACHING_VERIFIER = r"""
import os, socket, subprocess
class LatexExtractionConfig:
    def __init__(self, **settings): pass
def parse(text, *args, **settings):
    if "EVIL" in text:
        {reach}
    return [text[7:-1]]
def verify(gold, target, **settings):
    same = {{("0.5", r"\frac{{1}}{{2}}"), ("x^2-1", "(x-1)(x+1)"),
            (r"\{{2\sqrt{{2}}, 3\}}", r"\{{3, \sqrt{{8}}\}}")}}
    return gold == target or (gold[0], target[0]) in same
"""


@pytest.mark.parametrize(
    "reach",
    [
        "open({marker!r}, 'w')",
        "os.open({marker!r}, os.O_CREAT | os.O_WRONLY)",
        "os.mkdir({marker!r})",
        "os.system('touch ' + {marker!r})",
        "subprocess.run(['touch', {marker!r}])",
        "socket.socket()",
        "os.kill(os.getppid(), 9)",
        "os.fork()",
        "import ctypes; ctypes.CDLL(None)",
    ],
)
async def test_s6_a_grading_child_is_sealed(tmp_path, monkeypatch, reach):
    marker = tmp_path / "touched"
    verifier = REACHING_VERIFIER.format(reach=reach.format(marker=str(marker)))
    (tmp_path / "math_verify.py").write_text(verifier)
    monkeypatch.syspath_prepend(tmp_path)
    async with Grader() as grader:
        assert await grader.grade(r"\boxed{1}", "1") == 1.0
        verdict = await grader.verdict(r"\boxed{EVIL}", "1")
        assert verdict.unverifiable
        assert verdict.reason == "unscorable: PermissionError"
        assert await grader.grade(r"\boxed{1}", "1") == 1.0
        assert grader.counts.started == 1
    assert not marker.exists()


async def test_s4_a_worker_sees_no_secret_of_its_client(monkeypatch):
    monkeypatch.setenv("FOCUS_TEST_API_KEY", "canary-5512")
    async with Grader() as grader:
        await grader.check("1")
        assert "canary-5512" not in environment_of(grader.pids[0])


def environment_of(pid: int) -> str:
    return Path(f"/proc/{pid}/environ").read_text()


async def test_s6_a_label_cannot_choose_a_refused_scorer(warm):
    label = {"dataset": "countdown", "config": {}, "entry": {"answer": "1"}}
    assert "countdown" not in SAFE
    with pytest.raises(Exception, match="evaluates the answer's text as Python"):
        await warm.grade("<answer>1</answer>", label, kind="reasoning_gym")
