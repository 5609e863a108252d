"""A5: a sampler that draws from another law than its trainer assumes gets no request out."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio

from focus import Agent, Allowance, Collector, Problem, Sampling, Search, Segments
from focus.errors import ConfigError, ProblemError
from focus.integrations.slime import make_evaluate, make_generate
from focus.policies.base import RequestTag
from focus.policies.convention import LogProbConvention, probe_convention
from focus.policies.sglang import SGLangPolicy
from focus.problem import Message
from focus.promises.base import Measured, Stand
from focus.promises.hosts import HostSample, Walker, host_args
from focus.testing.envs import WalkEnv, walk_script
from focus.testing.policies import ScriptedPolicy
from focus.tokens import FinishReason, Generation, TokenIds

__all__ = ("Law", "OneStep", "agreed", "disagreements", "log_softmax", "reported")

_TEMPERATURES = (0.5, 0.7, 1.0, 1.3)
_TOP_PS = (1.0, 0.99, 0.5)
_TOP_KS = (None, 1, 40)


@dataclass(frozen=True)
class Law:
    """What an agent samples with, or what a trainer divides by."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None


def agreed(stand: Stand) -> Measured:
    """Every pair of differing laws at every entrance, and what servers may report.

    Counts pairs that were accepted, refusals after a first request, equal laws that were
    refused, and log-prob conventions that were taken for another.
    """
    results = [*disagreements(), *_stops(), *_full_contexts(), *_conventions()]
    wrong = [name for name, is_right in results if not is_right]
    stand.progress(len(results), len(results))
    return Measured(len(wrong), len(results), {"wrong": wrong})


def disagreements() -> Iterator[tuple[str, bool]]:
    """Each pair of laws at each entrance: refused unless they are equal."""
    laws = [Law(*parts) for parts in itertools.product(_TEMPERATURES, _TOP_PS, _TOP_KS)]
    for sampler in laws:
        for temperature in _TEMPERATURES:
            name = f"collector: trainer {temperature}, agent {sampler}"
            yield name, _collector_refuses(temperature, sampler) != (sampler == Law(temperature))
    for trainer, sampler in itertools.product(laws, laws):
        if _is_usual(trainer) or _is_usual(sampler):
            may_pass = trainer == sampler == Law(trainer.temperature)
            name = f"slime: trainer {trainer}, agent {sampler}"
            yield name, _slime_refuses(trainer, sampler) != may_pass


def _is_usual(law: Law) -> bool:
    """Pairs in which neither side is usual are told apart by the same comparison twice."""
    return law.top_p == 1.0 and law.top_k is None


def _collector_refuses(temperature: float, law: Law) -> bool:
    policy = ScriptedPolicy(walk_script(6), train_temperature=temperature)
    agent = Agent(
        policy, parser=Segments(3), sampling=_sampling(law), allowance=Allowance(tokens=7)
    )

    async def collect() -> None:
        collector = Collector(agent=agent, env=WalkEnv(), search=Search.two_phase(tokens=20))
        async with collector:
            await collector.collect(Problem(id=0, prompt="Walk."))

    try:
        anyio.run(collect)
    except ConfigError:
        assert policy.requests == 0, "refused, but not before the first request"
        return True
    return False


def _sampling(law: Law) -> Sampling:
    return Sampling(temperature=law.temperature, top_p=law.top_p, top_k=law.top_k)


def _slime_refuses(trainer: Law, sampler: Law) -> bool:
    walker = Walker(sampling=_sampling(sampler), train_temperature=trainer.temperature)
    return _refuses(
        walker,
        rollout_temperature=trainer.temperature,
        rollout_top_p=trainer.top_p,
        rollout_top_k=-1 if trainer.top_k is None else trainer.top_k,
    )


def _refuses(walker: Walker, **settings: Any) -> bool:
    hook = make_generate(walker, profile="token_chunk")
    try:
        anyio.run(hook, host_args(**settings), HostSample(index=0, prompt="Walk."), {})
    except ConfigError:
        assert walker.requests == 0, "refused, but not before the first request"
        return True
    return False


