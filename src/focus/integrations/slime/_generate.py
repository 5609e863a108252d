"""The hooks that Slime awaits for every prompt: collect a tree, or solve once."""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import anyio.to_thread

from focus._cancellation import to_its_end
from focus.agent import Agent
from focus.collect import Collection, Collector
from focus.errors import (
    CollectionFailed,
    ConfigError,
    EnvError,
    FocusError,
    ProblemError,
    RequestError,
    SchemaError,
)
from focus.integrations.slime._outcomes import Outcomes
from focus.integrations.slime._refusals import check_args, check_critic_route
from focus.integrations.slime._rounds import Rounds, settle_all
from focus.integrations.slime._samples import new_sample, samples_of
from focus.loop.rounds import RoundCritics
from focus.policies.base import Policy
from focus.policies.slime import SlimePolicy
from focus.problem import Message, Problem
from focus.records import JsonlDirectory, RowPacking, decode_message
from focus.tree import Identity

__all__ = ("CollectorFor", "Hook", "make_evaluate", "make_generate")

CollectorFor = Callable[[Policy, Problem], Collector]
Hook = Callable[..., Awaitable[Any]]

_LOG = logging.getLogger("focus.integrations.slime")


def make_generate(
    collector_for: CollectorFor,
    *,
    profile: str,
    critic_sink: JsonlDirectory | None = None,
    allow_partial: bool = False,
    packing: RowPacking = "segment",
    critic: Literal["slime"] | None = None,
    critics: RoundCritics | None = None,
    outcome_sink: JsonlDirectory | None = None,
) -> Hook:
    """Slime's custom generate function: one tree per prompt, its segments as samples.

    For each prompt: a `SlimePolicy` for the model behind Slime's router, a fresh collector
    from `collector_for`, one tree. Its critic records are on disk before its samples are
    returned. Under ``evaluation=True``, as Slime calls it for ``--eval-prompt-data``, it
    does what `make_evaluate`'s hook does: no branches, no records.

    Args:
        collector_for: builds the collector of one problem.
        profile: how messages become prompt ids, e.g. ``"token_chunk"``.
        critic_sink: where critic records go; None drops them.
        allow_partial: train on what is left of a tree with failed expansions.
        packing: ``"segment"``, one sample per edge, or ``"path"``, one per root-to-leaf
            path, whatever the collector's own.
        critic: ``"slime"`` sends the critic's targets to Slime's critic.
        critics: of ``focus loop``: each round is collected with the critic that was decided
            for it, instead of the collector's own, and waits until it is. Until one steers,
            credit is RefinedTd.
        outcome_sink: as in `make_evaluate`, for what Slime evaluates through this hook.

    Returns:
        ``async (args, sample, sampling_params, evaluation=False)``, giving a list of
        samples (an evaluated sample is given alone). `sampling_params` is not read:
        sampling settings are the agent's.

    Raises:
        ConfigError: an unknown packing or critic, or targets with packing "path".
    """
    if packing not in ("segment", "path"):
        raise ConfigError(f"packing must be 'segment' or 'path', got {packing!r}")
    if critic not in (None, "slime"):
        raise ConfigError(f"critic must be 'slime' or None, got {critic!r}")
    if critic is not None and packing != "segment":
        raise ConfigError('critic="slime" needs packing="segment": a sample brings one target')
    trees = _Trees(
        collector_for=collector_for,
        profile=profile,
        rounds=Rounds(critic_sink),
        allow_partial=allow_partial,
        packing=packing,
        with_targets=critic is not None,
        critics=critics,
    )
    solve = make_evaluate(collector_for, profile=profile, outcome_sink=outcome_sink)

    async def generate(
        args: Any, sample: Any, sampling_params: Mapping[str, Any], evaluation: bool = False
    ) -> Any:
        if evaluation:
            return await solve(args, sample, sampling_params, evaluation=True)
        return await trees.samples(args, sample)

    return generate


def make_evaluate(
    collector_for: CollectorFor, *, profile: str, outcome_sink: JsonlDirectory | None = None
) -> Hook:
    """Slime's evaluation function: one unbranched solution and its outcome reward.

    The sample holds the input and output tokens of the solution's last generation, as they
    were sent and sampled, and the whole solution as text. Nothing is recorded for training.

    Args:
        collector_for: builds the collector of one problem; its agent and env are used.
        profile: how messages become prompt ids.
        outcome_sink: where each solution's checkpoints go with its outcome, under the last
            round that was begun; a critic is judged on them. Evaluate prompts that neither
            the policy nor the critic is trained on.

    Returns:
        ``async (args, sample, sampling_params, evaluation=False)``, giving one sample.
        `sampling_params`, which Slime shares between all prompts, is neither read nor
        changed: sampling settings are the agent's.
    """
    calls = itertools.count()
    outcomes = None if outcome_sink is None else Outcomes(outcome_sink)

    @functools.cache
    def mention(ignored: str) -> None:
        _LOG.warning("evaluation samples as the agent does; %s is not used", ignored)

    async def evaluate(
        args: Any, sample: Any, sampling_params: Mapping[str, Any], evaluation: bool = False
    ) -> Any:
        check_args(args)
        settle_all()
        problem = _problem(sample)
        # Slime solves a prompt several times at once; each solution gets a name of its own.
        identity = Identity(run="eval", round=next(calls))
        async with SlimePolicy(args, profile=profile) as policy:
            with _naming(problem):
                collector = _collector(collector_for, policy, problem)
                if ignored := _ignored(sampling_params or {}, collector.agent):
                    mention(str(ignored))
                async with collector:
                    found = await collector.evaluate(
                        problem, identity=identity, with_contexts=outcomes is not None
                    )
            if outcomes is not None:
                note = functools.partial(outcomes.note, args, problem, found, collector)
                await to_its_end(anyio.to_thread.run_sync(note))
        return new_sample(
            sample,
            found.prefix,
            found.ids,
            mask=[1] * len(found.ids),
            log_probs=list(found.log_probs),
            reward=found.outcome,
            truncated=found.truncated,
            text=found.text,
        )

    return evaluate


