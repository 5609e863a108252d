"""A task whose values are known: a slanted walk, and a policy that learns to climb.

A problem names a slope. Each of 12 steps is "+" or "-"; the solution is right if it ends
above its start. The chance of a step up is σ(slope's logit + θ[height]); θ is the policy's
only weight and is trained through Slime's hooks. A critic must read the slope and count
the steps so far, and is worth something at once: V of a checkpoint is anything from 0 to 1.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import anyio.lowlevel
import torch

from focus import (
    Agent,
    Allowance,
    Collector,
    Critic,
    DirectBranchTd,
    Execution,
    ExecutionServices,
    Policy,
    Problem,
    Search,
    Segments,
)
from focus.models import BUILTIN
from focus.policies.base import RequestTag
from focus.policies.codec import Codec
from focus.problem import Message
from focus.rendering import load_tokenizer
from focus.sampling import Sampling
from focus.testing.envs import WalkEnv
from focus.tokens import FinishReason, Generation, TokenIds

__all__ = ("SPLITS", "TablePolicy", "WalkModel", "collector", "problems", "theta_of")

STEPS = 12
TOKENS = 100
HEIGHTS = 4
"""Heights beyond ±HEIGHTS share a weight."""

SPLITS = {"train": 0, "outcomes": 10_000_000, "heldout": 20_000_000}
"""Where the numbers of a split's problems begin; no two splits share one."""

_OTHER = -30.0
"""Logit of every id that is no step here; its probability is 1e-13."""


def problems(split: str, count: int, *, seed: int, first: int = 0) -> list[Problem]:
    """Problems of a split; the same for the same seed."""
    rng = random.Random(f"{split}/{seed}/{first}")
    start = SPLITS[split] + 100_000 * seed + first
    return [
        Problem(id=number, prompt=f"Walk {number}, slope {rng.randrange(10)}")
        for number in range(start, start + count)
    ]


@cache
def _tokenizer() -> Any:
    return load_tokenizer(BUILTIN)


@cache
def _signs() -> tuple[int, int, int, int]:
    """Ids of "+", "-" and the end, and the size of the vocabulary."""
    tokenizer = _tokenizer()
    (plus,), (minus,) = tokenizer.encode("+"), tokenizer.encode("-")
    return plus, minus, tokenizer.eos_token_id, len(tokenizer)


@cache
def _slope(prompt: TokenIds) -> float:
    """Logit of a step up that the prompt's slope gives: chances 0.05, 0.15, … 0.95."""
    text = _tokenizer().decode(prompt)
    chance = 0.05 + 0.1 * int(text.partition("slope ")[2][0])
    return math.log(chance / (1 - chance))


def _split(ids: Sequence[int]) -> tuple[TokenIds, list[int]]:
    """The prompt, and the steps after it."""
    plus, minus, _, _ = _signs()
    last = len(ids)
    while last and ids[last - 1] in (plus, minus):
        last -= 1
    return tuple(ids[:last]), list(ids[last:])


def _bucket(height: int) -> int:
    return max(-HEIGHTS, min(HEIGHTS, height)) + HEIGHTS


class WalkModel(torch.nn.Module):
    """The policy as Slime's trainer sees it: ids [T] to logits [T, V]."""

    def __init__(self, theta: Sequence[float] = (0.0,) * (2 * HEIGHTS + 1)) -> None:
        super().__init__()
        self.theta = torch.nn.Parameter(torch.tensor(theta, dtype=torch.float64))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        plus, minus, end, size = _signs()
        ids = tokens.tolist()
        while ids and ids[-1] == end:
            ids.pop()
        prompt, steps = _split(ids)
        logits = torch.full((len(tokens), size), _OTHER, dtype=torch.float64)
        height, slope = 0, _slope(prompt)
        for done in range(len(steps) + 1):
            position = len(prompt) - 1 + done
            if done == STEPS:
                logits[position, end] = 0.0
                break
            logit = slope + self.theta[_bucket(height)]
            logits[position, plus], logits[position, minus] = logit / 2, -logit / 2
            height += 0 if done == len(steps) else 1 if steps[done] == plus else -1
        return logits

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(self.theta.tolist()))


def theta_of(path: Path) -> list[float]:
    """Weights that `WalkModel.save` wrote."""
    found: list[float] = json.loads(path.read_text())
    return found


class TablePolicy:
    """The same policy as it samples; draws depend on a request's name only."""

    context_limit: int | None = 4096
    train_temperature = 1.0

    def __init__(self, theta: Sequence[float], *, version: str) -> None:
        self._theta = list(theta)
        self._codec = Codec.of(tokenizer=None, model="builtin", profile="token_chunk")
        self.version = version
        self.vocab_size: int | None = self._codec.vocab_size
        self.tokenizer_hash = self._codec.tokenizer_hash

    def render(self, messages: Sequence[Message], tools: Sequence[Any] = ()) -> TokenIds:
        return self._codec.render(messages, tools)

    def decode(self, ids: Sequence[int], *, keep_special: bool = False) -> str:
        return self._codec.decode(ids, keep_special=keep_special)

    async def generate(
        self, prefix: TokenIds, sampling: Sampling, *, tag: RequestTag | None = None
    ) -> Generation:
        await anyio.lowlevel.checkpoint()
        name = "" if tag is None else tag.request
        ids, log_probs = self._walk(prefix, random.Random(name), sampling.max_tokens or STEPS + 1)
        stopped = ids[-1] == _signs()[2]
        return Generation(
            ids=ids,
            log_probs=log_probs,
            finish=FinishReason.STOP if stopped else FinishReason.LENGTH,
            version=self.version,
            request_id=name,
            cached_tokens=0,
        )

    def _walk(
        self, prefix: TokenIds, rng: random.Random, most: int
    ) -> tuple[TokenIds, tuple[float, ...]]:
        plus, minus, end, size = _signs()
        prompt, steps = _split(prefix)
        slope, height = _slope(prompt), sum(1 if step == plus else -1 for step in steps)
        ids: list[int] = []
        log_probs: list[float] = []
        while len(ids) < most:
            if len(steps) + len(ids) == STEPS:
                ids.append(end)
                log_probs.append(-math.log1p((size - 1) * math.exp(_OTHER)))
                break
            half = (slope + self._theta[_bucket(height)]) / 2
            total = math.exp(half) + math.exp(-half)
            up = rng.random() < math.exp(half) / total
            rest = math.log(total + (size - 2) * math.exp(_OTHER))
            ids.append(plus if up else minus)
            log_probs.append((half if up else -half) - rest)
            height += 1 if up else -1
        return tuple(ids), tuple(log_probs)


def collector(policy: Policy, critic: Critic, services: ExecutionServices) -> Collector:
    """What collects one tree, in training and in measuring."""
    return Collector(
        agent=Agent(
            policy,
            parser=Segments(3),
            allowance=Allowance(tokens=STEPS + 1),
            execution=Execution(services=services),
        ),
        env=WalkEnv(),
        search=Search.two_phase(tokens=TOKENS, concurrency=4),
        critic=critic,
        credit=DirectBranchTd(),
        own=False,
    )
