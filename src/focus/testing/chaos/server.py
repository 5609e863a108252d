"""A server that speaks SGLang's protocol and answers as a plan of faults says."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

from focus.testing.chaos.engine import ChaosEngine
from focus.testing.chaos.faults import Fault, Scene
from focus.testing.chaos.ledger import ChaosLedger, Entry
from focus.testing.chaos.plans import Clean, Plan
from focus.testing.chaos.wire import Send, Step, Wire
from focus.testing.loopback import Answer, Ask, Loopback, Speech

__all__ = ("ChaosServer",)

_REFUSES_S = 0.002


class ChaosServer:
    """Serves on this machine while open; the same seed and names meet the same faults.

    Args:
        plan: which request meets which fault; may be replaced while it serves.
        engine: samples.

    Attributes:
        ledger: what it did.
    """

    def __init__(self, plan: Plan | None = None, *, engine: ChaosEngine | None = None) -> None:
        self.plan: Plan = plan or Clean()
        self.engine = engine or ChaosEngine()
        self.ledger = ChaosLedger()
        self._loopback = Loopback(self._handle)
        self._started = time.monotonic()
        self._struck: list[Fault] = []
        self._speaking: set[asyncio.StreamWriter] = set()
        self._reopening: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return self._loopback.url

    async def __aenter__(self) -> Self:
        await self._loopback.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._reopening is not None:
            await self._reopening
        await self._loopback.__aexit__()

    def forget(self) -> None:
        """Drop the books so far, for runs too long to keep them."""
        self.ledger.entries.clear()
        self._loopback.asks.clear()

    async def _handle(self, ask: Ask) -> Answer | Speech:
        if ask.path == "/generate":
            return self._generate(ask.json)
        if ask.path == "/abort_request":
            self.ledger.aborts += 1
            return Answer(status=200)
        if ask.path == "/model_info":
            return Answer.of({"model_path": "chaos", "weight_version": self.engine.version})
        return Answer(status=404)

    def _generate(self, asked: Mapping[str, Any]) -> Answer | Speech:
        if isinstance(asked["rid"], list):
            return self._group(asked)
        rid, prefix = asked["rid"], tuple(asked["input_ids"])
        name = rid.partition("~")[0]
        fault = self._fault(name)
        most = asked["sampling_params"]["max_new_tokens"]
        sample = self.engine.sample(name, prefix, most, plants=fault.plants if fault else None)
        entry = Entry(
            rid=rid,
            prefix=prefix,
            most=most,
            sample=sample,
            version=self.engine.version,
            fault=fault,
            at_s=time.monotonic() - self._started,
        )
        self.ledger.entries.append(entry)
        scene = self._scene(asked, entry)
        if fault is None:
            return _Spoken((Send(scene.honest),), entry, self._speaking)
        self._strike(fault)
        return _Spoken(tuple(fault.act(scene)), entry, self._speaking)

    def _group(self, asked: Mapping[str, Any]) -> Answer | Speech:
        """Several requests in one body.

        A fault of content strikes the reply of its own request; any other befalls the body.
        """
        bodies, first = [], len(self.ledger.entries)
        for rid, prefix, params in zip(
            asked["rid"], asked["input_ids"], asked["sampling_params"], strict=True
        ):
            one = {**asked, "rid": rid, "input_ids": prefix, "sampling_params": params}
            speech = self._generate(one)
            said = speech.steps if isinstance(speech, _Spoken) else ()
            body = _body_of(said)
            if body is None:
                return speech
            bodies.append(body)
        for entry in self.ledger.entries[first:]:
            entry.whole = True
        return Answer.of(bodies)

    def _fault(self, name: str) -> Fault | None:
        if self._struck:
            return self._struck.pop()
        fault = self.plan.fault(name, len(self.ledger.entries))
        if fault is not None:
            self._struck = [fault] * (fault.hits - 1)
        return fault

    def _scene(self, asked: Mapping[str, Any], entry: Entry) -> Scene:
        size, version = len(entry.prefix), entry.version
        other = self.engine.another(entry.rid, entry.sample)
        return Scene(
            asked=asked,
            body=entry.sample.body(entry.rid, prompt_tokens=size, version=version),
            other=other.body(f"{entry.rid}-another", prompt_tokens=size, version=version),
            rng=random.Random(f"{entry.rid}/fault"),
        )

    def _strike(self, fault: Fault) -> None:
        """What a fault does beside its own reply."""
        if fault.aborts_others:
            for writer in tuple(self._speaking):
                writer.transport.abort()
        if fault.refuses and self._reopening is None:
            self._loopback.refuse()
            self._reopening = asyncio.ensure_future(self._reopen())

    async def _reopen(self) -> None:
        await asyncio.sleep(_REFUSES_S)
        await self._loopback.listen()
        self._reopening = None


def _body_of(steps: Sequence[Step]) -> Any:
    """The JSON value that is sent, if that is all that happens."""
    sent = b"".join(step.data for step in steps if isinstance(step, Send))
    head, _, body = sent.partition(b"\r\n\r\n")
    if len(steps) != 1 or b" 200 " not in head.split(b"\r\n")[0]:
        return None
    try:
        return json.loads(body)
    except ValueError:
        return None


class _Spoken(Wire):
    """A reply that notes whether it went out whole."""

    def __init__(
        self, steps: Sequence[Step], entry: Entry, speaking: set[asyncio.StreamWriter]
    ) -> None:
        super().__init__(steps)
        self.steps = steps
        self._entry = entry
        self._speaking = speaking

    async def say(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        fault = self._entry.fault
        self._entry.whole = not writer.is_closing() and (fault is None or fault.delivers)
        self._speaking.add(writer)
        try:
            return await super().say(reader, writer)
        finally:
            self._speaking.discard(writer)
