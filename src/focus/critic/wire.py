"""What served value models are asked and what they answer, per protocol.

A reply is checked for shape and order here; count, range and finiteness are the
:class:`focus.critic.Critic`'s, which sees the values of every kind of critic.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from focus.errors import ConfigError, CorruptReply, Refused
from focus.records.codec import encode_context
from focus.records.records import CriticContext
from focus.records.strict_json import dumps

__all__ = (
    "Activation",
    "ClassifyWire",
    "FocusWire",
    "ScorerProtocol",
    "Scores",
    "SglangWire",
    "Wire",
    "context_digest",
    "tokens_or_text",
    "wire_for",
)

ScorerProtocol = Literal["focus", "sglang", "vllm", "vllm-pooling"]
Activation = Literal["identity", "sigmoid"]


def context_digest(context: CriticContext) -> str:
    """Names a context; the scorer answers with it, so a value is tied to what was asked.

    >>> len(context_digest(CriticContext(renderer="token_chunk/1", text="a", ids=(97,))))
    16
    """
    data = dumps(encode_context(context), what="a context")
    return hashlib.sha256(data).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Scores:
    """One reply.

    Attributes:
        version: the snapshot that answered; None where the protocol does not tell.
        values: in the order of the contexts.
    """

    version: str | None
    values: list[Any]


class Wire(Protocol):
    """One protocol's endpoint, request and reply."""

    path: str

    def payload(self, contexts: Sequence[CriticContext]) -> dict[str, Any]: ...

    def scores(self, reply: Any, contexts: Sequence[CriticContext]) -> Scores:
        """Raises:
        CorruptReply: it has another shape, or another number of values than contexts.
        """
        ...


def tokens_or_text(contexts: Sequence[CriticContext]) -> list[Any]:
    """What a foreign server reads: the ids that training reads, text for text critics."""
    kinds = {context.ids is None for context in contexts}
    if kinds == {True, False}:
        raise Refused("contexts with and without token ids in one request")
    return [context.text if context.ids is None else list(context.ids) for context in contexts]


def wire_for(protocol: ScorerProtocol, *, version: str, activation: Activation | None) -> Wire:
    """The protocol of that name, for one snapshot.

    Raises:
        ConfigError: no protocol of that name, or an activation where the server applies it.
    """
    if protocol == "focus":
        if activation is not None:
            raise ConfigError("protocol 'focus' answers values; leave activation out")
        return FocusWire(version)
    if protocol == "sglang":
        return SglangWire(activation or "identity")
    if protocol == "vllm":
        return ClassifyWire("/classify", "probs", version, activation or "identity")
    if protocol == "vllm-pooling":
        return ClassifyWire("/pooling", "data", version, activation or "identity")
    raise ConfigError(f"protocol must be focus, sglang, vllm or vllm-pooling, got {protocol!r}")


class FocusWire:
    """``focus critic serve``: each request names its snapshot and a session that holds it.

    The client names the session, so a server that was started anew takes it up again.
    Values come back with the digests of the contexts they belong to.
    """

    path = "/score"

    def __init__(self, version: str) -> None:
        self.session: str = secrets.token_hex(16)
        self._version = version

    def payload(self, contexts: Sequence[CriticContext]) -> dict[str, Any]:
        return {
            "session": self.session,
            "version": self._version,
            "contexts": [encode_context(context) for context in contexts],
        }

    def scores(self, reply: Any, contexts: Sequence[CriticContext]) -> Scores:
        version = _field(reply, "version", "the reply")
        values = _list(_field(reply, "values", "the reply"), len(contexts), "the reply's values")
        if _field(reply, "contexts", "the reply") != [context_digest(c) for c in contexts]:
            raise CorruptReply("the reply values other contexts, or in another order")
        return Scores(str(version), [_scalar(value) for value in values])


class SglangWire:
    """SGLang's ``/classify`` over a model with one label; versions are weight versions."""

    path = "/classify"

    def __init__(self, activation: Activation) -> None:
        self._activate = _activation(activation)

    def payload(self, contexts: Sequence[CriticContext]) -> dict[str, Any]:
        inputs = tokens_or_text(contexts)
        return {"text" if isinstance(inputs[0], str) else "input_ids": inputs}

    def scores(self, reply: Any, contexts: Sequence[CriticContext]) -> Scores:
        items = _list(reply, len(contexts), "the reply")
        values, versions = [], set()
        for place, item in enumerate(items):
            meta = _field(item, "meta_info", f"reply {place}")
            versions.add(_field(meta, "weight_version", f"reply {place}"))
            values.append(self._activate(_scalar(_field(item, "embedding", f"reply {place}"))))
        if len(versions) != 1:
            raise CorruptReply(f"one reply with weight versions {sorted(map(repr, versions))}")
        return Scores(str(versions.pop()), values)


class ClassifyWire:
    """vLLM's pooling endpoints over a model with one label.

    The model is served under the version's name (``--served-model-name``), and each reply
    says which model answered. Items are put in order by their index.
    """

    def __init__(self, path: str, field: str, version: str, activation: Activation) -> None:
        self.path = path
        self._field = field
        self._version = version
        self._activate = _activation(activation)

    def payload(self, contexts: Sequence[CriticContext]) -> dict[str, Any]:
        return {"model": self._version, "input": tokens_or_text(contexts)}

    def scores(self, reply: Any, contexts: Sequence[CriticContext]) -> Scores:
        items = _list(_field(reply, "data", "the reply"), len(contexts), "the reply's data")
        by_index: dict[int, Any] = {}
        for item in items:
            index = _field(item, "index", "an item")
            if type(index) is not int or not 0 <= index < len(contexts) or index in by_index:
                raise CorruptReply(f"index {index!r} in a reply to {len(contexts)} contexts")
            by_index[index] = self._activate(_scalar(_field(item, self._field, f"item {index}")))
        values = [by_index[index] for index in range(len(contexts))]
        return Scores(str(_field(reply, "model", "the reply")), values)


def _activation(name: Activation) -> Callable[[Any], Any]:
    if name == "identity":
        return lambda value: value
    if name == "sigmoid":
        return _sigmoid
    raise ConfigError(f"activation must be 'identity' or 'sigmoid', got {name!r}")


def _sigmoid(value: Any) -> float:
    """In a form that cannot overflow; NaN stays NaN, for the critic to refuse."""
    small = math.exp(-abs(value))
    return 1.0 / (1.0 + small) if value >= 0 else small / (1.0 + small)


def _list(value: Any, count: int, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise CorruptReply(f"{what} is no list")
    if len(value) != count:
        raise CorruptReply(f"{what} has {len(value)} values for {count} contexts")
    return value


def _field(value: Any, name: str, what: str) -> Any:
    if not isinstance(value, dict) or name not in value:
        raise CorruptReply(f"{what} has no {name!r}")
    return value[name]


def _scalar(value: Any) -> float:
    """The one number of a list of one, or a bare number."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CorruptReply(f"expected one number per context, got {str(value)[:60]}")
    return float(value)
