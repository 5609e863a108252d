"""Token ids, log-probabilities and what one generate call returned."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

__all__ = ("FinishReason", "Generation", "LogProbs", "Span", "TokenChain", "TokenIds")

TokenIds = tuple[int, ...]
LogProbs = tuple[float, ...]


class FinishReason(StrEnum):
    """Why a generation ended."""

    STOP = "stop"
    """An end or stop token was sampled: the reply is complete."""
    LENGTH = "length"
    """`max_tokens` was reached: the reply can be continued."""
    ABORT = "abort"
    """The server gave up; never a checkpoint, never a sample."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One reply, exactly as the server sampled it.

    Attributes:
        ids: sampled token ids, the end token included when one was sampled.
        log_probs: natural-log probability of each id under the distribution it was
            sampled from (temperature, top-p and top-k applied).
        finish: why it ended.
        version: policy version that the server reports for this reply.
        request_id: the server's or the client's name for the request.
        cached_tokens: prompt tokens whose keys and values were reused; None if unknown.
    """

    ids: TokenIds
    log_probs: LogProbs
    finish: FinishReason
    version: str
    request_id: str = ""
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """A run of tokens of one kind inside an edge.

    Attributes:
        ids: the tokens.
        log_probs: their behaviour log-probabilities, or None for conditioning
            (an observation or instruction that the policy did not sample).
    """

    ids: TokenIds
    log_probs: LogProbs | None = None

    @property
    def is_sampled(self) -> bool:
        return self.log_probs is not None


class TokenChain:
    """A token sequence that shares its prefix with the sequence it extends.

    Each link holds only its own tokens, so a tree of n distinct tokens costs O(n)
    memory however deep or wide it is.

    >>> prompt = TokenChain((1, 2))
    >>> longer = prompt.extended((3,))
    >>> longer.ids(), len(longer), len(prompt)
    ((1, 2, 3), 3, 2)
    """

    __slots__ = ("_length", "log_probs", "own", "parent")

    def __init__(
        self,
        own: Iterable[int],
        parent: TokenChain | None = None,
        log_probs: LogProbs | None = None,
    ) -> None:
        self.own: TokenIds = tuple(own)
        self.parent: TokenChain | None = parent
        self.log_probs: LogProbs | None = log_probs
        self._length: int = len(self.own) + (0 if parent is None else parent._length)

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"TokenChain({self._length} tokens)"

    def extended(self, ids: Iterable[int], log_probs: LogProbs | None = None) -> TokenChain:
        """This sequence followed by `ids`; `log_probs` are theirs if they were sampled."""
        return TokenChain(ids, self, log_probs)

    @property
    def first(self) -> TokenChain:
        """The link that the whole sequence starts with: the prompt of a conversation."""
        link = self
        while link.parent is not None:
            link = link.parent
        return link

    def ids(self) -> TokenIds:
        """All tokens from the start, as one tuple."""
        return self.since(0)

    def since(self, start: int) -> TokenIds:
        """All tokens from position `start` on; what lies before is not visited.

        >>> TokenChain((1, 2)).extended((3, 4)).since(1)
        (2, 3, 4)
        """
        links = []
        link: TokenChain | None = self
        while link is not None and link._length > start:
            links.append(link.own)
            link = link.parent
        start -= 0 if link is None else link._length
        ids: list[int] = []
        for own in reversed(links):
            ids += own
        return tuple(ids[start:] if start else ids)

    def sampled_log_probs(self) -> LogProbs:
        """Log-probs of the sampled tokens, in order; other tokens have none.

        >>> TokenChain((1, 2)).extended((3,), (-0.5,)).extended((4,)).sampled_log_probs()
        (-0.5,)
        """
        links = []
        link: TokenChain | None = self
        while link is not None:
            if link.log_probs is not None:
                links.append(link.log_probs)
            link = link.parent
        return tuple(chain.from_iterable(reversed(links)))