@dataclass(frozen=True, kw_only=True)
class _Trees:
    """What `make_generate` was given, and the books of its rounds."""

    collector_for: CollectorFor
    profile: str
    rounds: Rounds
    allow_partial: bool
    packing: RowPacking
    with_targets: bool
    critics: RoundCritics | None

    async def samples(self, args: Any, source: Any) -> list[Any]:
        """Everything is checked before a request is sent; records are stored before samples
        are given away."""
        check_args(args)
        check_critic_route(args, in_slime=self.with_targets)
        problem = _problem(source)
        async with SlimePolicy(args, profile=self.profile) as policy:
            with _naming(problem):
                collector = _collector(self.collector_for, policy, problem)
                _check_law(args, collector.agent)
                identity = self.rounds.begin(args, source.index)
                if self.critics is not None:
                    collector = (await self.critics.of(identity.round)).steer(collector)
                collection = await self._collect(collector, problem, identity)
                deliver = functools.partial(self._deliver, args, source, collection, collector)
                # A cancelled hook leaves no thread that is still writing.
                return await to_its_end(anyio.to_thread.run_sync(deliver))

    async def _collect(
        self, collector: Collector, problem: Problem, identity: Identity
    ) -> Collection:
        async with collector:
            return await collector.collect(
                problem, allow_partial=self.allow_partial, identity=identity
            )

    def _deliver(
        self, args: Any, source: Any, collection: Collection, collector: Collector
    ) -> list[Any]:
        samples = samples_of(
            collection,
            source,
            packing=self.packing,
            decode=collector.agent.policy.decode,
            with_targets=self.with_targets,
        )
        self.rounds.hand_over(args, collection)
        return samples


def _problem(sample: Any) -> Problem:
    """Slime's sample as a problem; its running number is the id.

    Raises:
        ProblemError: it has no index or no usable prompt.
    """
    if not isinstance(sample.index, int) or isinstance(sample.index, bool):
        raise ProblemError(f"Slime's sample has index {sample.index!r}, not a number")
    return Problem(
        id=sample.index,
        prompt=_prompt(sample.prompt, f"problem {sample.index}"),
        label=sample.label,
        metadata=dict(sample.metadata or {}),
    )


def _prompt(prompt: Any, where: str) -> str | tuple[Message, ...]:
    """Text, or the messages of a data set whose prompts are conversations."""
    if isinstance(prompt, str):
        return prompt
    try:
        return tuple(decode_message(part, where=where) for part in prompt)
    except (SchemaError, TypeError) as error:
        raise ProblemError(f"{where}: the prompt is neither text nor messages: {error}") from error


def _check_law(args: Any, agent: Agent) -> None:
    """Refuse an agent that samples from another law than Slime's trainer assumes.

    Raises:
        ConfigError: naming flag and both values.
    """
    temperature, top_p, top_k = agent.sampling.law
    stops = set(getattr(args, "rollout_stop_token_ids", None) or ())
    pairs = (
        ("--rollout-temperature", getattr(args, "rollout_temperature", temperature), temperature),
        ("--rollout-top-p", getattr(args, "rollout_top_p", 1.0), top_p),
        ("--rollout-top-k", getattr(args, "rollout_top_k", -1), -1 if top_k is None else top_k),
        ("--rollout-stop-token-ids", stops, stops & set(agent.sampling.stop or ())),
    )
    for flag, trainer, sampler in pairs:
        if trainer != sampler:
            raise ConfigError(
                f"{flag}: Slime's trainer assumes {trainer}, the agent samples with {sampler}; "
                "the log-probs would not match. Make them equal, for example with "
                "Sampling(temperature=policy.train_temperature)"
            )


def _ignored(sampling_params: Mapping[str, Any], agent: Agent) -> dict[str, Any]:
    """Settings of an evaluation data set that differ from the agent's, which rule."""
    temperature, top_p, top_k = agent.sampling.law
    used = {"temperature": temperature, "top_p": top_p, "top_k": -1 if top_k is None else top_k}
    return {
        name: sampling_params[name]
        for name, value in used.items()
        if sampling_params.get(name) not in (None, value)
    }


def _collector(collector_for: CollectorFor, policy: Policy, problem: Problem) -> Collector:
    try:
        collector = collector_for(policy, problem)
    except FocusError:
        raise
    except Exception as error:
        raise EnvError(f"collector_for raised {error!r}") from error
    if not isinstance(collector, Collector):
        raise ConfigError(f"collector_for gave {type(collector).__name__}, not a Collector")
    return collector


@contextmanager
def _naming(problem: Problem) -> Iterator[None]:
    """Errors leave with the prompt's id in their text."""
    where = f"problem {problem.id!r}"
    try:
        yield
    except RequestError as error:
        error.located(problem=problem.id)
        raise
    except CollectionFailed:
        raise
    except FocusError as error:
        if where in str(error):
            raise
        raise type(error)(f"{where}: {error}") from error
