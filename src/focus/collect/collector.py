"""Collects one tree, once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from focus.agent import Agent, Env
from focus.agent.env import released_on_failure
from focus.checkpoint import Checkpoint
from focus.collect.collection import Collection, Evaluation
from focus.collect.driver import Driver
from focus.collect.ledger import Ledger
from focus.collect.rollout import rollout
from focus.credit import DirectBranchTd
from focus.credit.base import Estimator
from focus.critic import Critic, render_context
from focus.errors import CollectionFailed, ConfigError, EvaluationOnly, LifecycleError
from focus.problem import Problem
from focus.records import Packing, actor_records, critic_records
from focus.records.records import CriticContext
from focus.search import Search
from focus.tree import Identity, Returns, Tree, TreeHeader

__all__ = ("Collector",)


class Collector:
    """One problem in, one credited tree out.

    Use inside ``async with``, for one `collect` or one `evaluate`; a second use raises.

    Args:
        agent: policy with parser, sampling, allowance and execution.
        env: the task; one per problem.
        search: which checkpoints to continue, under which budget.
        critic: values checkpoints; pinned for the whole tree.
        credit: estimator of actor weights and critic targets.
        returns: γ, β, κ; by default what `search` and `credit` name, else all 1.
        packing: ``"segment"``, ``"path"`` or ``"tree"``: how `Collection.actor` holds the tree.
        own: close the execution services that the agent's Execution made for itself.
            Policy, critic, env and passed-in services are borrowed in any case.

    Raises:
        ConfigError: parts name different κ.
    """

    def __init__(
        self,
        *,
        agent: Agent,
        env: Env,
        search: Search,
        critic: Critic | None = None,
        credit: Estimator | None = None,
        returns: Returns | None = None,
        packing: Packing = "segment",
        own: bool = True,
    ) -> None:
        self._agent = agent
        self._env = env
        self._search = search
        self._critic = critic or Critic.constant(0.5)
        self._credit = credit or DirectBranchTd()
        self._returns = _one_returns(returns, search, self._credit)
        self._packing = packing
        self._own = own
        self._state = "new"

    @property
    def agent(self) -> Agent:
        """The agent; an integration compares its sampling law with its trainer's."""
        return self._agent

    @property
    def env(self) -> Env:
        """The environment of its one problem."""
        return self._env

    @property
    def search(self) -> Search:
        """Which checkpoints it continues, under which budget."""
        return self._search

    def steered(self, *, critic: Critic, credit: Estimator | None = None) -> Collector:
        """A collector like this one, not entered yet, with a critic chosen from outside.

        Args:
            critic: instead of its own.
            credit: instead of its own; None keeps that.

        Raises:
            LifecycleError: this one was entered.
        """
        if self._state != "new":
            raise LifecycleError("a Collector that was entered keeps its critic")
        return Collector(
            agent=self._agent,
            env=self._env,
            search=self._search,
            critic=critic,
            credit=credit or self._credit,
            returns=self._returns,
            packing=self._packing,
            own=self._own,
        )

    async def __aenter__(self) -> Self:
        if self._state != "new":
            raise LifecycleError("a Collector is entered once; make a new one per problem")
        self._state = "open"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._state = "closed"
        if self._own:
            await self._agent.execution.aclose()

    async def collect(
        self,
        problem: Problem,
        *,
        allow_partial: bool = False,
        identity: Identity | None = None,
    ) -> Collection:
        """Grow, credit and export one tree.

        Raises:
            CollectionFailed: an expansion or prediction failed and `allow_partial` is off;
                the first error is its cause.
            ConfigError: the sampling law differs from the trainer's.
            EvaluationOnly: the policy shows no tokens that could be trained.
            ProblemError, EnvError, CriticError: before any token was spent.
        """
        self._begin("collect")
        self._check_law()
        identity = identity or Identity()
        driver = Driver(
            self._agent,
            self._env,
            self._search,
            self._critic,
            name=_name(identity, problem),
            strict=not allow_partial,
        )
        root = await self._agent.start(problem, self._env)
        tree = await driver.grow(self._header(problem, identity, root), root)
        if driver.first_error is not None:
            raise CollectionFailed(
                _failed(problem, driver), driver.failures, self._finished_part(tree, driver)
            ) from driver.first_error
        return self._settled(tree, driver)

    async def evaluate(
        self,
        problem: Problem,
        *,
        identity: Identity | None = None,
        with_contexts: bool = False,
    ) -> Evaluation:
        """One unbranched solution through the same agent; no critic, no records.

        Args:
            problem: the problem.
            identity: run, round and attempt, from which its requests take their seeds.
            with_contexts: also render its checkpoints for the critic.

        Raises:
            RequestError, EnvError, ProblemError: it could not be finished.
        """
        self._begin("evaluate")
        name = f"{_name(identity or Identity(), problem)}/eval"
        root = await self._agent.start(problem, self._env)
        async with released_on_failure(self._env) as held:
            held.add(root)
            steps = await rollout(self._agent, self._env, root, name=name)
            for step in steps:
                held.add(step.checkpoint)
        await held.release(self._env)
        last, before = steps[-1], [root, *(step.checkpoint for step in steps)][-2]
        sampled = next(span for span in last.edge.spans if span.is_sampled)
        full = before.context.ids() + sampled.ids
        return Evaluation(
            outcome=last.edge.reward,
            truncated=last.is_truncated,
            tokens=sum(step.edge.sampled_tokens for step in steps),
            prefix=full[: len(full) - len(sampled.ids)],
            ids=sampled.ids,
            log_probs=last.edge.log_probs,
            text=self._agent.policy.decode(full[root.prompt_length :]),
            contexts=self._contexts([root, *(s.checkpoint for s in steps[:-1])])
            if with_contexts
            else (),
        )

    def _contexts(self, checkpoints: Sequence[Checkpoint]) -> tuple[CriticContext, ...]:
        renderer, policy = self._critic.renderer, self._agent.policy
        return tuple(render_context(renderer, policy, checkpoint) for checkpoint in checkpoints)

    def _begin(self, what: str) -> None:
        if self._state != "open":
            raise LifecycleError(
                f"{what}: this Collector is {self._state}; use it once, inside 'async with'"
            )
        self._state = "used"

    def _check_law(self) -> None:
        policy = self._agent.policy
        if getattr(policy, "evaluation_only", False):
            raise EvaluationOnly(
                f"{policy!r} shows no token ids and log-probs of its own, so nothing of it can "
                "be trained on; use Collector.evaluate, or a policy that does"
            )
        temperature, top_p, top_k = self._agent.sampling.law
        if (temperature, top_p, top_k) != (policy.train_temperature, 1.0, None):
            raise ConfigError(
                f"sampling law (temperature {temperature:g}, top_p {top_p:g}, top_k {top_k}) "
                f"differs from what the trainer assumes (temperature "
                f"{policy.train_temperature:g}, top_p 1, no top_k); log-probs would not match"
            )

    def _header(self, problem: Problem, identity: Identity, root: Checkpoint) -> TreeHeader:
        policy = self._agent.policy
        return TreeHeader(
            problem=problem,
            prompt_ids=root.context.ids(),
            identity=identity,
            sampling=self._agent.sampling,
            policy_version=policy.version,
            critic_version=self._critic.version,
            critic_range=self._critic.value_range,
            returns=self._returns,
            vocab_size=policy.vocab_size,
            context_limit=policy.context_limit,
        )

    def _finished_part(self, tree: Tree[Checkpoint], driver: Driver) -> Collection | None:
        """What stands of a failed collection; None where it cannot be credited."""
        try:
            return self._settled(tree, driver)
        except Exception:  # the error that ended the collection came first and is raised
            return None

    def _settled(self, tree: Tree[Checkpoint], driver: Driver) -> Collection:
        credit = self._credit.estimate(tree, allow_partial=bool(driver.failures))
        actor = actor_records(tree, credit, packing=self._packing)
        contexts = {node: driver.valuer.context(tree[node].payload) for node in credit.targets}
        return Collection(
            tree=tree,
            credit=credit,
            actor=actor,
            critic=critic_records(tree, credit, contexts),
            ledger=Ledger.of(
                tree,
                credit,
                actor,
                requests=driver.requests,
                expansions=driver.expansions,
                critic_calls=driver.valuer.calls,
            ),
            packing=self._packing,
            opening=driver.opening,
            phases=driver.phases,
            failures=tuple(driver.failures),
        )


