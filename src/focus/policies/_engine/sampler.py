"""Drawing tokens: the processed distribution, and one draw from it per row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

__all__ = ("Draw", "Law", "draw", "processed_log_probs")


@dataclass(frozen=True, slots=True)
class Law:
    """What one request samples from: temperature (0 is greedy), top-p, top-k (None is all)."""

    temperature: float
    top_p: float
    top_k: int | None

    @property
    def cuts(self) -> bool:
        return self.top_p < 1.0 or self.top_k is not None


@dataclass(frozen=True, slots=True)
class Draw:
    """One sampled id and its log-probability under the law it was drawn from."""

    token: int
    log_prob: float


def processed_log_probs(logits: torch.Tensor, laws: Sequence[Law]) -> torch.Tensor:
    """Log-probabilities after temperature, then top-k, then top-p; float64 [rows, vocab].

    log softmax(logits / T), then the k most likely ids, then the fewest of those that
    hold at least `top_p` of what remains; renormalised after each cut. Ties go to the
    lower id. At T = 0 the law is a point mass: 0.0 at the arg-max, -inf elsewhere.
    """
    temperatures = logits.new_tensor([law.temperature or 1.0 for law in laws], dtype=torch.float64)
    log_probs = torch.log_softmax(logits.double() / temperatures[:, None], dim=-1)
    cut = [row for row, law in enumerate(laws) if law.cuts]
    if cut:
        log_probs[cut] = _cut(log_probs[cut], [laws[row] for row in cut])
    greedy = [row for row, law in enumerate(laws) if law.temperature == 0.0]
    if greedy:
        log_probs[greedy] = _point_mass(log_probs[greedy])
    return log_probs


def draw(logits: torch.Tensor, laws: Sequence[Law], uniforms: Sequence[float]) -> list[Draw]:
    """One draw per row by inverting the cumulative distribution at that row's uniform.

    The same uniform gives the same id unless it falls within rounding of a boundary, so a
    request's tokens do not depend on who shares its batch.
    """
    log_probs = processed_log_probs(logits, laws)
    cumulative = log_probs.exp().cumsum(dim=-1)
    total = cumulative[:, -1:].contiguous()
    points = total.new_tensor(uniforms)[:, None] * total
    tokens = torch.searchsorted(cumulative, points, right=True)
    # A point rounded up to the total would fall past the last id that has any mass.
    last = torch.searchsorted(cumulative, total)
    tokens = torch.minimum(tokens, last).clamp_(max=logits.shape[-1] - 1)
    # Together, since a GPU is waited for once a copy; float64 holds every id.
    drawn = torch.cat([tokens.double(), log_probs.gather(-1, tokens)], dim=-1).tolist()
    return [Draw(int(token), log_prob) for token, log_prob in drawn]


def _cut(log_probs: torch.Tensor, laws: Sequence[Law]) -> torch.Tensor:
    vocabulary = log_probs.shape[-1]
    ordered, ids = log_probs.sort(dim=-1, descending=True, stable=True)
    ranks = torch.arange(vocabulary, device=log_probs.device)
    top_k = torch.tensor([law.top_k or vocabulary for law in laws], device=log_probs.device)
    ordered = ordered.masked_fill(ranks >= top_k[:, None], -torch.inf)
    ordered = torch.log_softmax(ordered, dim=-1)
    before = ordered.exp().cumsum(dim=-1) - ordered.exp()
    # 1.0 keeps everything: rounding of the cumulative sum must not cut the tail.
    top_p = log_probs.new_tensor([law.top_p if law.top_p < 1.0 else torch.inf for law in laws])
    ordered = ordered.masked_fill((before >= top_p[:, None]) & (ranks > 0), -torch.inf)
    return torch.empty_like(ordered).scatter_(-1, ids, torch.log_softmax(ordered, dim=-1))


def _point_mass(log_probs: torch.Tensor) -> torch.Tensor:
    best = log_probs.argmax(dim=-1, keepdim=True)
    return torch.full_like(log_probs, -torch.inf).scatter_(-1, best, 0.0)
