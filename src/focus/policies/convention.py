"""Which log-probs does a server report? A probe that tells without knowing the model.

A trainer divides logits by a temperature T and compares with the log-probs that were
recorded. They must be those of the law that was sampled, log softmax(logits / T). Servers
also report log softmax(logits), or that divided by T, and nothing in a reply says which.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from focus.errors import CorruptReply
from focus.policies.base import Policy, RequestTag
from focus.sampling import Sampling
from focus.tokens import TokenIds

__all__ = ("LogProbConvention", "judge", "probe_convention")

_TEMPERATURE = 0.5
_POSITIONS = 12
_DRAWS = 4


class LogProbConvention(StrEnum):
    """What a reported log-prob is, z being the logits and T the request's temperature."""

    PROCESSED = "processed"
    """log softmax(z / T): what was sampled from; the only one to train on when T is not 1."""
    RAW = "raw"
    """log softmax(z), whatever T is."""
    DIVIDED = "divided"
    """log softmax(z) / T, the log-prob of nothing."""
    UNCLEAR = "unclear"
    """The draws fit several conventions, or none."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """One id's log-prob at temperature 1 and at the probe's temperature."""

    plain: float
    tempered: float


async def probe_convention(
    policy: Policy, prefix: TokenIds, *, temperature: float = _TEMPERATURE
) -> LogProbConvention:
    """Find out by drawing single tokens at temperature 1 and at `temperature`.

    Ids that come up at both temperatures after the same prompt are compared. Where the model
    does not hesitate every convention reports 0: the probe then goes on behind an id that
    was drawn. At most 96 requests of one token; two are enough when they tell.

    Args:
        policy: what is asked; its vocabulary size sharpens the verdict.
        prefix: any prompt.
        temperature: positive and not 1.

    Raises:
        RequestError: a request failed.
        CorruptReply: one id came with two log-probs at the same temperature.
    """
    for position in range(_POSITIONS):
        plain: dict[int, float] = {}
        tempered: dict[int, float] = {}
        for draw in range(_DRAWS):
            seed = position * _DRAWS + draw
            drawn = await _draw(policy, prefix, 1.0, seed, plain)
            await _draw(policy, prefix, temperature, seed, tempered)
            verdict = judge(plain, tempered, temperature=temperature, vocab_size=policy.vocab_size)
            if verdict is not LogProbConvention.UNCLEAR:
                return verdict
        prefix = (*prefix, drawn)
    return LogProbConvention.UNCLEAR


async def _draw(
    policy: Policy, prefix: TokenIds, temperature: float, seed: int, seen: dict[int, float]
) -> int:
    """Draw one id and note its log-prob in `seen`."""
    sampling = Sampling(temperature=temperature, top_p=1.0, max_tokens=1, seed=seed)
    tag = RequestTag(request=f"probe/{temperature:g}/{seed}", tree="probe")
    reply = await policy.generate(prefix, sampling, tag=tag)
    if len(reply.ids) != 1 or len(reply.log_probs) != 1:
        raise CorruptReply(f"{len(reply.ids)} ids where one was asked for", request=tag.request)
    token, value = reply.ids[0], reply.log_probs[0]
    if not math.isclose(seen.setdefault(token, value), value, abs_tol=_slack(value)):
        raise CorruptReply(
            f"id {token} after the same prompt has log-prob {seen[token]:g}, then {value:g}",
            request=tag.request,
        )
    return token


def judge(
    plain: Mapping[int, float],
    tempered: Mapping[int, float],
    *,
    temperature: float,
    vocab_size: int | None = None,
) -> LogProbConvention:
    """The one convention that fits what was seen; unclear while several do.

    Under "processed", tempered = plain / T − log Σᵢ pᵢ^(1/T) with one sum for all ids, and
    the sum is bounded by what the other ids can hold.

    Args:
        plain: log-prob by id, sampled at temperature 1.
        tempered: log-prob by id at `temperature`; ids in both count.
        temperature: T, positive and not 1.
        vocab_size: ids there are; None leaves the bound loose.

    >>> logits = (0.0, 1.0)  # T = 0.5: log softmax([0, 2])[1] = -0.1269
    >>> judge({1: -0.3133}, {1: -0.1269}, temperature=0.5, vocab_size=2).value
    'processed'
    >>> judge({1: -0.3133}, {1: -0.3133}, temperature=0.5, vocab_size=2).value
    'raw'
    >>> judge({1: -0.3133}, {1: -0.6265}, temperature=0.5, vocab_size=2).value
    'divided'
    """
    seen = [_Seen(plain[token], tempered[token]) for token in sorted(plain.keys() & tempered)]
    fits = {
        LogProbConvention.RAW: all(_near(s.tempered, s.plain) for s in seen),
        LogProbConvention.DIVIDED: all(_near(s.tempered, s.plain / temperature) for s in seen),
        LogProbConvention.PROCESSED: _is_processed(seen, temperature, vocab_size),
    }
    fitting = [convention for convention, fit in fits.items() if fit and seen]
    return fitting[0] if len(fitting) == 1 else LogProbConvention.UNCLEAR


def _is_processed(seen: Sequence[_Seen], temperature: float, vocab_size: int | None) -> bool:
    sums = [s.plain / temperature - s.tempered for s in seen]
    if not sums or max(sums) - min(sums) > 2 * max(_slack(s.plain / temperature) for s in seen):
        return False
    return all(
        low - _slack(low) <= value <= high + _slack(high)
        for value, (low, high) in zip(sums, _bounds(seen, temperature, vocab_size), strict=True)
    )


def _bounds(
    seen: Iterable[_Seen], temperature: float, vocab_size: int | None
) -> list[tuple[float, float]]:
    """Least and greatest log Σᵢ pᵢ^(1/T) that one id's probability leaves possible.

    The rest of the mass either sits on one other id or is spread evenly over all of them.
    """
    power, others = 1.0 / temperature, (vocab_size or 10**6) - 1
    bounds = []
    for one in seen:
        p = math.exp(min(one.plain, 0.0))
        rest = max(1.0 - p, 0.0)
        ends = [
            math.log(p**power + rest**power),
            math.log(p**power + others * (rest / others) ** power),
        ]
        bounds.append((min(ends), max(ends)))
    return bounds


def _near(value: float, expected: float) -> bool:
    return math.isclose(value, expected, abs_tol=_slack(expected))


def _slack(value: float) -> float:
    """How far engines' half-precision arithmetic strays."""
    return 0.02 + 0.02 * abs(value)
