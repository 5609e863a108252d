"""Drives one edge: request, parse, step the environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from focus.agent.env import Env, released_on_failure
from focus.agent.env_calls import ask, ask_outcome, check_result, naming, number, take_step
from focus.agent.parsers import Parser
from focus.checkpoint import Allowance, Checkpoint
from focus.errors import ConfigError, EnvError, ProblemError
from focus.execution import Execution, Reply, RequestCounts
from focus.policies.base import Policy
from focus.problem import Problem
from focus.sampling import Sampling, derive_seed
from focus.tokens import Span, TokenChain
from focus.tree import Edge, Provenance

__all__ = ("Agent", "RequestPlace", "Step")


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
            ProblemError: the prompt cannot be rendered, or leaves no room for one token.
            RequestError: a policy that is served elsewhere could not read its version.
        """
        where = f"problem {problem.id!r}"
        await self.execution.refresh(self.policy, name=f"refresh/{problem.key}")
        with naming(where):
            state, prompt = await self._open(problem, env, where)
        return Checkpoint(
            context=prompt, prompt_length=len(prompt), state=state, allowance=self.allowance
        )

    async def _open(self, problem: Problem, env: Env, where: str) -> tuple[Any, TokenChain]:
        """First state and prompt; a prompt that cannot be used leaves nothing open."""
        opened = await ask(
            lambda: env.reset(problem), "reset", where, deadline_s=self.execution.env_deadline_s
        )
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
        return state, prompt

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
        limit_s = self.execution.env_deadline_s
        result = await take_step(
            env, checkpoint, action, held, where=place.name, deadline_s=limit_s
        )
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
            reward = await ask_outcome(env, after, where=place.name, deadline_s=limit_s)
        else:
            check_result(generation, result, where=place.name)
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
            reward=number(reward, "reward", where=place.name),
            step_reward=number(step_reward, "step_reward", where=place.name),
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
