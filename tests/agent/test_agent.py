"""One edge at a time: exact requests, honest endings, and the environment's errors by name."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focus import (
    Agent,
    Allowance,
    Checkpoint,
    Execution,
    Problem,
    RetryPolicy,
    Sampling,
    Segments,
    StepResult,
)
from focus.agent import RequestPlace, Step
from focus.agent.env import release_states
from focus.errors import ConfigError, CorruptReply, EnvError, FocusError, ProblemError
from focus.execution import RequestCounts
from focus.policies.base import Policy, RequestTag
from focus.sampling import derive_seed
from focus.testing.envs import LiveEnv, WalkEnv, walk_script
from focus.testing.policies import ScriptedPolicy
from focus.tokens import Generation, TokenIds

PROBLEM = Problem(id="walk", prompt="Walk.")
PROMPT = len(ScriptedPolicy(walk_script()).render(PROBLEM.messages))


class Listening(ScriptedPolicy):
    """Keeps what it was asked."""

    def __init__(self, length: int = 12, *, context_limit: int | None = 4096) -> None:
        super().__init__(walk_script(length), context_limit=context_limit)
        self.asked: list[tuple[TokenIds, Sampling, str]] = []

    async def generate(
        self, prefix: TokenIds, sampling: Sampling, *, tag: RequestTag | None = None
    ) -> Generation:
        self.asked.append((prefix, sampling, tag.request if tag else ""))
        return await super().generate(prefix, sampling, tag=tag)


def agent_of(
    policy: Policy, *, segment: int = 3, tokens: int | None = 13, **sampling: Any
) -> Agent:
    return Agent(
        policy,
        parser=Segments(segment),
        sampling=Sampling(**{"seed": 7, **sampling}),
        allowance=Allowance(tokens=tokens),
        execution=Execution(retry=RetryPolicy(base_s=0.0)),
    )


def place(index: int, counts: RequestCounts | None = None) -> RequestPlace:
    return RequestPlace(
        tree="run/0/0/key",
        version="scripted",
        expansion=4,
        index=index,
        phase=1,
        counts=counts or RequestCounts(),
    )


async def walked(agent: Agent, env: Any, *, most: int = 100, **options: Any) -> list[Step]:
    """Edges from the root to the end of the episode."""
    checkpoint = await agent.start(PROBLEM, env)
    steps: list[Step] = []
    while len(steps) < most and not (steps and steps[-1].is_terminal):
        steps.append(await agent.advance(checkpoint, env, place=place(len(steps)), **options))
        checkpoint = steps[-1].checkpoint
    return steps


@given(position=st.integers(1, 500), page=st.integers(1, 40), more=st.integers(0, 80))
def test_a_paged_segment_ends_one_id_behind_a_page_and_is_as_long_as_that_allows(
    position: int, page: int, more: int
) -> None:
    parser = Segments(page + more, page=page)
    tokens = parser.tokens_from(position)
    assert (position + tokens) % page == 1 % page
    assert max(1, parser.tokens - page + 1) <= tokens <= parser.tokens == parser.request_tokens
    assert Segments(parser.tokens).tokens_from(position) == parser.tokens
    assert parser.tokens_from(position + tokens) == parser.tokens - parser.tokens % page


@pytest.mark.parametrize("page", [0, -1, 10])
def test_a_page_that_no_segment_can_fill_is_refused(page: int) -> None:
    with pytest.raises(ConfigError, match=r"page must be in 1 \.\.\. 9"):
        Segments(9, page=page)


@settings(max_examples=60, deadline=None)
@given(
    segment=st.integers(1, 9),
    extra=st.integers(0, 20),
    room=st.integers(1, 30) | st.none(),
    length=st.integers(0, 15),
    cap=st.integers(1, 9) | st.none(),
)
def test_every_request_fits_segment_allowance_context_and_cap(
    segment: int, extra: int, room: int | None, length: int, cap: int | None
) -> None:
    limit = None if room is None else PROMPT + room
    policy = Listening(length, context_limit=limit)
    agent = agent_of(policy, segment=segment, tokens=segment + extra, max_tokens=cap)
    env = WalkEnv()
    steps = asyncio.run(walked(agent, env))
    left = segment + extra
    prefix = policy.render(PROBLEM.messages)
    for step, (asked, sampling, _) in zip(steps, policy.asked, strict=True):
        bounds = [segment, left, cap or 99, 99 if limit is None else limit - len(prefix)]
        assert asked == prefix
        assert sampling.max_tokens == min(bounds)
        assert 1 <= len(step.edge.ids) <= min(bounds)
        prefix += step.edge.ids
        left -= len(step.edge.ids)
        assert step.checkpoint.context.ids() == prefix
        assert step.checkpoint.allowance.tokens == left
    last = steps[-1]
    assert last.is_terminal
    assert [step.is_terminal for step in steps[:-1]] == [False] * (len(steps) - 1)
    assert last.is_truncated == (len(env.finishes) == 1)
    if last.is_truncated:
        reason = "allowance" if left == 0 else "context"
        assert env.finishes == [reason]
        assert left == 0 or len(prefix) == limit


def test_an_answer_in_the_very_last_token_is_an_answer() -> None:
    env = WalkEnv()
    steps = asyncio.run(walked(agent_of(ScriptedPolicy(walk_script(12)), tokens=13), env))
    assert steps[-1].is_terminal
    assert not steps[-1].is_truncated
    assert env.finishes == []


def test_names_and_seeds_depend_on_the_place_only_and_never_repeat() -> None:
    policy = Listening()
    asyncio.run(walked(agent_of(policy), WalkEnv()))
    names = [name for _, _, name in policy.asked]
    assert names == [f"run/0/0/key/4/{index}/1" for index in range(len(names))]
    seeds = [sampling.seed for _, sampling, _ in policy.asked]
    assert seeds == [derive_seed(7, f"run/0/0/key/4/{index}") for index in range(len(seeds))]
    assert len(set(seeds)) == len(seeds)


def test_without_a_seed_none_is_sent() -> None:
    policy = Listening()
    asyncio.run(walked(agent_of(policy, seed=None), WalkEnv()))
    assert {sampling.seed for _, sampling, _ in policy.asked} == {None}


def test_the_law_is_the_trainers_and_is_sent_in_full() -> None:
    policy = Listening()
    policy.train_temperature = 0.7
    asyncio.run(walked(agent_of(policy), WalkEnv()))
    assert {sampling.law for _, sampling, _ in policy.asked} == {(0.7, 1.0, None)}
    assert {sampling.temperature for _, sampling, _ in policy.asked} == {0.7}


def test_a_phase_override_and_a_hard_cap_shorten_a_request() -> None:
    policy = Listening()
    override = Sampling(max_tokens=2, stop=(43,))
    asyncio.run(walked(agent_of(policy), WalkEnv(), most=1, sampling=override, most_tokens=9))
    asyncio.run(walked(agent_of(policy), WalkEnv(), most=1, most_tokens=1))
    (_, first, _), (_, second, _) = policy.asked
    assert (first.max_tokens, first.stop) == (2, (43,))
    assert (second.max_tokens, second.stop) == (1, None)


def test_an_edge_carries_its_provenance() -> None:
    (step, *_) = asyncio.run(walked(agent_of(ScriptedPolicy(walk_script())), WalkEnv()))
    found = step.edge.provenance
    assert (found.expansion, found.index, found.phase, found.tries) == (4, 0, 1, 1)
    assert found.policy_version == "scripted"
    assert found.request_id == "run/0/0/key/4/0/1"
    assert (step.edge.kind, step.edge.duration) == ("segment", 0)


class Odd(LiveEnv):
    """Answers one method with something else, or raises in it."""

    def __init__(self, method: str, answer: Callable[[], Any]) -> None:
        super().__init__()
        self.method = method
        self.answer = answer

    async def _odd(self, method: str) -> Any:
        if method == self.method:
            answer = self.answer()
            return await answer if asyncio.isfuture(answer) else answer
        return None

    async def reset(self, problem: Problem) -> Any:
        return await self._odd("reset") or await super().reset(problem)

    async def fork(self, state: Any) -> Any:
        return await self._odd("fork") or await super().fork(state)

    async def step(self, *args: Any) -> Any:
        return await self._odd("step") or await super().step(*args)

    async def finish(self, *args: Any) -> Any:
        odd = await self._odd("finish")
        return await super().finish(*args) if odd is None else odd

    async def release(self, state: Any) -> Any:
        await super().release(state)
        await self._odd("release")


def failing() -> Any:
    raise RuntimeError("disk on fire")


def cancelled() -> Any:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    return future


def error_of(env: Odd, *, tokens: int = 6) -> tuple[EnvError, RequestCounts]:
    """What one edge to the end of the allowance raises; its states are all released."""
    counts = RequestCounts()

    async def main() -> None:
        agent = agent_of(ScriptedPolicy(walk_script()), segment=6, tokens=tokens)
        root = await agent.start(PROBLEM, env)
        try:
            await agent.advance(root, env, place=place(0, counts))
        finally:
            await release_states(env, [root.state])

    with pytest.raises(EnvError) as caught:
        asyncio.run(main())
    assert env.opened == env.released
    return caught.value, counts


@pytest.mark.parametrize("method", ["reset", "fork", "step", "finish"])
def test_an_error_of_the_environment_is_named_and_kept_as_the_cause(method: str) -> None:
    error, _ = error_of(Odd(method, failing))
    assert f"env.{method} raised RuntimeError('disk on fire')" in str(error)
    assert ("walk" if method == "reset" else "run/0/0/key/4/0") in str(error)
    assert str(error.__cause__) == "disk on fire"


@pytest.mark.parametrize("method", ["reset", "fork", "step", "finish"])
def test_a_cancellation_inside_the_environment_is_its_error_and_not_our_end(method: str) -> None:
    error, _ = error_of(Odd(method, cancelled))
    assert f"env.{method} was cancelled from inside" in str(error)


@pytest.mark.parametrize("method", ["fork", "step", "finish"])
def test_tokens_of_an_edge_that_the_environment_lost_are_counted(method: str) -> None:
    _, counts = error_of(Odd(method, failing))
    assert (counts.accepted, counts.discarded_tokens) == (1, 6)


@pytest.mark.parametrize("answer", [7, (1, 2, 3), "state"])
def test_a_reset_without_state_and_messages_is_refused(answer: Any) -> None:
    error, _ = error_of(Odd("reset", lambda: answer))
    assert "not (state, messages)" in str(error)


@pytest.mark.parametrize("answer", [7, (1, 2), {"reward": 1.0}])
def test_a_step_that_gives_no_result_is_refused(answer: Any) -> None:
    error, _ = error_of(Odd("step", lambda: answer))
    assert "not a StepResult" in str(error)


@pytest.mark.parametrize("reward", ["high", float("nan"), float("-inf"), [], {}])
def test_an_unusable_outcome_is_refused_and_its_state_released(reward: Any) -> None:
    error, _ = error_of(Odd("finish", lambda: reward))
    assert "reward" in str(error)


class Scored(LiveEnv):
    """Adds to each step's result."""

    def __init__(self, **changes: Any) -> None:
        super().__init__()
        self._changes = changes

    async def step(self, state: Any, action: Any, workspace: object) -> StepResult:
        await super().step(state, action, workspace)
        return StepResult(state=state, **self._changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"reward": 0.5}, "does not end the episode"),
        ({"reward": float("nan")}, "does not end the episode"),
        ({"step_reward": None}, "step_reward is None"),
        ({"step_reward": float("nan")}, "step_reward is nan"),
        ({"reward": None, "done": True}, "reward is None"),
        ({"reward": float("inf"), "done": True}, "reward is inf"),
    ],
)
def test_a_reward_that_means_nothing_is_an_error(changes: dict[str, Any], said: str) -> None:
    env = Scored(**changes)

    async def main() -> None:
        agent = agent_of(ScriptedPolicy(walk_script()), segment=3, tokens=13)
        root = await agent.start(PROBLEM, env)
        try:
            await agent.advance(root, env, place=place(0))
        finally:
            await release_states(env, [root.state])

    with pytest.raises(EnvError, match=said):
        asyncio.run(main())
    assert env.opened == env.released


