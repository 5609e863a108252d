"""A loopback SGLang whose every reply a test writes, and one collection from it."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.policies.loopback import Answer, Ask, ByteTokenizer, Loopback

from focus import (
    Agent,
    Allowance,
    Collection,
    Collector,
    Critic,
    Execution,
    Problem,
    RetryPolicy,
    Sampling,
    Search,
    Segments,
)
from focus.policies.sglang import SGLangPolicy
from focus.testing.policies import END

__all__ = ("PROBLEM", "Engine", "collect", "grow", "sampled", "served", "written")

PROBLEM = Problem(id="p-17", prompt="Go.")

Write = Callable[[Mapping[str, Any], int], Any]


def sampled(
    asked: Mapping[str, Any],
    ids: Sequence[int],
    *,
    log_probs: Sequence[Any] | None = None,
    finish: str = "stop",
    **meta: Any,
) -> dict[str, Any]:
    """The body that answers `asked` with `ids`; anything in ``meta_info`` may be replaced."""
    values = [-0.25] * len(ids) if log_probs is None else log_probs
    return {
        "text": "",
        "output_ids": list(ids),
        "meta_info": {
            "id": asked["rid"],
            "finish_reason": {"type": finish},
            "prompt_tokens": len(asked["input_ids"]),
            "completion_tokens": len(ids),
            "cached_tokens": 0,
            "weight_version": "v1",
            "output_token_logprobs": [[v, i, None] for v, i in zip(values, ids, strict=True)],
            **meta,
        },
    }


def written(text: str, tokenizer: Any = None) -> Write:
    """Replies that write `text` in bytes and then end, from wherever the prefix stands."""
    whole = [*text.encode(), END]

    def write(asked: Mapping[str, Any], number: int) -> dict[str, Any]:
        prefix, most = asked["input_ids"], asked["sampling_params"]["max_new_tokens"]
        begun = next((k for k in range(len(whole), 0, -1) if prefix[-k:] == whole[:k]), 0)
        rest = whole[begun:]
        finish = "stop" if len(rest) <= most else "length"
        return sampled(asked, rest[:most], finish=finish)

    return write


class Engine:
    """Answers ``/generate`` with what `write` says: a body, an answer, bytes, or None to reset.

    Attributes:
        payloads: the requests as they came.
        version: weights that it names when asked.
    """

    def __init__(self, write: Write, *, version: str = "v1") -> None:
        self._write = write
        self.version = version
        self.payloads: list[dict[str, Any]] = []

    @property
    def prefixes(self) -> list[list[int]]:
        return [payload["input_ids"] for payload in self.payloads]

    async def __call__(self, ask: Ask) -> Answer | bytes | None:
        if ask.path == "/model_info":
            return Answer.of({"weight_version": self.version})
        if ask.path != "/generate":
            return Answer(status=404)
        self.payloads.append(ask.json)
        made = self._write(ask.json, len(self.payloads) - 1)
        if inspect.isawaitable(made):
            made = await made
        return made if isinstance(made, Answer | bytes | None) else Answer.of(made)


@asynccontextmanager
async def served(
    engine: Engine, *, tokenizer: Any = None, **options: Any
) -> AsyncIterator[SGLangPolicy]:
    """A policy at a server that is up inside the block."""
    async with Loopback(engine) as loopback:
        policy = SGLangPolicy(loopback.url, tokenizer=tokenizer or ByteTokenizer(), **options)
        async with policy:
            yield policy


async def collect(
    policy: Any,
    env: Any,
    *,
    problem: Problem = PROBLEM,
    segment: int = 4,
    allowance: int = 64,
    search: Search | None = None,
    critic: Critic | None = None,
    credit: Any = None,
    sampling: Sampling | None = None,
    execution: Execution | None = None,
    **options: Any,
) -> Collection:
    """One tree; a single rollout unless `search` says otherwise."""
    agent = Agent(
        policy,
        parser=Segments(segment),
        sampling=sampling,
        allowance=Allowance(tokens=allowance),
        execution=execution or Execution(retry=RetryPolicy(base_s=0.0)),
    )
    collector = Collector(
        agent=agent, env=env, search=search or Search.flat(1), critic=critic, credit=credit
    )
    async with collector:
        return await collector.collect(problem, **options)


async def grow(engine: Engine, env: Any, *, tokenizer: Any = None, **options: Any) -> Collection:
    """Serve, collect one tree, and stop."""
    async with served(engine, tokenizer=tokenizer) as policy:
        return await collect(policy, env, **options)
