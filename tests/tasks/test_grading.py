"""Verdicts: what is right, what is wrong, what could not be compared, what is unknown."""

from __future__ import annotations

import math

import anyio
import pytest

from focus.errors import ConfigError, GraderError, LifecycleError, MissingExtra, ProblemError
from focus.tasks import Grader, GraderCounts, check_reference, shared_grader
from focus.tasks.quality import UNSAFE_FAMILIES, grading_pairs, measure
from focus.tasks.scoring import MathScorer

pytestmark = pytest.mark.anyio


def assert_only_known_faults(rows):
    wrong = {row.family: (row.false_positives, row.false_negatives) for row in rows}
    assert {family for family, errors in wrong.items() if any(errors)} == set(UNSAFE_FAMILIES)
    assert {family: wrong[family] for family in UNSAFE_FAMILIES} == {
        "bases": (1, 0),
        "complex": (0, 3),
        "equations": (1, 0),
    }


async def test_v3_the_table_has_no_wrong_verdict_in_a_safe_family():
    scorer, pairs = MathScorer(), grading_pairs()

    async def grade(text: str, reference: str) -> float:
        return scorer.score(text, reference).score

    assert len(pairs) >= 500
    assert_only_known_faults(await measure(grade, pairs))


@pytest.mark.full
async def test_v3_worker_processes_give_the_same_table(warm):
    assert_only_known_faults(await measure(warm.grade, grading_pairs()))


def test_v3_every_reference_of_the_table_can_be_won():
    scorer = MathScorer()
    for reference in {pair.reference for pair in grading_pairs()}:
        scorer.check(reference)


B61_FORMATS = (
    r"\boxed{42}",
    r"$\boxed{42}$",
    r"$$\boxed{42}$$",
    r"\[\boxed{42}\]",
    r"\(\boxed{42}\)",
    r"\fbox{42}",
    r"\boxed{ 42 }",
    r"\boxed {42}",
    r"\boxed{42.}",
    r"\boxed{$42$}",
    r"\boxed{\text{42}}",
    r"\boxed{x = 42}",
    r"\boxed{42\%}",
    r"\boxed{42 \text{ cm}}",
    r"\boxed{\mathbf{42}}",
    r"\boxed{42.0}",
    r"**\boxed{42}**",
    r"Final answer: \boxed{42}. I hope it is correct.",
    r"<think>\boxed{41}?</think> So \boxed{42}",
    "37 + 5 = 42\n\n\\boxed{42}\n",
)


async def test_b61_every_format_that_the_prompt_allows_is_read(warm):
    assert [await warm.grade(text, "42") for text in B61_FORMATS] == [1.0] * 20


async def test_b59_boxes(warm):
    assert await warm.grade(r"\boxed{\frac{1}{2}}", "1/2") == 1.0
    several = r"First \boxed{4}, then on reflection \boxed{5}"
    assert await warm.grade(several, "5") == 1.0
    assert await warm.grade(several, "4") == 0.0
    assert await warm.grade(r"\boxed{4" + "2}", "42") == 1.0


async def test_b62_fbox_and_open_boxes(warm):
    assert await warm.grade(r"\fbox{\frac{1}{2}}", "1/2") == 1.0
    verdict = await warm.verdict(r"\boxed{4", "4")
    assert (verdict.score, verdict.unverifiable, verdict.reason) == (0.0, False, "no complete box")


@pytest.mark.parametrize("reference", ["", " ", r"\boxed{}"])
async def test_b62_an_empty_reference_is_an_error_and_never_a_zero(warm, reference):
    with pytest.raises(ProblemError, match="empty"):
        await warm.check(reference)
    with pytest.raises(ProblemError, match="empty"):
        await warm.grade(r"\boxed{4}", reference)


async def test_b58_one_of_several_required_answers_is_not_enough(warm):
    with pytest.raises(ProblemError, match="several"):
        await warm.check("1331 and 1728")
    assert await warm.grade(r"\boxed{1728}", r"\boxed{1331, 1728}") == 0.0
    assert await warm.grade(r"\boxed{1728, 1331}", r"\boxed{1331, 1728}") == 1.0


@pytest.mark.parametrize(
    "reference", [r"\frac{1", r"\frac{1}{0}", "))((", r"\begin{tabular}a&b\end{tabular}"]
)
async def test_a_reference_that_cannot_be_read_or_won_is_refused(warm, reference):
    with pytest.raises(ProblemError, match="reference"):
        await warm.check(reference)


async def test_a_reference_beyond_the_limits_is_refused(short):
    with pytest.raises(ProblemError, match="longer than"):
        await short.check("(" * 2000 + "1" + ")" * 2000)


def test_scripts_check_references_without_a_loop():
    assert check_reference(r"so $\boxed{\frac{1}{2}}$") == r"\frac{1}{2}"
    with pytest.raises(ProblemError):
        check_reference("1 and 2")
    assert check_reference("red and green", kind="exact") == "red and green"
    assert shared_grader() is shared_grader()


