"""One question, one reply in chunks, one grade."""

from __future__ import annotations

import pytest

from focus.agent.env import Env, SegmentAction
from focus.errors import GraderError, LifecycleError, ProblemError
from focus.problem import Message, Problem
from focus.tasks import Grader, GymEnv, MathEnv
from focus.tasks.answers import TEXT_LIMIT
from focus.tasks.math_env import SYSTEM_PROMPT

pytestmark = pytest.mark.anyio

ASK = Problem(id=1, prompt="What is 6 times 7?", label="42")


def chunk(text: str, *, finished: bool = False) -> SegmentAction:
    return SegmentAction(ids=(1,), finished=finished, text=text)


async def test_reset_gives_the_instruction_and_the_problem(warm):
    env = MathEnv("42", grader=warm)
    _, messages = await env.reset(ASK)
    assert messages == (Message("system", SYSTEM_PROMPT), Message("user", ASK.prompt))
    assert isinstance(env, Env)


async def test_a_prompt_with_its_own_instruction_keeps_it(warm):
    own = (Message("system", "Be brief."), Message("user", "6 times 7?"))
    _, messages = await MathEnv("42", grader=warm).reset(Problem(id=1, prompt=own))
    assert messages == own


async def test_no_instruction_when_none_is_wanted(warm):
    _, messages = await MathEnv("42", system_prompt="", grader=warm).reset(ASK)
    assert messages == ASK.messages


@pytest.mark.parametrize("reference", ["", "1331 and 1728", r"\frac{1", None])
async def test_b58_b62_a_reference_that_cannot_be_won_is_refused_before_any_token(warm, reference):
    with pytest.raises(ProblemError):
        await MathEnv(reference, grader=warm).reset(ASK)


async def test_only_the_ending_chunk_is_graded(warm):
    env = MathEnv("42", grader=warm)
    state, _ = await env.reset(ASK)
    first = await env.step(state, chunk(r"6 times 7 is \boxed{42}"), None)
    assert (first.done, first.reward, first.messages) == (False, 0.0, ())
    last = await env.step(first.state, chunk(r"6 times 7 is \boxed{42}.", finished=True), None)
    assert (last.done, last.reward) == (True, 1.0)


async def test_b59_a_box_split_over_two_chunks_counts(warm):
    env = MathEnv("42", grader=warm)
    state, _ = await env.reset(ASK)
    first = await env.step(state, chunk(r"\boxed{4"), None)
    last = await env.step(first.state, chunk(r"\boxed{42}", finished=True), None)
    assert last.reward == 1.0


async def test_branches_from_one_state_do_not_meet(warm):
    env = MathEnv("42", grader=warm)
    state, _ = await env.reset(ASK)
    wrong = await env.step(state, chunk(r"\boxed{41}", finished=True), None)
    right = await env.step(state, chunk(r"\boxed{42}", finished=True), None)
    assert (wrong.reward, right.reward, state.text) == (0.0, 1.0, "")


@pytest.mark.parametrize(("text", "outcome"), [(r"\boxed{42}, and", 1.0), (r"\boxed{42", 0.0)])
@pytest.mark.parametrize("reason", ["allowance", "context"])
async def test_b28_b62_a_reply_that_ran_out_gets_the_grade_of_its_text(warm, text, outcome, reason):
    env = MathEnv("42", grader=warm)
    state, _ = await env.reset(ASK)
    result = await env.step(state, chunk(text), None)
    assert await env.finish(result.state, None, reason) == outcome


async def test_a_reply_that_never_began_is_wrong(warm):
    env = MathEnv("42", grader=warm)
    state, _ = await env.reset(ASK)
    assert await env.finish(state, None, "context") == 0.0


async def test_a_state_holds_no_more_than_grading_reads(warm):
    env = MathEnv("42", kind="exact", grader=warm)
    state, _ = await env.reset(ASK)
    result = await env.step(state, chunk("x" * 10**6 + r"\boxed{42}"), None)
    assert len(result.state.text) == TEXT_LIMIT
    assert await env.finish(result.state, None, "context") == 1.0


async def test_b44_a_grader_that_fails_is_an_error_and_never_a_zero(tmp_path, monkeypatch):
    (tmp_path / "math_verify.py").write_text("raise ConnectionError('no grader today')")
    monkeypatch.syspath_prepend(tmp_path)
    async with Grader() as broken:
        env = MathEnv("42", grader=broken)
        with pytest.raises(GraderError):
            await env.reset(ASK)
        with pytest.raises(GraderError):
            await env.finish((await MathEnv("42", kind="exact").reset(ASK))[0], None, "context")
    with pytest.raises(LifecycleError):
        await env.reset(ASK)


async def test_a_gym_problem_is_graded_by_its_generator(warm):
    label = {"dataset": "chain_sum", "config": {}, "entry": {"answer": "12"}}
    env = GymEnv(label, grader=warm)
    state, messages = await env.reset(Problem(id=1, prompt="State 5 + 7.", label=label))
    assert "<answer>" in messages[0].content
    right = await env.step(state, chunk("<answer>12</answer>", finished=True), None)
    wrong = await env.step(state, chunk("<answer>13</answer>", finished=True), None)
    silent = await env.step(state, chunk("12", finished=True), None)
    assert (right.reward, wrong.reward, silent.reward) == (1.0, 0.0, 0.0)