def _failed(problem: Problem, driver: Driver) -> str:
    """What went wrong: failures, tries by kind of fault, and the first error."""
    faults = driver.requests.faults
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(faults.items()))
    tries = f"; tries of requests that failed: {kinds}" if faults else ""
    return (
        f"problem {problem.id!r}: {len(driver.failures)} failures in "
        f"{driver.expansions.started} expansions{tries}; first: {driver.first_error}"
    )


def _name(identity: Identity, problem: Problem) -> str:
    """The tree's name, from which its requests take theirs and their seeds.

    With the id, so that two copies of one prompt in a round are two trees.
    """
    digest = hashlib.sha256(f"{problem.id!r}/{problem.key}".encode()).hexdigest()[:32]
    return f"{identity.run}/{identity.round}/{identity.attempt}/{digest}"


def _one_returns(returns: Returns | None, search: Search, credit: Estimator) -> Returns:
    """The collection's one source of γ, β and κ."""
    named = {
        f"search phase {index}": strength
        for index, phase in enumerate(search.phases)
        if (strength := getattr(phase.allocator, "prior_strength", None)) is not None
    }
    if credit.prior_strength is not None:
        named["credit"] = credit.prior_strength
    if returns is not None:
        named["returns"] = returns.prior_strength
    if len(set(named.values())) > 1:
        listed = ", ".join(f"{part}: {value:g}" for part, value in named.items())
        raise ConfigError(f"prior_strength must have one value, got {listed}")
    if returns is not None:
        return returns
    return Returns(prior_strength=next(iter(named.values()))) if named else Returns()