async def test_exact_kind_compares_text_and_starts_no_process():
    async with Grader() as grader:
        assert await grader.grade(r"\boxed{ 64 }", "64", kind="exact") == 1.0
        assert await grader.grade(r"\boxed{64.0}", "64", kind="exact") == 0.0
        assert await grader.grade("64", "64", kind="exact") == 0.0
        await grader.check("red and green", kind="exact")
        assert grader.pids == ()
        assert grader.counts == GraderCounts(graded=3, right=1)


async def test_b74_outcomes_are_plain_floats(warm):
    gym = {"dataset": "chain_sum", "config": {}, "entry": {"answer": "12"}}
    for outcome in (
        await warm.grade(r"\boxed{1}", "1"),
        await warm.grade(r"\boxed{1}", "1", kind="exact"),
        await warm.grade("<answer>12</answer>", gym, kind="reasoning_gym"),
    ):
        assert type(outcome) is float
        assert outcome == 1.0


async def test_an_unknown_kind_is_refused(warm):
    with pytest.raises(ConfigError, match="known: exact, math, reasoning_gym"):
        await warm.grade("x", "x", kind="magic")
    with pytest.raises(ConfigError, match="known"):
        await warm.check("x", kind="magic")


@pytest.mark.parametrize(
    "limits",
    [{"workers": 0}, {"deadline_s": 0.0}, {"deadline_s": math.nan}, {"memory_mb": 0}],
)
async def test_impossible_limits_are_refused(limits):
    with pytest.raises(ConfigError):
        Grader(**limits)


async def test_many_graders_at_once_keep_their_answers_apart(warm):
    verdicts: dict[int, float] = {}

    async def grade(number: int) -> None:
        verdicts[number] = await warm.grade(rf"\boxed{{{number}}}", str(number - number % 2))

    async with anyio.create_task_group() as group:
        for number in range(40):
            group.start_soon(grade, number)
    assert verdicts == {number: float(number % 2 == 0) for number in range(40)}


async def test_b61_counts_tell_a_format_fault_from_a_weak_policy():
    async with Grader() as grader:
        for _ in range(64):
            await grader.grade("42", "42", kind="exact")
        assert grader.counts.looks_broken
        await grader.grade(r"\boxed{42}", "42", kind="exact")
        assert not grader.counts.looks_broken


FAKE_VERIFIER = """
class LatexExtractionConfig:
    def __init__(self, **settings): pass
def parse(text, *args, **settings): return [text]
def verify(gold, target, **settings): return {verdict}
"""


@pytest.mark.parametrize("verdict", ["True", "False", "gold == target"])
async def test_v1_a_verifier_that_does_not_work_here_is_found_out(tmp_path, monkeypatch, verdict):
    (tmp_path / "math_verify.py").write_text(FAKE_VERIFIER.format(verdict=verdict))
    monkeypatch.syspath_prepend(tmp_path)
    async with Grader() as grader:
        with pytest.raises(GraderError, match=r"known pairs wrongly .* with math-verify 0\.9\.0"):
            await grader.grade(r"\boxed{1}", "1")


async def test_v1_a_missing_verifier_names_the_extra(tmp_path, monkeypatch):
    (tmp_path / "math_verify.py").write_text("raise ImportError('not here')")
    monkeypatch.syspath_prepend(tmp_path)
    async with Grader() as grader:
        with pytest.raises(GraderError, match=r"focus-rl\[math\]"):
            await grader.grade(r"\boxed{1}", "1")
    assert issubclass(MissingExtra, ImportError)


async def test_b44_an_answer_that_breaks_the_grader_is_never_a_zero(tmp_path, monkeypatch):
    crash = FAKE_VERIFIER.replace(
        "return [text]", "import os; os.abort() if '9' in text else None; return [text]"
    ).format(verdict="_known(gold, target)")
    pairs = tmp_path / "math_verify.py"
    pairs.write_text(crash + KNOWN_BY_HEART)
    monkeypatch.syspath_prepend(tmp_path)
    async with Grader() as grader:
        assert await grader.grade(r"\boxed{1}", "1") == 1.0
        with pytest.raises(GraderError, match="2 times in a row"):
            await grader.grade(r"\boxed{9}", "9")
        assert await grader.grade(r"\boxed{1}", "1") == 1.0


KNOWN_BY_HEART = r"""
def _known(gold, target):
    same = {("0.5", r"\frac{1}{2}"), ("x^2-1", "(x-1)(x+1)"),
            (r"\{2\sqrt{2}, 3\}", r"\{3, \sqrt{8}\}")}
    gold, target = gold[0][7:-1], target[0][7:-1]
    return gold == target or (gold, target) in same
"""


async def test_a_closed_grader_refuses(warm):
    grader = Grader()
    await grader.grade(r"\boxed{1}", "1")
    await grader.aclose()
    await grader.aclose()
    assert grader.pids == ()
    with pytest.raises(LifecycleError, match="closed"):
        await grader.grade(r"\boxed{1}", "1")
