"""Do the log-probs that come with samples mean what training takes them for?

Tinker's learner knows log softmax(logits), at temperature 1. Sources disagree on what its
samplers report at other temperatures, and decoding can stray from a plain pass. So before the
first round a few samples are recomputed.
"""

from __future__ import annotations

from dataclasses import dataclass

from focus.errors import ConfigError
from focus.policies.base import RequestTag
from focus.policies.convention import LogProbConvention, probe_convention
from focus.policies.tinker import TinkerPolicy
from focus.sampling import Sampling
from focus.tokens import TokenIds

__all__ = ("LogProbAudit", "audit_log_probs", "require_training_law")

_SAMPLES = 4
_TOKENS = 16


@dataclass(frozen=True, slots=True)
class LogProbAudit:
    """How far sampled log-probs are from recomputed ones, in nats.

    Attributes:
        tokens: compared.
        mean_gap, max_gap: of the absolute differences.
    """

    tokens: int
    mean_gap: float
    max_gap: float


async def audit_log_probs(policy: TinkerPolicy, prefix: TokenIds) -> LogProbAudit:
    """Sample at temperature 1 and recompute in one pass.

    Raises:
        RequestError: a request failed.
    """
    gaps: list[float] = []
    for index in range(_SAMPLES):
        tag = RequestTag(request=f"audit/{index}", tree="audit")
        sampling = Sampling(temperature=1.0, max_tokens=_TOKENS, seed=index)
        reply = await policy.generate(prefix, sampling, tag=tag)
        again = await policy.log_probs(prefix, reply.ids)
        gaps += [abs(a - b) for a, b in zip(reply.log_probs, again, strict=True)]
    return LogProbAudit(len(gaps), sum(gaps) / len(gaps), max(gaps))


async def require_training_law(
    policy: TinkerPolicy, prefix: TokenIds, *, temperature: float = 1.0, most_gap: float = 0.05
) -> LogProbAudit:
    """Refuse a service or a temperature whose log-probs the learner cannot use.

    Args:
        policy: what would be trained.
        prefix: any prompt.
        temperature: of collection; the learner's is 1.
        most_gap: largest mean gap, in nats.

    Raises:
        ConfigError: it is not 1 (the text says what this service reports then), or samples
            and recomputed log-probs differ by more.
        RequestError: a request failed.
    """
    if temperature != 1.0:
        convention = await probe_convention(policy, prefix, temperature=temperature)
        raise ConfigError(
            f"temperature {temperature:g}: Tinker's learner works at 1, and this service reports "
            f"{_MEANING[convention]}; {_CONSEQUENCE[convention]}. Collect at temperature 1"
        )
    audit = await audit_log_probs(policy, prefix)
    if audit.mean_gap > most_gap:
        raise ConfigError(
            f"log-probs as sampled and as recomputed differ by {audit.mean_gap:.3g} nats on "
            f"average (most {audit.max_gap:.3g}, over {audit.tokens} tokens), where at most "
            f"{most_gap:g} is allowed: they are of another law, or of other weights"
        )
    return audit


_MEANING = {
    LogProbConvention.PROCESSED: "log-probs of the tempered law",
    LogProbConvention.RAW: "log-probs at temperature 1 whatever was asked for",
    LogProbConvention.DIVIDED: "log-probs divided by the temperature",
    LogProbConvention.UNCLEAR: "log-probs of unclear meaning",
}
_CONSEQUENCE = {
    LogProbConvention.PROCESSED: "ratios would be far from 1 before the first update",
    LogProbConvention.RAW: "ratios would be near 1 while another law was sampled",
    LogProbConvention.DIVIDED: "no law has such log-probs",
    LogProbConvention.UNCLEAR: "ratios would mean nothing",
}