def test_a_finished_reply_without_an_answer_of_the_environment_is_an_error() -> None:
    class Silent(WalkEnv):
        async def step(self, state: int, action: Any, workspace: object) -> StepResult:
            return StepResult(state=state)

    with pytest.raises(EnvError, match="neither ended the episode nor answered"):
        asyncio.run(walked(agent_of(ScriptedPolicy(walk_script(2)), segment=9), Silent()))


def test_numbers_and_flags_of_other_kinds_become_floats() -> None:
    env = Scored(reward=True, done=True, step_reward=1)
    (step,) = asyncio.run(walked(agent_of(ScriptedPolicy(walk_script())), env))
    assert type(step.edge.reward) is float
    assert (step.edge.reward, step.edge.step_reward) == (1.0, 1.0)


def test_a_failing_release_hides_neither_the_others_nor_the_first_error() -> None:
    class Stuck(LiveEnv):
        async def release(self, state: Any) -> None:
            await super().release(state)
            if self.released in (1, 3):
                raise OSError(f"stuck {self.released}")

    async def main(env: Stuck) -> None:
        states = [(await env.reset(PROBLEM))[0] for _ in range(5)]
        await release_states(env, states)

    env = Stuck()
    with pytest.raises(EnvError, match="stuck 1") as caught:
        asyncio.run(main(env))
    assert isinstance(caught.value.__cause__, OSError)
    assert (env.opened, env.released) == (5, 5)


