"""Drives one edge: request, parse, step the environment."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from focus._cancellation import stray_cancellation
from focus.agent.env import Env, StepResult, fork_state, released_on_failure
from focus.agent.parsers import Parser
from focus.checkpoint import Allowance, Checkpoint
from focus.errors import ConfigError, EnvError, FocusError, ProblemError
from focus.execution import Execution, Reply, RequestCounts
from focus.policies.base import Policy
from focus.problem import Problem
from focus.sampling import Sampling, derive_seed
from focus.tokens import FinishReason, Generation, Span, TokenChain
from focus.tree import Edge, Provenance

__all__ = ("Agent", "RequestPlace", "Step")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPlace:
    """Where in a collection an edge is sampled; fixes its request name and seed.

    Attributes:
        tree: name of the tree: run/round/attempt/problem key.
        version: policy version that the tree is pinned to.
        expansion, index, phase: as in :class:`focus.tree.Provenance`.
        counts: the collection's request books.
    """

    tree: str
    version: str
    expansion: int
    index: int
    phase: int
    counts: RequestCounts

    @property
    def name(self) -> str:
        return f"{self.tree}/{self.expansion}/{self.index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One settled edge and the checkpoint it leads to."""

    edge: Edge
    checkpoint: Checkpoint
    is_terminal: bool
    is_truncated: bool


