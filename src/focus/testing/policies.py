"""Policies without a model: scripted, recorded, and ones that change timing or fail."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio.lowlevel

from focus.errors import ConfigError, Refused, RequestError
from focus.policies.base import Ask, Conversing, Policy, Refreshable, RequestTag
from focus.problem import Message
from focus.sampling import Sampling
from focus.tokens import FinishReason, Generation, TokenIds

__all__ = (
    "END",
    "Grouped",
    "RecordedPolicy",
    "RecordingPolicy",
    "ScriptedPolicy",
    "Shuffled",
    "Wrapper",
)

END = 256
"""The end token of the byte vocabulary that scripted policies speak."""

Script = Callable[[str, str, random.Random], str]


class ScriptedPolicy:
    """Writes what a function says, byte by byte, with made-up but consistent log-probs.

    Args:
        script: ``(prompt, reply_so_far, rng) -> rest of the reply``. The generator is
            seeded by the request's name, so replies depend on identity, not on timing.
        version, context_limit, train_temperature: as in :class:`focus.policies.base.Policy`.

    >>> policy = ScriptedPolicy(lambda prompt, so_far, rng: "4")
    >>> policy.decode(policy.render([Message("user", "2+2?")]))
    'user: 2+2?\\nassistant: '
    """

    def __init__(
        self,
        script: Script,
        *,
        version: str = "scripted",
        context_limit: int | None = 4096,
        train_temperature: float = 1.0,
    ) -> None:
        self._script = script
        self.version = version
        self.context_limit = context_limit
        self.train_temperature = train_temperature
        self.vocab_size: int | None = 257
        self.tokenizer_hash = "bytes"
        self.requests = 0

    def render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()
    ) -> TokenIds:
        lines = [f"{message.role}: {message.content}\n" for message in messages]
        return tuple("".join([*lines, "assistant: "]).encode())

    def continuation(self, messages: Sequence[Message], *, closed: bool) -> TokenIds:
        lines = [f"\n{message.role}: {message.content}" for message in messages]
        ids = tuple("".join([*lines, "\nassistant: "]).encode())
        return ids if closed else (END, *ids)

    def decode(self, ids: Sequence[int], *, keep_special: bool = False) -> str:
        parts = bytes(token for token in ids if token < 256).decode(errors="replace")
        return parts + ("<end>" if keep_special and END in ids else "")

    async def generate(
        self, prefix: TokenIds, sampling: Sampling, *, tag: RequestTag | None = None
    ) -> Generation:
        self.requests += 1
        await anyio.lowlevel.checkpoint()
        name = tag.request if tag is not None else "request"
        prompt, _, so_far = self.decode(prefix).rpartition("assistant: ")
        rest = self._script(prompt, so_far, random.Random(f"{sampling.seed}/{name}"))
        ids = (*rest.encode(), END)
        cap = sampling.max_tokens or len(ids)
        finish = FinishReason.STOP if len(ids) <= cap else FinishReason.LENGTH
        ids = ids[:cap]
        return Generation(
            ids=ids,
            log_probs=tuple(-0.001 * (1 + token % 97) for token in ids),
            finish=finish,
            version=self.version,
            request_id=name,
            cached_tokens=0,
        )


class Wrapper:
    """A policy that passes everything but `generate` to another."""

    def __init__(self, inner: Policy) -> None:
        self.inner = inner

    @property
    def version(self) -> str:
        return self.inner.version

    @property
    def context_limit(self) -> int | None:
        return self.inner.context_limit

    @property
    def train_temperature(self) -> float:
        return self.inner.train_temperature

    @property
    def vocab_size(self) -> int | None:
        return self.inner.vocab_size

    @property
    def tokenizer_hash(self) -> str:
        return self.inner.tokenizer_hash

    def render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()
    ) -> TokenIds:
        return self.inner.render(messages, tools)

    def continuation(self, messages: Sequence[Message], *, closed: bool) -> TokenIds:
        if not isinstance(self.inner, Conversing):
            raise ConfigError(f"{type(self.inner).__name__} cannot be answered")
        return self.inner.continuation(messages, closed=closed)

    def decode(self, ids: Sequence[int], *, keep_special: bool = False) -> str:
        return self.inner.decode(ids, keep_special=keep_special)

    async def refresh(self) -> None:
        if isinstance(self.inner, Refreshable):
            await self.inner.refresh()

    async def generate(
        self, prefix: TokenIds, sampling: Sampling, *, tag: RequestTag | None = None
    ) -> Generation:
        return await self.inner.generate(prefix, sampling, tag=tag)


class Grouped(Wrapper):
    """Answers siblings in one call, each as the policy inside would alone.

    Attributes:
        calls: continuations that each call asked for, lone ones included.
    """

    def __init__(self, inner: Policy) -> None:
        super().__init__(inner)
        self.calls: list[int] = []

    @property
    def samples_together(self) -> bool:
        return True

    async def generate(
        self, prefix: TokenIds, sampling: Sampling, *, tag: RequestTag | None = None
    ) -> Generation:
        self.calls.append(1)
        return await self.inner.generate(prefix, sampling, tag=tag)

    async def generate_group(
        self, prefix: TokenIds, asks: Sequence[Ask]
    ) -> Sequence[Generation | RequestError]:
        self.calls.append(len(asks))
        return [await self._one(prefix, ask) for ask in asks]

    async def _one(self, prefix: TokenIds, ask: Ask) -> Generation | RequestError:
        try:
            return await self.inner.generate(prefix, ask.sampling, tag=ask.tag)
        except RequestError as error:
            return error


class Shuffled(Wrapper):
    """Delays each reply by a random number of scheduler turns; never changes it."""

    def __init__(self, inner: Policy, *, seed: int, most_turns: int = 20) -> None:
        super().__init__(inner)
        self._rng = random.Random(seed)
        self._most_turns = most_turns

    async def generate(
        self, prefix: TokenIds, sampling: Sampling, *, tag: RequestTag | None = None
    ) -> Generation:
        generation = await self.inner.generate(prefix, sampling, tag=tag)
        for _ in range(self._rng.randrange(self._most_turns)):
            await anyio.lowlevel.checkpoint()
        return generation


class RecordingPolicy(Wrapper):
    """Keeps every reply by request name, to be replayed by :class:`RecordedPolicy`."""

    def __init__(self, inner: Policy) -> None:
        super().__init__(inner)
        self.replies: dict[str, dict[str, Any]] = {}

    async def generate(
        self, prefix: TokenIds, sampling: Sampling, *, tag: RequestTag | None = None
    ) -> Generation:
        generation = await self.inner.generate(prefix, sampling, tag=tag)
        if tag is not None:
            self.replies[tag.request] = {
                "prefix_tokens": len(prefix),
                "ids": list(generation.ids),
                "log_probs": list(generation.log_probs),
                "finish": generation.finish.value,
                "version": generation.version,
                "request_id": generation.request_id,
                "cached_tokens": generation.cached_tokens,
            }
        return generation

    def save(self, path: str | Path) -> None:
        """Write the replies as one JSON object."""
        Path(path).write_text(json.dumps(self.replies, indent=0, sort_keys=True))


class RecordedPolicy(Wrapper):
    """Answers each request with the reply recorded under its name.

    `inner` renders and decodes; it is never asked to generate.
    """

    def __init__(self, inner: Policy, replies: Mapping[str, Mapping[str, Any]]) -> None:
        super().__init__(inner)
        self._replies = replies

    @classmethod
    def load(cls, inner: Policy, path: str | Path) -> RecordedPolicy:
        """Read replies that :meth:`RecordingPolicy.save` wrote."""
        return cls(inner, json.loads(Path(path).read_text()))

    async def generate(
        self, prefix: TokenIds, sampling: Sampling, *, tag: RequestTag | None = None
    ) -> Generation:
        await anyio.lowlevel.checkpoint()
        name = tag.request if tag is not None else ""
        reply = self._replies.get(name)
        if reply is None or reply["prefix_tokens"] != len(prefix):
            raise Refused(f"no recorded reply for request {name!r} with {len(prefix)} tokens")
        return Generation(
            ids=tuple(reply["ids"]),
            log_probs=tuple(reply["log_probs"]),
            finish=FinishReason(reply["finish"]),
            version=reply["version"],
            request_id=reply["request_id"],
            cached_tokens=reply["cached_tokens"],
        )
