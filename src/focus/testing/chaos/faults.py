"""What a fault is: how it changes one reply, and what a client must make of it."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from focus.testing.chaos.wire import Send, Step, json_reply

__all__ = ("Act", "Family", "Fault", "Kind", "Scene", "spoiled")


class Kind(StrEnum):
    """The one right reading of a reply under a fault."""

    HARMLESS = "harmless"
    """Odd, but whole and true: accepted as it is."""
    TRANSIENT = "transient"
    """The same request may succeed later."""
    DATA = "data"
    """This request is refused each time."""
    CORRUPT = "corrupt"
    """It arrived and none of it may be used."""
    ABORT = "abort"
    """The server ended it early; no completion."""
    FATAL = "fatal"
    """No request can succeed."""


class Family(StrEnum):
    """Where in a reply the fault sits."""

    TRANSPORT = "transport"
    STATUS = "status"
    BODY = "body"
    CONTENT = "content"
    ROUTER = "router"


@dataclass(frozen=True)
class Scene:
    """One request, its honest reply, and a reply that belongs to another request.

    Attributes:
        asked: the request's body.
        body: the honest reply's body; a fault takes `fresh` copies.
        other: as many ids under another name, by the same server.
        rng: the fault's own chance, fixed by the plan's seed and the request.
    """

    asked: Mapping[str, Any]
    body: Mapping[str, Any]
    other: Mapping[str, Any]
    rng: random.Random

    def fresh(self) -> Any:
        """A copy of the honest body that may be changed."""
        return copy.deepcopy(self.body)

    @property
    def honest(self) -> bytes:
        """The honest reply, as bytes."""
        return json_reply(self.body)


Act = Callable[[Scene], Sequence[Step]]


@dataclass(frozen=True)
class Fault:
    """One way in which a reply goes wrong.

    Attributes:
        name: unique.
        family: where it sits.
        kind: what a client must make of it.
        act: the steps of the reply.
        is_detectable: False where no client can tell from the reply alone.
        plants: an id that the engine samples just before the end; odd, but true.
        hits: requests that it strikes in a row, this one included.
        is_silent: only the client's own deadline ends it.
        refuses: the server takes no new connection for a moment.
        aborts_others: connections of other requests in flight are torn down too.
    """

    name: str
    family: Family
    kind: Kind
    act: Act
    is_detectable: bool = True
    plants: int | None = None
    hits: int = 1
    is_silent: bool = False
    refuses: bool = False
    aborts_others: bool = False

    @property
    def strikes_once(self) -> bool:
        """It passes at once and harms no other request."""
        return not (self.is_silent or self.refuses or self.aborts_others or self.hits > 1)

    @property
    def delivers(self) -> bool:
        """Whether a whole reply reaches the client, be it right or wrong."""
        is_cut = self.family is Family.TRANSPORT and self.kind is not Kind.HARMLESS
        return not is_cut and self.kind is not Kind.TRANSIENT and self.family is not Family.STATUS


def spoiled(change: Callable[[Any, Scene], Any]) -> Act:
    """The honest body after `change`, which may alter it or return another value.

    >>> scene = Scene({}, {"text": "a"}, {}, random.Random(0))
    >>> spoiled(lambda body, scene: [body])(scene)[0].data[-15:]
    b'[{"text": "a"}]'
    """

    def act(scene: Scene) -> Sequence[Step]:
        body = scene.fresh()
        changed = change(body, scene)
        return (Send(json_reply(body if changed is None else changed)),)

    return act
