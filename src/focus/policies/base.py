"""What FOCUS asks of a policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from focus.errors import RequestError
from focus.problem import Message
from focus.sampling import Sampling
from focus.tokens import Generation, TokenIds

__all__ = ("Ask", "Conversing", "Grouping", "Policy", "Refreshable", "RequestTag")


@dataclass(frozen=True, slots=True)
class RequestTag:
    """A request's name, fixed before it is sent.

    Attributes:
        request: unique per try, e.g. ``"run/0/0/ab12cd/3/1/1"``.
        tree: shared by all requests of one tree; a router's cache key.
    """

    request: str
    tree: str


@dataclass(frozen=True, slots=True)
class Ask:
    """One of several continuations of the same prefix.

    Attributes:
        sampling: its own: siblings share a law, never a seed.
        tag: its own name.
    """

    sampling: Sampling
    tag: RequestTag | None = None


@runtime_checkable
class Policy(Protocol):
    """Samples continuations of exact token prefixes.

    Promises: ``ids`` and ``log_probs`` are the sampled ones, one log-prob per id, taken
    after temperature, top-p and top-k; nothing is re-encoded; at most
    ``sampling.max_tokens`` ids come back; the end token, when sampled, is the last id.
    Failures are :class:`focus.errors.RequestError` subclasses. `generate` may be called
    concurrently from one event loop.

    Attributes:
        version: the weights now in use.
        context_limit: most tokens of prompt plus reply; None when unknown.
        train_temperature: what the learner divides logits by.
        vocab_size: ids lie in [0, vocab_size); None when unknown.
        tokenizer_hash: names the id ↔ text mapping; "" when unknown.
    """

    @property
    def version(self) -> str: ...
    @property
    def context_limit(self) -> int | None: ...
    @property
    def train_temperature(self) -> float: ...
    @property
    def vocab_size(self) -> int | None: ...
    @property
    def tokenizer_hash(self) -> str: ...

    def render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()
    ) -> TokenIds:
        """Prompt ids of a conversation, ready for the assistant's reply."""
        ...

    def decode(self, ids: Sequence[int], *, keep_special: bool = False) -> str:
        """Text of `ids` in one decode; special tokens dropped unless kept."""
        ...

    async def generate(
        self, prefix: TokenIds, sampling: Sampling, *, tag: RequestTag | None = None
    ) -> Generation:
        """Sample one continuation of `prefix`."""
        ...


@runtime_checkable
class Grouping(Protocol):
    """A policy that samples several continuations of one prefix in one call.

    Attributes:
        samples_together: whether it does at present.
    """

    @property
    def samples_together(self) -> bool: ...

    async def generate_group(
        self, prefix: TokenIds, asks: Sequence[Ask]
    ) -> Sequence[Generation | RequestError]:
        """One continuation per ask, in order, each as `generate` alone would sample it.

        An error in the place of a reply concerns that ask only. What is raised concerns all.
        Policies without this method are asked once per continuation.
        """
        ...


@runtime_checkable
class Refreshable(Protocol):
    """A policy whose weights live elsewhere and may have changed since the last tree."""

    async def refresh(self) -> None:
        """Make `version` the one served now. Called before each tree is rooted.

        Raises:
            RequestError: whoever serves them did not answer.
        """
        ...


@runtime_checkable
class Conversing(Protocol):
    """A policy that can be answered: it says which ids follow a reply of its own."""

    def continuation(self, messages: Sequence[Message], *, closed: bool) -> TokenIds:
        """Ids between a reply and the next one: end of turn, `messages`, header.

        They are appended to exact ids; nothing before them is rendered again.

        Args:
            closed: the reply's last id ended its turn; if not, the end of turn comes first.

        Raises:
            ConfigError: no ids could be appended without changing those before.
            ProblemError: the messages cannot be rendered.
        """
        ...