def test_a_prompt_that_fills_the_context_is_refused_and_its_state_released() -> None:
    env = LiveEnv()
    agent = agent_of(ScriptedPolicy(walk_script(), context_limit=PROMPT))
    with pytest.raises(ProblemError, match=f"{PROMPT} tokens fills the context of {PROMPT}"):
        asyncio.run(agent.start(PROBLEM, env))
    assert (env.opened, env.released) == (1, 1)


def test_room_is_the_tightest_of_allowance_turns_and_context() -> None:
    agent = agent_of(ScriptedPolicy(walk_script(), context_limit=PROMPT + 10), tokens=8)
    root = asyncio.run(agent.start(PROBLEM, WalkEnv()))
    assert agent.room(root) == 8

    def after(tokens: int | None, turns: int | None, more: int) -> int | None:
        context = root.context.extended(range(more))
        left = Allowance(tokens=tokens, turns=turns)
        return agent.room(
            Checkpoint(context=context, prompt_length=PROMPT, state=None, allowance=left)
        )

    assert after(8, None, 5) == 5
    assert after(None, None, 4) == 6
    assert after(8, 0, 0) == 0
    assert after(8, 1, 10) == 0
    assert after(8, 1, 12) == 0


@pytest.mark.parametrize("tokens", [0, -3])
def test_a_segment_holds_at_least_one_token(tokens: int) -> None:
    with pytest.raises(ConfigError, match="at least one token"):
        Segments(tokens)


