"""Drives one edge: request, parse, step the environment."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from focus._values import filled
from focus.agent.compaction import Compactor
from focus.agent.env import Env, Held, released_on_failure
from focus.agent.env_calls import ask, naming, number
from focus.agent.journal import Journal, asked
from focus.agent.parsers import Parser
from focus.agent.recall import Recall
from focus.agent.settling import Outcome, Settler
from focus.agent.step import RequestPlace, Step
from focus.agent.tools import Tool, by_name
from focus.agent.turns import Turns
from focus.agent.workspace import Workspace
from focus.checkpoint import Allowance, Checkpoint
from focus.errors import ConfigError, EnvError, ProblemError
from focus.execution import Execution, Reply
from focus.policies.base import Conversing, Policy
from focus.problem import Problem
from focus.sampling import Sampling, derive_seed
from focus.tokens import TokenChain
from focus.tree import Edge, Provenance

__all__ = ("Agent",)

_edge, _provenance = filled(Edge), filled(Provenance)


class Agent:
    """A policy with its parser, sampling, allowance and execution; stateless between calls.

    Args:
        policy: borrowed.
        parser: how replies are cut and read: ``Segments(256)``, or ``Turns("hermes")`` for
            tools.
        sampling: overlay on the policy's training law (temperature
            ``policy.train_temperature``, top-p 1, no top-k).
        allowance: tokens and turns from root to leaf.
        execution: permits, deadlines, retries; a private one by default.
        tools: what the policy is shown; by default what the environment and the workspace
            offer. It is the environment that runs them.
        workspace: files that each solution starts with and each branch has for itself.
        compactor: folds the context when it grows too long.
        journal: where finished edges are kept until their tree is stored, so that a killed
            collection goes on from them.

    Raises:
        ConfigError: the allowance is smaller than one segment, no bound on the length of a
            solution exists, or the policy and the parser cannot hold a conversation.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        parser: Parser,
        sampling: Sampling | None = None,
        allowance: Allowance | None = None,
        execution: Execution | None = None,
        tools: Sequence[Tool] | None = None,
        workspace: Workspace | None = None,
        compactor: Compactor | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.policy = policy
        self.parser = parser
        self.workspace = workspace
        self.compactor = compactor
        self._tools = tools
        law = Sampling(temperature=policy.train_temperature, top_p=1.0)
        self.sampling: Sampling = law.merged(sampling)
        self.allowance: Allowance = allowance or Allowance()
        self.execution: Execution = execution or Execution()
        self._recall = (
            None if journal is None else Recall(journal, deadline_s=self.execution.env_deadline_s)
        )
        self._settler = Settler(
            policy, parser, compactor, env_deadline_s=self.execution.env_deadline_s
        )
        self._check_bounds()
        self._check_conversation()

    def _check_bounds(self) -> None:
        segment, left = self.parser.request_tokens, self.allowance
        if segment is not None and left.tokens is not None and left.tokens < segment:
            raise ConfigError(
                f"allowance of {left.tokens} tokens is smaller than one segment of {segment}; "
                f"raise Allowance(tokens=...) or lower the segment size"
            )
        limit = None if self.compactor is not None else self.policy.context_limit
        turns = left.turns if isinstance(self.parser, Turns) else None
        if left.tokens is None and limit is None and turns is None:
            raise ConfigError(
                "nothing bounds a solution: give Allowance(tokens=...) or a policy that "
                "knows its context_limit (a fold makes room in the context, so an agent that "
                "folds needs an allowance)"
            )

    def _check_conversation(self) -> None:
        if isinstance(self.parser, Turns):
            if not isinstance(self.policy, Conversing):
                raise ConfigError(
                    f"{type(self.policy).__name__} has no continuation(messages, closed=...): "
                    "Turns cannot append observations to its exact ids"
                )
        elif self.compactor is not None:
            raise ConfigError("a compactor folds conversations; it needs the parser Turns(...)")

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
            return await self._open(problem, env, where)

    async def _open(self, problem: Problem, env: Env, where: str) -> Checkpoint:
        """The root; a prompt that cannot be used leaves nothing open."""
        opened = await ask(
            lambda: env.reset(problem), "reset", where, deadline_s=self.execution.env_deadline_s
        )
        if not isinstance(opened, tuple) or len(opened) != 2:
            raise EnvError(f"{where}: env.reset gave {opened!r}, not (state, messages)")
        state, messages = opened
        async with released_on_failure(env) as held:
            held.states.append(state)
            prompt = TokenChain(self.policy.render(messages, self._schemas(env)))
            limit = self.policy.context_limit
            if limit is not None and len(prompt) >= limit:
                raise ProblemError(
                    f"{where}: the prompt of {len(prompt)} tokens fills the context of "
                    f"{limit}; shorten it or use a model with a longer context"
                )
            root = Checkpoint(
                context=prompt,
                prompt_length=len(prompt),
                state=state,
                allowance=self.allowance,
                workspace=None if self.workspace is None else await self.workspace.fork(),
            )
            held.add(root)
            if self.compactor is not None and self.compactor.trigger.fires(root):
                raise ProblemError(
                    f"{where}: {self.compactor.trigger} fires on the bare prompt of "
                    f"{len(prompt)} tokens, so a fold could never relieve it"
                )
        return root

    def _schemas(self, env: Env) -> list[Mapping[str, Any]]:
        """What the policy is shown; parsers without calls show nothing."""
        if not isinstance(self.parser, Turns):
            return []
        tools = self._tools
        if tools is None:
            files = () if self.workspace is None else self.workspace.tools
            tools = (*getattr(env, "tools", ()), *files)
        return [each.schema for each in by_name(tools).values()]

    def room(self, checkpoint: Checkpoint) -> int | None:
        """Tokens that the next reply may hold: allowance and context; None: no limit."""
        return self._settler.room(checkpoint)

    def remaining(self, checkpoint: Checkpoint) -> int | None:
        """Tokens that may still be sampled from here to the leaf; None: no limit.

        A fold makes room in the context, so for an agent that folds only the allowance counts.
        """
        room = self.room(checkpoint)
        return room if self.compactor is None or room == 0 else checkpoint.allowance.tokens

    def advance(
        self,
        checkpoint: Checkpoint,
        env: Env,
        *,
        place: RequestPlace,
        sampling: Sampling | None = None,
        most_tokens: int | None = None,
    ) -> Coroutine[Any, Any, Step]:
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
        if self._recall is None:
            return self._sampled(checkpoint, env, place, sampling=effective)
        return self._recall.step(
            checkpoint,
            env,
            place,
            asked=asked(checkpoint.context.ids(), effective, version=place.version),
            sample=partial(self._sampled, checkpoint, env, sampling=effective),
            settle=partial(self._settled, checkpoint, env),
        )

    async def _sampled(
        self, checkpoint: Checkpoint, env: Env, place: RequestPlace, *, sampling: Sampling
    ) -> Step:
        """Ask the policy, and settle its reply."""
        reply = await self.execution.generate(
            self.policy,
            checkpoint.context.ids(),
            sampling,
            name=place.name,
            tree=place.tree,
            version=place.version,
            counts=place.counts,
            together=place.together,
        )
        try:
            return await self._settled(checkpoint, env, reply, place)
        except BaseException:
            place.counts.discarded_tokens += len(reply.generation.ids)
            raise

    async def _settled(
        self, checkpoint: Checkpoint, env: Env, reply: Reply, place: RequestPlace
    ) -> Step:
        held = Held()
        try:
            outcome = await self._settler.settle(
                checkpoint, env, reply.generation, held, where=place.name
            )
            return self._step(outcome, reply, place)
        except BaseException:
            await held.release_quietly(env)
            raise

    def _step(self, outcome: Outcome, reply: Reply, place: RequestPlace) -> Step:
        generation = reply.generation
        edge = _edge(
            spans=outcome.spans,
            provenance=_provenance(
                expansion=place.expansion,
                index=place.index,
                phase=place.phase,
                request_id=generation.request_id or f"{place.name}/{reply.tries}",
                tries=reply.tries,
                policy_version=generation.version,
            ),
            reward=number(outcome.reward, "reward", where=place.name),
            step_reward=number(outcome.step_reward, "step_reward", where=place.name),
            duration=outcome.duration,
            finish=generation.finish,
            kind=outcome.kind,
        )
        return Step(
            edge=edge,
            checkpoint=outcome.checkpoint,
            is_terminal=outcome.is_terminal,
            is_truncated=outcome.is_truncated,
            rebased=outcome.rebased,
        )

    def _effective(
        self,
        checkpoint: Checkpoint,
        place: RequestPlace,
        override: Sampling | None,
        most_tokens: int | None,
    ) -> Sampling:
        sampling = self.sampling.merged(override)
        in_fold = checkpoint.fold is not None and self.compactor is not None
        most = self.room(checkpoint)
        for limit in (
            sampling.max_tokens,
            self.compactor.reply_tokens if in_fold and self.compactor else None,
            self.parser.tokens_from(len(checkpoint.context)),
            most_tokens,
        ):
            if limit is not None and (most is None or limit < most):
                most = limit
        assert most is not None, "an agent's replies are bounded"
        seed = None if sampling.seed is None else derive_seed(sampling.seed, place.name)
        return sampling.bounded(most, seed)
