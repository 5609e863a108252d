"""Random trees whose log-probs come from a toy model, and the loss computed token by token."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from focus.checkpoint import Allowance, Checkpoint
from focus.collect import Collection, Ledger
from focus.credit.base import Credit
from focus.integrations.slime._samples import samples_of
from focus.problem import Problem
from focus.records import Packing, actor_records
from focus.sampling import Sampling
from focus.tokens import Span, TokenChain
from focus.tree import Edge, Provenance, Tree, TreeHeader

from .host.sample import Sample

__all__ = ("TEMPERATURE", "Grown", "ToyModel", "ToyValues", "expected", "grow", "samples")

VOCABULARY = 13
TEMPERATURE = 0.7


class ToyModel(torch.nn.Module):
    """Logits from the token before and from the mean of all before: context matters."""

    def __init__(
        self, *, vocabulary: int = VOCABULARY, outputs: int | None = None, seed: int = 0
    ) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embedding = torch.nn.Embedding(vocabulary, 6, dtype=torch.float64)
        self.head = torch.nn.Linear(12, outputs or vocabulary, dtype=torch.float64)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        seen = self.embedding(tokens)
        counts = torch.arange(1, len(tokens) + 1, dtype=torch.float64)[:, None]
        return self.head(torch.cat([seen, seen.cumsum(0) / counts], -1))


class ToyValues(ToyModel):
    """One value per token."""

    def __init__(self, *, vocabulary: int = VOCABULARY, seed: int = 1) -> None:
        super().__init__(vocabulary=vocabulary, outputs=1, seed=seed)


@dataclass(frozen=True)
class Grown:
    """One prompt's tree with its credit."""

    index: int
    tree: Tree[Checkpoint]
    credit: Credit


def grow(model: ToyModel, prompts: int, *, seed: int) -> list[Grown]:
    """Trees of some ten edges; some with observations, some edges without credit."""
    rng = random.Random(seed)
    return [_grow_one(model, index, rng) for index in range(prompts)]


def _grow_one(model: ToyModel, index: int, rng: random.Random) -> Grown:
    prompt = tuple(rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 9)))
    header = TreeHeader(
        problem=Problem(id=index, prompt=f"prompt {index}"),
        prompt_ids=prompt,
        sampling=Sampling(temperature=TEMPERATURE),
        policy_version="7",
    )
    root = Checkpoint(
        context=TokenChain(prompt), prompt_length=len(prompt), state=None, allowance=Allowance()
    )
    tree: Tree[Checkpoint] = Tree(header, root, value=0.5)
    for number in range(rng.randint(4, 12)):
        parent = rng.randrange(len(tree))
        spans = _spans(model, tree.context(parent), rng)
        provenance = Provenance(
            expansion=number, index=0, phase=0, request_id=f"r{number}", policy_version="7"
        )
        tree.attach(parent, Edge(spans=spans, provenance=provenance), root, value=0.5)
    weights = {node.id: rng.uniform(-2, 2) for node in tree.edges() if rng.random() < 0.8}
    weights.setdefault(1, 1.0)
    return Grown(index, tree, Credit(estimator="random", advantages=weights))


def _spans(model: ToyModel, context: tuple[int, ...], rng: random.Random) -> tuple[Span, ...]:
    """One or two sampled runs, perhaps with an observation before or between."""
    spans = []
    for _ in range(rng.randint(1, 2)):
        if rng.random() < 0.3:
            seen = tuple(rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 3)))
            spans.append(Span(seen))
            context += seen
        ids = tuple(rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 7)))
        with torch.no_grad():
            now = token_log_probs(model, context, ids)
        spans.append(Span(ids, tuple(min(0.0, v + rng.gauss(0, 0.3)) for v in now.tolist())))
        context += ids
    return tuple(spans)


def token_log_probs(model: ToyModel, context: Sequence[int], ids: Sequence[int]) -> torch.Tensor:
    """log softmax(logits / T) of each id after its own prefix."""
    tokens = torch.tensor([*context, *ids])
    logits = model(tokens)[len(context) - 1 : -1] / TEMPERATURE
    return torch.log_softmax(logits, -1)[torch.arange(len(ids)), tokens[len(context) :]]


def samples(forest: Sequence[Grown], packing: Packing) -> list[Sample]:
    """Every record of every tree as the generate hook would return it."""
    made = []
    for grown in forest:
        source = Sample(index=grown.index, group_index=grown.index, prompt="p", label="l")
        made += samples_of(
            collection_of(grown), source, packing=packing, decode=str, with_targets=False
        )
    return made


def collection_of(grown: Grown) -> Collection:
    """The collection that a collector would have returned."""
    return Collection(
        tree=grown.tree,
        credit=grown.credit,
        actor=actor_records(grown.tree, grown.credit),
        critic=(),
        ledger=Ledger(),
    )


def expected(
    model: ToyModel, forest: Sequence[Grown], *, low: float, high: float
) -> tuple[float, dict[str, torch.Tensor], set[str]]:
    """Loss and gradient edge by edge, without samples, masks, batches or ranks.

    Also which sides of the clip were hit.
    """
    model.zero_grad()
    loss = torch.zeros((), dtype=torch.float64)
    sides: set[str] = set()
    for grown in forest:
        for node, weight in grown.credit.advantages.items():
            parent = grown.tree[node].parent
            assert parent is not None
            context = grown.tree.context(parent)
            for span in grown.tree[node].incoming.spans:
                if span.log_probs is not None:
                    now = token_log_probs(model, context, span.ids)
                    ratio = (now - torch.tensor(span.log_probs, dtype=torch.float64)).exp()
                    kept = ratio.clamp(1 - low, 1 + high)
                    loss = loss - torch.minimum(ratio * weight, kept * weight).sum()
                    sides |= {"low"} if (ratio < 1 - low).any() else set()
                    sides |= {"high"} if (ratio > 1 + high).any() else set()
                context += span.ids
    loss = loss / len(forest)
    loss.backward()
    gradients = {
        name: parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    return float(loss.detach()), gradients, sides