class Agent:
    """A policy with its parser, sampling, allowance and execution; stateless between calls.

    Args:
        policy: borrowed.
        parser: how replies are cut and read, e.g. ``Segments(256)``.
        sampling: overlay on the policy's training law (temperature
            ``policy.train_temperature``, top-p 1, no top-k).
        allowance: tokens and turns from root to leaf.
        execution: permits, deadlines, retries; a private one by default.

    Raises:
        ConfigError: the allowance is smaller than one segment, or no bound on reply
            length exists.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        parser: Parser,
        sampling: Sampling | None = None,
        allowance: Allowance | None = None,
        execution: Execution | None = None,
    ) -> None:
        self.policy = policy
        self.parser = parser
        law = Sampling(temperature=policy.train_temperature, top_p=1.0)
        self.sampling = law.merged(sampling)
        self.allowance = allowance or Allowance()
        self.execution = execution or Execution()
        segment, tokens = parser.request_tokens, self.allowance.tokens
        if segment is not None and tokens is not None and tokens < segment:
            raise ConfigError(
                f"allowance of {tokens} tokens is smaller than one segment of {segment}; "
                f"raise Allowance(tokens=...) or lower the segment size"
            )
        if tokens is None and policy.context_limit is None:
            raise ConfigError(
                "nothing bounds a solution: give Allowance(tokens=...) or a policy that "
                "knows its context_limit"
            )

    async def start(self, problem: Problem, env: Env) -> Checkpoint:
        """Reset the environment and render the prompt: the root checkpoint.

        Raises:
            EnvError: `reset` raised, or gave no pair of state and messages.
            ProblemError: the prompt leaves no room for one token.
            RequestError: a policy that is served elsewhere could not read its version.
        """
        where = f"problem {problem.id!r}"
        await self.execution.refresh(self.policy, name=f"refresh/{problem.key}")
        opened = await _ask(lambda: env.reset(problem), "reset", where)
        if not isinstance(opened, tuple) or len(opened) != 2:
            raise EnvError(f"{where}: env.reset gave {opened!r}, not (state, messages)")
        state, messages = opened
        async with released_on_failure(env) as held:
            held.append(state)
            prompt = TokenChain(self.policy.render(messages))
            limit = self.policy.context_limit
            if limit is not None and len(prompt) >= limit:
                raise ProblemError(
                    f"{where}: the prompt of {len(prompt)} tokens fills the context of "
                    f"{limit}; shorten it or use a model with a longer context"
                )
        return Checkpoint(
            context=prompt, prompt_length=len(prompt), state=state, allowance=self.allowance
        )

    def room(self, checkpoint: Checkpoint) -> int | None:
        """Tokens that may still be sampled from here: allowance and context; None: no limit."""
        limits = []
        if checkpoint.allowance.tokens is not None:
            limits.append(checkpoint.allowance.tokens)
        if self.policy.context_limit is not None:
            limits.append(max(0, self.policy.context_limit - len(checkpoint.context)))
        if checkpoint.allowance.turns == 0:
            limits.append(0)
        return min(limits) if limits else None

    async def advance(
        self,
        checkpoint: Checkpoint,
        env: Env,
        *,
        place: RequestPlace,
        sampling: Sampling | None = None,
        most_tokens: int | None = None,
    ) -> Step:
        """Sample one edge from `checkpoint` and let the environment answer.

        When the edge leaves no room for one more token, `env.finish` decides the outcome
        and the step is terminal and truncated.

        Args:
            place: identity of the request.
            sampling: a phase's override of max_tokens, stop or seed.
            most_tokens: cap of a hard budget.

        Raises:
            RequestError: the policy failed, retries included.
            EnvError: the environment raised or gave an unusable reward.
        """
        effective = self._effective(checkpoint, place, sampling, most_tokens)
        reply = await self.execution.generate(
            self.policy,
            checkpoint.context.ids(),
            effective,
            name=place.name,
            tree=place.tree,
            version=place.version,
            counts=place.counts,
        )
        try:
            async with released_on_failure(env) as held:
                return await self._settle(checkpoint, env, reply, place, held)
        except BaseException:
            place.counts.discarded_tokens += len(reply.generation.ids)
            raise

    async def _settle(
        self, checkpoint: Checkpoint, env: Env, reply: Reply, place: RequestPlace, held: list[Any]
    ) -> Step:
        """Let the environment answer a reply; `held` gets the state that a failure releases."""
        generation = reply.generation
        context = checkpoint.context.extended(generation.ids)
        text = self.policy.decode(context.ids()[checkpoint.prompt_length :])
        action = self.parser.action(generation, text)
        result = await _step(env, checkpoint, action, place, held)
        after = Checkpoint(
            context=context,
            prompt_length=checkpoint.prompt_length,
            state=result.state,
            allowance=checkpoint.allowance.after(
                tokens=len(generation.ids), turns=self.parser.duration
            ),
            workspace=checkpoint.workspace,
        )
        truncated = not result.done and self.room(after) == 0
        if truncated:
            reward = await _finish(env, after, place)
        else:
            _check_result(generation, result, place)
            reward = result.reward
        return Step(
            edge=self._edge(reply, place, reward=reward, step_reward=result.step_reward),
            checkpoint=after,
            is_terminal=result.done or truncated,
            is_truncated=truncated,
        )

    def _edge(
        self, reply: Reply, place: RequestPlace, *, reward: float, step_reward: float
    ) -> Edge:
        generation = reply.generation
        return Edge(
            spans=(Span(generation.ids, generation.log_probs),),
            provenance=Provenance(
                expansion=place.expansion,
                index=place.index,
                phase=place.phase,
                request_id=generation.request_id or f"{place.name}/{reply.tries}",
                tries=reply.tries,
                policy_version=generation.version,
            ),
            reward=_number(reward, "reward", place),
            step_reward=_number(step_reward, "step_reward", place),
            duration=self.parser.duration,
            finish=generation.finish,
            kind=self.parser.kind,
        )

    def _effective(
        self,
        checkpoint: Checkpoint,
        place: RequestPlace,
        override: Sampling | None,
        most_tokens: int | None,
    ) -> Sampling:
        sampling = self.sampling.merged(override)
        limits = (
            sampling.max_tokens,
            self.parser.request_tokens,
            self.room(checkpoint),
            most_tokens,
        )
        known = [limit for limit in limits if limit is not None]
        seed = None if sampling.seed is None else derive_seed(sampling.seed, place.name)
        return sampling.merged(Sampling(max_tokens=min(known), seed=seed))


async def _ask(call: Callable[[], Awaitable[T]], method: str, where: str) -> T:
    """One call of the environment; whatever goes wrong in it is an EnvError with its cause."""
    stray = EnvError(f"{where}: env.{method} was cancelled from inside")
    try:
        with stray_cancellation(stray):
            return await call()
    except FocusError:
        raise
    except Exception as error:
        raise EnvError(f"{where}: env.{method} raised {error!r}") from error


async def _step(
    env: Env, checkpoint: Checkpoint, action: Any, place: RequestPlace, held: list[Any]
) -> StepResult:
    before = checkpoint.state
    state = await _ask(lambda: fork_state(env, before), "fork", place.name)
    if state is not before:
        held.append(state)
    result = await _ask(lambda: env.step(state, action, checkpoint.workspace), "step", place.name)
    if not isinstance(result, StepResult):
        raise EnvError(f"{place.name}: env.step gave {result!r}, not a StepResult")
    held[:] = [result.state]
    return result


async def _finish(env: Env, checkpoint: Checkpoint, place: RequestPlace) -> float:
    reason = "allowance" if checkpoint.allowance.is_spent else "context"
    return await _ask(
        lambda: env.finish(checkpoint.state, checkpoint.workspace, reason), "finish", place.name
    )


def _check_result(generation: Generation, result: StepResult, place: RequestPlace) -> None:
    """Refuse a step that leaves the episode in no defined state."""
    if result.done:
        return
    if result.reward:
        raise EnvError(
            f"{place.name}: outcome reward {result.reward!r} on a step that does not end the "
            "episode; use step_reward for shaping"
        )
    if generation.finish is FinishReason.STOP and not result.messages:
        raise EnvError(
            f"{place.name}: the policy ended its reply and the environment neither ended the "
            "episode nor answered"
        )


def _number(value: Any, name: str, place: RequestPlace) -> float:
    """A finite float from an environment's number; None and NaN are errors, not zero."""
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise EnvError(f"{place.name}: the environment's {name} is {value!r}") from error
    if not math.isfinite(number):
        raise EnvError(f"{place.name}: the environment's {name} is {number}")
    return number
