"""What the chaos server samples: walks of "+" and "-", each reply with an id of its own."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from focus.testing.loopback import ByteTokenizer
from focus.testing.policies import END
from focus.tokens import FinishReason, LogProbs, TokenIds

__all__ = ("FIRST_NONCE", "ChaosEngine", "NonceTokenizer", "Sample")

FIRST_NONCE = END + 1
_NONCES = 2**24
_STEPS = (ord("+"), ord("-"))


class NonceTokenizer(ByteTokenizer):
    """Bytes, and ids from `FIRST_NONCE` on that mean nothing and occur once."""

    name_or_path = "nonces"

    def __len__(self) -> int:
        return FIRST_NONCE + _NONCES


@dataclass(frozen=True)
class Sample:
    """What was truly sampled for one request."""

    ids: TokenIds
    log_probs: LogProbs
    finish: FinishReason

    def body(self, rid: str, *, prompt_tokens: int, version: str) -> dict[str, Any]:
        """The honest reply, as SGLang words it."""
        finish: dict[str, Any] = {"type": self.finish.value}
        if self.finish is FinishReason.STOP:
            finish["matched"] = self.ids[-1]
        else:
            finish["length"] = len(self.ids)
        meta = {
            "id": rid,
            "finish_reason": finish,
            "prompt_tokens": prompt_tokens,
            "completion_tokens": len(self.ids),
            "cached_tokens": 0,
            "weight_version": version,
            "output_token_logprobs": [
                [value, token, None] for value, token in zip(self.log_probs, self.ids, strict=True)
            ],
        }
        text = "".join(chr(token) for token in self.ids if token < END)
        return {"text": text, "output_ids": list(self.ids), "meta_info": meta}


class ChaosEngine:
    """Samples by the request's name, so that replies do not depend on who asked first.

    A reply starts with an id that no other reply has. Its log-probs have all their bits.

    Args:
        seed: of every walk.
        depth: replies after which a walk ends at the latest.
        stop_share: share of earlier replies that end it.
    """

    def __init__(self, *, seed: int = 0, depth: int = 4, stop_share: float = 0.25) -> None:
        self.version = "chaos-1"
        self._seed = seed
        self._depth = depth
        self._stop_share = stop_share
        self._nonces = itertools.count(FIRST_NONCE)

    def sample(
        self, name: str, prefix: Sequence[int], most: int, *, plants: int | None = None
    ) -> Sample:
        """The reply to one request of at most `most` ids."""
        rng = random.Random(f"{self._seed}/{name}")
        replies = 1 + sum(1 for token in prefix if token >= FIRST_NONCE)
        stops = most >= 2 and (replies >= self._depth or rng.random() < self._stop_share)
        steps = rng.randint(0, most - 2) if stops else most - 1
        ids = [next(self._nonces), *rng.choices(_STEPS, k=steps)]
        if plants is not None and steps:
            ids[-1] = plants
        if stops:
            ids.append(END)
        return _sample(ids, rng)

    def another(self, name: str, like: Sample) -> Sample:
        """A reply of the same shape to a request that nobody sent."""
        rng = random.Random(f"{self._seed}/{name}/another")
        body = len(like.ids) - 1 - (like.finish is FinishReason.STOP)
        ids = [next(self._nonces), *rng.choices(_STEPS, k=body)]
        return _sample(ids + [END] * (like.finish is FinishReason.STOP), rng, like.finish)


def _sample(ids: Iterable[int], rng: random.Random, finish: FinishReason | None = None) -> Sample:
    sampled = tuple(ids)
    if finish is None:
        finish = FinishReason.STOP if sampled[-1] == END else FinishReason.LENGTH
    return Sample(sampled, tuple(rng.uniform(-6.0, -1e-3) for _ in sampled), finish)
