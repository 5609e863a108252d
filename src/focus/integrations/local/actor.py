"""Train the policy in this process, with torch.

Objective (docs/concepts/exact-tokens.md): the loss of a batch is

    (1 / prompts) · Σ over trained tokens of −min(ρ·A, clip(ρ, 1−ε, 1+ε')·A),

ρ = exp(log π_now − log π_behaviour) with logits divided by the temperature the ids were
sampled at, A the edge's fixed advantage. How tokens are spread over records and
micro-batches does not change its gradient.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from focus._extras import require
from focus.errors import ConfigError
from focus.integrations.local.grouping import by_prompt
from focus.integrations.local.optimizer import clip_and_step, load_optimizer, save_optimizer
from focus.integrations.local.trust_region import TrustRegion, divergence, nats
from focus.models.tree_attention import TreeBatch, tree_batches
from focus.models.weights import load_pretrained, stored_weights
from focus.records import ActorRecord, PolicyRecord, as_rows
from focus.records.prefix_tree import distinct_tokens
from focus.training.settings import ActorSettings

__all__ = ("ActorTrainer", "surrogate_loss", "token_tensors")


def surrogate_loss(
    log_probs: Any, behaviour: Any, weights: Any, *, clip_low: float, clip_high: float
) -> Any:
    """Sum over tokens of the clipped surrogate, negated (PPO's objective per token).

    Args:
        log_probs, behaviour, weights: 1-d tensors over trained tokens.
    """
    torch = require("torch", extra="local")
    ratio = torch.exp(log_probs - behaviour)
    clipped = torch.clamp(ratio, 1.0 - clip_low, 1.0 + clip_high)
    return -torch.minimum(ratio * weights, clipped * weights).sum()


class ActorTrainer:
    """Owns the trained copy of the policy and its optimizer.

    Args:
        model: a Hugging Face causal language model in float32 or float64.
        settings: how it is updated.
    """

    def __init__(self, model: Any, settings: ActorSettings) -> None:
        torch = require("torch", extra="local")
        self.model = model.eval()
        self.settings = settings
        self.optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=settings.learning_rate,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
        )
        self.steps = 0

    def update(self, records: Sequence[PolicyRecord], *, seed: int) -> dict[str, float]:
        """Train on one round's records, of any packing.

        Returns:
            Mean loss, gradient norm, clip share and KL; tokens computed, padding included;
            distinct tokens, those that a step cannot do without; `eta_learn`, the
            share of the second in the first; and with `step_kl` the mean share of a step that
            was kept.
        """
        prompts = by_prompt(as_rows(records))
        rng = random.Random(seed)
        losses, norms, tallies, kept = [], [], [], []
        for _ in range(self.settings.epochs):
            rng.shuffle(prompts)
            for part in _parts(prompts, self.settings.minibatches):
                self.optimizer.zero_grad(set_to_none=True)
                rows = [record for group in part for record in group]
                loss, tally = self.accumulate(rows, len(part))
                for group in self.optimizer.param_groups:
                    group["lr"] = self.settings.rate_at(self.steps)
                norm, share = self._step(rows, tally)
                norms.append(norm)
                kept.append(share)
                self.steps += 1
                losses.append(loss)
                tallies.append(tally)
        tokens = sum(t.tokens for t in tallies) or 1
        distinct, computed = sum(t.distinct for t in tallies), sum(t.computed for t in tallies)
        return {
            "actor_loss": sum(losses) / max(1, len(losses)),
            "actor_grad_norm": sum(norms) / max(1, len(norms)),
            "actor_clip_share": sum(t.clipped for t in tallies) / tokens,
            "actor_behaviour_kl": sum(t.kl for t in tallies) / tokens,
            "actor_tokens_distinct": distinct,
            "actor_tokens_computed": computed,
            **({"eta_learn": distinct / computed} if computed else {}),
            **({"actor_step_kept": sum(kept) / max(1, len(kept))} if self.settings.step_kl else {}),
        }

    def _step(self, rows: Sequence[ActorRecord], tally: _Tally) -> tuple[float, float]:
        """Step along the accumulated gradients; returns their norm and the share that was kept."""
        settings = self.settings
        if not (settings.step_kl and tally.tokens):
            return clip_and_step(self.model, self.optimizer, settings.grad_norm), 1.0
        torch = require("torch", extra="local")
        region = TrustRegion(self.model.parameters(), settings.step_kl)
        norm = clip_and_step(self.model, self.optimizer, settings.grad_norm)
        before = torch.cat(tally.log_probs)

        def moved() -> float:
            now = []
            with torch.no_grad():
                for batch in self._batches(rows):
                    tally.computed += batch.computed
                    now.append(token_tensors(self.model, batch, rows)[0])
            return divergence(before, torch.cat(now))

        return norm, region.shorten(moved)

    def _batches(self, rows: Sequence[ActorRecord]) -> list[TreeBatch]:
        return tree_batches(
            self.model,
            [record.tokens for record in rows],
            batch_tokens=self.settings.batch_tokens,
            may_flex=True,
        )

    def accumulate(self, records: Sequence[PolicyRecord], prompts: int) -> tuple[float, _Tally]:
        """Add the gradient of the loss of `records` as one batch of `prompts` prompts.

        Returns:
            The loss, and counts over its trained tokens.
        """
        total, rows = 0.0, as_rows(records)
        for record in rows:
            _check_law(record)
        tally = _Tally(distinct=distinct_tokens([record.tokens for record in rows]))
        for batch in self._batches(rows):
            tally.computed += batch.computed
            log_probs, behaviour, weights = token_tensors(self.model, batch, rows)
            if log_probs.numel() == 0:
                continue
            loss = surrogate_loss(
                log_probs,
                behaviour,
                weights,
                clip_low=self.settings.clip_low,
                clip_high=self.settings.clip_high,
            )
            (loss / prompts).backward()
            total += float(loss.detach()) / prompts
            tally.add(log_probs.detach(), behaviour, self.settings)
        return total, tally

    def save(self, folder: Path) -> None:
        """Weights, optimizer state and step count; no pickle."""
        self.model.save_pretrained(folder)
        save_optimizer(self.optimizer, folder, steps=self.steps)

    def load(self, folder: Path) -> None:
        """Restore what `save` wrote into this trainer.

        Raises:
            StoreError: it is missing, damaged or of another model.
        """
        stored = load_pretrained("AutoModelForCausalLM", folder, dtype=self.model.dtype)
        with stored_weights(folder):
            self.model.load_state_dict(stored.state_dict())
        self.steps = load_optimizer(self.optimizer, folder)


@dataclass(slots=True)
class _Tally:
    distinct: int
    computed: int = 0
    tokens: int = 0
    clipped: int = 0
    kl: float = 0.0
    log_probs: list[Any] = field(default_factory=list)

    def add(self, log_probs: Any, behaviour: Any, settings: ActorSettings) -> None:
        ratio = (log_probs - behaviour).exp()
        outside = (ratio < 1 - settings.clip_low) | (ratio > 1 + settings.clip_high)
        self.log_probs.append(log_probs)
        self.tokens += log_probs.numel()
        self.clipped += int(outside.sum())
        self.kl += float(nats(log_probs - behaviour).sum())


def token_tensors(
    model: Any, batch: TreeBatch, records: Sequence[ActorRecord]
) -> tuple[Any, Any, Any]:
    """Log-probs now, behaviour log-probs and weights of a batch's trained tokens.

    Log-probs are log softmax(logits / temperature) of each record's own temperature. A token
    that several records share is computed once; each of them reads it with its own weight.
    """
    torch = require("torch", extra="local")
    rows, before, ids, behaviour, weights, heat = [], [], [], [], [], []
    for row, tree in enumerate(batch.trees):
        for member, path in zip(tree.members, tree.paths, strict=True):
            record = records[member]
            start = len(record.prefix)
            for offset in itertools.compress(range(len(record.response)), record.loss_mask):
                rows.append(row)
                before.append(path[start + offset - 1])
                ids.append(record.response[offset])
                behaviour.append(record.log_probs[offset])
                weights.append(record.weights[offset])
                heat.append(record.temperature)
    as_tensor = {"dtype": model.dtype, "device": model.device}
    logits = model(**batch.inputs, use_cache=False).logits
    scaled = logits[rows, before] / torch.tensor(heat, **as_tensor)[:, None]
    log_probs = torch.log_softmax(scaled, dim=-1)
    chosen = log_probs.gather(1, torch.tensor(ids, device=model.device)[:, None].long())
    return (
        chosen.squeeze(1),
        torch.tensor(behaviour, **as_tensor),
        torch.tensor(weights, **as_tensor),
    )


def _check_law(record: ActorRecord) -> None:
    if record.temperature > 0 and record.top_p == 1.0 and record.top_k is None:
        return
    raise ConfigError(
        f"problem {record.source.problem!r}, nodes {record.nodes}: sampled at temperature "
        f"{record.temperature:g}, top_p {record.top_p:g}, top_k {record.top_k}; this trainer "
        "replays a temperature > 0 only"
    )


def _parts(items: Sequence[Any], count: int) -> list[Sequence[Any]]:
    """`items` in `count` nearly equal runs, empty ones left out."""
    edges = [round(i * len(items) / count) for i in range(count + 1)]
    runs = [items[a:b] for a, b in itertools.pairwise(edges)]
    return [run for run in runs if run]
