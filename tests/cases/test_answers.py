"""Family (g): grading is bounded, reads what a person would, and refuses what cannot be won."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.errors import GraderError, ProblemError
from focus.tasks import Grader, MathEnv
from focus.tasks.answers import last_box, single_reference
from focus.tasks.grading import GraderCounts
from focus.tasks.scoring import ExactScorer

from .servers import Engine, collect, served, written

pytestmark = pytest.mark.anyio

TOWERS = (
    r"\boxed{9^{9^{9^{9}}}}",
    r"\boxed{(((9^{99})^{99})^{99})^{99}}",
    r"\boxed{10^{10^{10}} - 10^{10^{10}}}",
    r"\boxed{\binom{10^9}{5 \cdot 10^8}}",
    r"\boxed{99999999!}",
)


LAZY = """
import importlib.machinery, importlib.util, os, sys
path = [entry for entry in sys.path if entry != os.path.dirname(__file__)]
spec = importlib.machinery.PathFinder.find_spec("math_verify", path)
real = sys.modules["math_verify"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(real)
sound = real.parse

def parse(text, *args, **options):
    if "777" in text:
        import a_part_that_was_not_installed
    return sound(text, *args, **options)

real.parse = parse
"""


async def test_b44_a_verifier_that_breaks_on_one_answer_gives_no_zero_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It passes its self-check and lacks a part that one answer needs: unknown, never 0.0."""
    (tmp_path / "math_verify.py").write_text(LAZY)
    monkeypatch.syspath_prepend(tmp_path)
    async with Grader() as grader:
        assert await grader.grade(r"\boxed{2}", "2") == 1.0
        with pytest.raises(GraderError, match="while grading"):
            await grader.grade(r"\boxed{777}", "2")
        assert await grader.grade(r"\boxed{3}", "2") == 0.0
        assert grader.counts.graded == 2


async def test_b55_answers_without_end_take_no_worker_away(grader: Grader) -> None:
    """Twenty of them, two processes: each is 0 within the limit, and grading goes on."""
    before = await _started(grader)
    verdicts: list[Any] = []

    async def one(number: int) -> None:
        text = f"{number} so {TOWERS[number % len(TOWERS)]}"
        verdicts.append(await grader.verdict(text, "2"))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(one, number)
    assert [verdict.score for verdict in verdicts] == [0.0] * 20
    assert any(verdict.unverifiable for verdict in verdicts)
    assert await grader.grade(r"\boxed{2}", "2") == 1.0
    assert await grader.grade(r"\boxed{3}", "2") == 0.0
    assert grader.counts.started == before


async def _started(grader: Grader) -> int:
    """Processes at work, both of them warm."""
    async with anyio.create_task_group() as group:
        for number in range(4):
            group.start_soon(grader.grade, rf"\boxed{{{number}}}", f"{number}")
    return grader.counts.started


@pytest.mark.parametrize(
    "box",
    ["9" * 7945, "9" * 2_000_000, "{" * 50_000 + "9" + "}" * 50_000, "1+" * 4000 + "1"],
    ids=["7945 digits", "2 MB", "nested", "a long sum"],
)
async def test_b56_an_answer_past_every_limit_is_wrong_and_nothing_more(
    box: str, grader: Grader
) -> None:
    before = await _started(grader)
    with anyio.fail_after(60):
        assert await grader.grade(rf"\boxed{{{box}}}", "2") == 0.0
    assert grader.counts.started == before


SEVERAL = (
    "1331 and 1728",
    "1331, 1728",
    "$1331$ and $1728$",
    "1331 or 1728",
    "x=1331; x=1728",
    r"\boxed{1331} and \boxed{1728}",
    "1331 & 1728 and 4",
)


@pytest.mark.parametrize("gold", SEVERAL)
async def test_b58_a_reference_of_several_unboxed_answers_is_refused(
    gold: str, grader: Grader
) -> None:
    """At preparation and at reset: matching one of several required answers wins nothing."""
    with pytest.raises(ProblemError):
        await grader.check(gold)
    engine = Engine(written(r"\boxed{1728}"))
    async with served(engine) as policy:
        with pytest.raises(ProblemError, match="'p-17'"):
            await collect(policy, MathEnv(gold, grader=grader), segment=64)
    assert engine.payloads == []


async def test_b58_one_of_two_boxed_answers_is_not_enough(grader: Grader) -> None:
    gold = r"\boxed{1331, 1728}"
    assert await grader.grade(r"\boxed{1728}", gold) == 0.0
    assert await grader.grade(r"\boxed{1728, 1331}", gold) == 1.0


BOXES = (
    (r"\boxed{\frac{1}{2}}", "1/2", 1.0),
    (r"\boxed{\frac{1}{3}}", r"\frac{1}{3}", 1.0),
    (r"First \boxed{4}, then on reflection \boxed{5}", "5", 1.0),
    (r"First \boxed{4}, then on reflection \boxed{5}", "4", 0.0),
    (r"\boxed{\frac{1}{\frac{2}{3}}}", "3/2", 1.0),
    (r"\boxed{4" + "2}", "42", 1.0),
)


@pytest.mark.parametrize(("text", "gold", "score"), BOXES)
async def test_b59_the_last_complete_box_counts_braces_and_all(
    text: str, gold: str, score: float, grader: Grader
) -> None:
    assert await grader.grade(text, gold) == score


@given(
    inner=st.recursive(
        st.text("ab1+\\ ", max_size=5).filter(lambda t: not t.endswith("\\")),
        lambda below: below.map(lambda t: "{" + t + "}") | st.tuples(below, below).map("".join),
        max_leaves=6,
    ),
    before=st.text("x {}", max_size=5).filter(lambda t: t.count("{") == t.count("}")),
)
def test_b59_a_box_gives_back_all_that_its_braces_hold(inner: str, before: str) -> None:
    assert last_box(rf"{before}\boxed{{{inner}}} so") == inner.strip()


@pytest.mark.parametrize("size", [1, 5, 8])
async def test_b59_a_box_that_two_chunks_share_is_one_box(size: int) -> None:
    async with served(Engine(written(r"so \boxed{42}"))) as policy:
        found = await collect(policy, MathEnv("42", kind="exact"), segment=size)
    assert found.root_outcomes == [1.0]


FORMATS = (
    r"\boxed{%s}",
    r"so \boxed{ %s }.",
    r"$\boxed{%s}$",
    r"$$\boxed{%s}$$",
    r"\[ x = \boxed{%s} \]",
    r"\(\boxed{%s}\)",
    r"\fbox{%s}",
    r"\boxed {%s}",
    r"**\boxed{%s}**",
    r"\boxed{$%s$}",
    r"\boxed{4} no, \boxed{%s}",
    "\\boxed{%s}\n\nThat is it.",
)


@pytest.mark.parametrize("form", FORMATS)
async def test_b61_every_format_that_the_prompt_allows_is_read(form: str, grader: Grader) -> None:
    """A right answer scores 1 in each of them, an integer, a fraction and a power alike."""
    for answer, gold in (("42", "42"), (r"\frac{1}{2}", "0.5"), ("2^{10}", "1024")):
        assert await grader.grade(form.replace("%s", answer), gold) == 1.0
        assert await grader.grade(form.replace("%s", "7"), gold) == 0.0


@pytest.mark.parametrize(
    ("graded", "right", "warns"), [(63, 0, False), (64, 0, True), (64, 1, False), (500, 0, True)]
)
def test_b61_no_right_answer_among_64_looks_like_a_broken_format(
    graded: int, right: int, warns: bool
) -> None:
    assert GraderCounts(graded=graded, right=right).looks_broken is warns


@pytest.mark.parametrize("right_at", [None, 0, 40, 63, 64])
async def test_b61_such_a_batch_is_warned_of_once(
    right_at: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with Grader() as grader:
        for number in range(200):
            text = r"\boxed{42}" if number == right_at else "42"
            await grader.grade(text, "42", kind="exact")
    warned = [entry.message for entry in caplog.records if entry.levelname == "WARNING"]
    assert len(warned) == (right_at in (None, 64))


async def test_b62_a_framed_fraction_is_unwrapped(grader: Grader) -> None:
    assert await grader.grade(r"\fbox{\frac{1}{2}}", "1/2") == 1.0
    assert await grader.grade(r"\boxed{4", "4") == 0.0


async def test_b62_an_open_box_at_the_horizon_is_zero_and_truncated() -> None:
    async with served(Engine(written(r"\boxed{4}"))) as policy:
        found = await collect(policy, MathEnv("4", kind="exact"), segment=4, allowance=8)
    (leaf,) = found.tree.terminals()
    assert found.tree[leaf].payload.state.text == r"\boxed{4"
    assert found.root_outcomes == [0.0]
    assert found.tree[leaf].is_truncated


EMPTY = ("", " ", "\n", r"\boxed{}", r"\boxed{ }", r"\boxed{4", None, True, [], {"a": 1})


@pytest.mark.parametrize("reference", EMPTY, ids=repr)
def test_b62_a_reference_that_nothing_can_equal_is_refused(reference: Any) -> None:
    with pytest.raises(ProblemError):
        single_reference(reference)
    with pytest.raises(ProblemError):
        ExactScorer().check(reference)