def _stops() -> Iterator[tuple[str, bool]]:
    """An agent that samples past the trainer's stop ids."""
    for trainer, sampler in itertools.product([(), (2,), (2, 3)], repeat=2):
        walker = Walker(sampling=Sampling(stop=sampler) if sampler else None)
        is_refused = _refuses(walker, rollout_stop_token_ids=list(trainer))
        yield (
            f"stops: trainer {trainer}, agent {sampler}",
            is_refused != (set(trainer) <= set(sampler)),
        )


def _full_contexts() -> Iterator[tuple[str, bool]]:
    """A prompt that leaves no room in the context that the trainer assumes."""
    for limit in (1, 8, 24):
        walker = Walker(context_limit=limit)
        hook = make_evaluate(walker, profile="token_chunk")
        try:
            anyio.run(hook, host_args(), HostSample(index=0, prompt="Walk on and on."), {})
        except ProblemError:
            yield f"context of {limit}", walker.requests == 0
        else:
            yield f"context of {limit}", False


def _conventions() -> Iterator[tuple[str, bool]]:
    """A two-token model with known logits behind servers of each convention."""
    known = [name for name in LogProbConvention if name is not LogProbConvention.UNCLEAR]
    for told, gap in itertools.product(known, (0.5, 1.0, 2.0)):
        policy = OneStep((0.0, gap), told)
        found = anyio.run(probe_convention, policy, (0,))
        yield f"{told} with logits 0 and {gap}", found is told
    for told, temperature in itertools.product(known, _TEMPERATURES):
        must_pass = told is LogProbConvention.PROCESSED or (
            told is LogProbConvention.RAW and temperature == 1.0
        )
        yield f"{told} declared at {temperature}", _may_declare(told, temperature) or not must_pass
        if told is LogProbConvention.RAW and temperature != 1.0:
            yield f"{told} refused at {temperature}", not _may_declare(told, temperature)


def _may_declare(convention: LogProbConvention, temperature: float) -> bool:
    try:
        SGLangPolicy(
            "http://127.0.0.1:9",
            model="builtin",
            train_temperature=temperature,
            log_probs=convention.value,
        )
    except ConfigError:
        return False
    return True


def log_softmax(logits: Sequence[float]) -> list[float]:
    """Log-probs of a softmax."""
    top = max(logits)
    total = math.log(math.fsum(math.exp(value - top) for value in logits)) + top
    return [value - total for value in logits]


def reported(
    logits: Sequence[float], temperature: float, convention: LogProbConvention
) -> list[float]:
    """Log-probs that a server of this convention reports."""
    if convention is LogProbConvention.PROCESSED:
        return log_softmax([value / temperature for value in logits])
    scale = temperature if convention is LogProbConvention.DIVIDED else 1.0
    return [value / scale for value in log_softmax(logits)]


class OneStep:
    """A policy of one distribution that reports by a convention."""

    version, train_temperature, tokenizer_hash = "one", 1.0, ""
    context_limit: int | None = None

    def __init__(self, logits: Sequence[float], convention: LogProbConvention) -> None:
        self.logits = logits
        self.convention = convention
        self.vocab_size: int | None = len(logits)
        self.requests = 0

    def render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()
    ) -> TokenIds:
        return (0,)

    def decode(self, ids: Sequence[int], *, keep_special: bool = False) -> str:
        return ""

    async def generate(
        self, prefix: TokenIds, sampling: Sampling, *, tag: RequestTag | None = None
    ) -> Generation:
        self.requests += 1
        temperature, _, _ = sampling.law
        processed = reported(self.logits, temperature, LogProbConvention.PROCESSED)
        rng = random.Random(f"{temperature}/{sampling.seed}")
        (token,) = rng.choices(range(len(processed)), [math.exp(value) for value in processed])
        value = reported(self.logits, temperature, self.convention)[token]
        return Generation((token,), (value,), FinishReason.LENGTH, self.version)