def test_an_agent_without_any_bound_is_refused() -> None:
    with pytest.raises(ConfigError, match="nothing bounds a solution"):
        agent_of(ScriptedPolicy(walk_script(), context_limit=None), tokens=None)


def test_a_reply_of_the_wrong_size_is_no_edge() -> None:
    class Long(ScriptedPolicy):
        async def generate(
            self, prefix: TokenIds, sampling: Sampling, *, tag: RequestTag | None = None
        ) -> Generation:
            return await super().generate(prefix, Sampling(max_tokens=9), tag=tag)

    with pytest.raises(CorruptReply, match="at most 3") as caught:
        asyncio.run(walked(agent_of(Long(walk_script())), WalkEnv()))
    assert isinstance(caught.value, FocusError)
    assert caught.value.where["attempts"] == 2


class Hanging(LiveEnv):
    """Never answers one of its calls."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self._method = method

    async def reset(self, problem: Problem) -> Any:
        await self._hang("reset")
        return await super().reset(problem)

    async def fork(self, state: Any) -> Any:
        await self._hang("fork")
        return await super().fork(state)

    async def step(self, *args: Any) -> Any:
        await self._hang("step")
        return await super().step(*args)

    async def finish(self, *args: Any) -> Any:
        await self._hang("finish")
        return await super().finish(*args)

    async def _hang(self, method: str) -> None:
        if method == self._method:
            await asyncio.Event().wait()


@pytest.mark.parametrize("method", ["reset", "fork", "step", "finish"])
def test_an_environment_that_never_answers_is_given_up_at_its_deadline(method: str) -> None:
    env = Hanging(method)

    async def main() -> list[Step]:
        policy = ScriptedPolicy(walk_script(5))
        run = Execution(env_deadline_s=0.02)
        agent = Agent(policy, parser=Segments(4), allowance=Allowance(tokens=4), execution=run)
        root = await agent.start(PROBLEM, env)
        try:
            return [await agent.advance(root, env, place=place(0))]
        finally:
            await release_states(env, [root.state])

    with pytest.raises(EnvError, match=f"no answer from env.{method} within 0.02 s"):
        asyncio.run(main())
    assert env.opened == env.released


@pytest.mark.parametrize("name", ["deadline_s", "env_deadline_s"])
def test_a_deadline_is_positive(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be > 0"):
        Execution(**{name: 0.0})
