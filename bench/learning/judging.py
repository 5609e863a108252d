"""The critic's gate, on outcomes that a round's own rollouts give free of charge."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from focus.collect import Collection
from focus.critic import Critic, render_context
from focus.policies.base import Policy
from focus.training.gate import BaseRates, GateReport, GateSample, judge

__all__ = ("Judge", "opening_suffixes")

LEAST_SAMPLES = 200
"""Checkpoints of two rounds; the product wants 500, which small rounds here do not reach."""


class Judge:
    """Judges a critic on the last two rounds, before it is trained on them."""

    def __init__(self) -> None:
        self.report: GateReport | None = None
        self._fresh: deque[list[GateSample]] = deque(maxlen=2)

    async def hear(
        self,
        collections: Sequence[Collection],
        critic: Critic,
        *,
        policy: Policy,
        rates: BaseRates,
    ) -> None:
        """Take in a round of problems that the critic has not been trained on."""
        samples: list[GateSample] = []
        contexts, places = [], []
        for collection in collections:
            tree = collection.tree
            for node_id, outcome in opening_suffixes(collection):
                places.append((tree.header.problem.key, tree[node_id].depth, outcome))
                contexts.append(render_context(critic.renderer, policy, tree[node_id].payload))
        values = await critic.score(contexts)
        for (key, depth, outcome), value in zip(places, values, strict=True):
            samples.append(GateSample(key, depth, value, outcome))
        self._fresh.append(samples)
        pooled = [sample for batch in self._fresh for sample in batch]
        if pooled:
            self.report = judge(pooled, rates, least_samples=LEAST_SAMPLES)


def opening_suffixes(collection: Collection) -> list[tuple[int, float]]:
    """Checkpoints of rollouts that no result could select, each with the outcome it led to."""
    tree = collection.tree
    opening = {s.expansion for s in tree.selections[: collection.opening] if s.node == 0}
    chains: dict[int, list[int]] = {}
    for node in tree.edges():
        if node.incoming.provenance.expansion in opening:
            chains.setdefault(node.incoming.provenance.expansion, []).append(node.id)
    samples = []
    for chain in chains.values():
        if tree[chain[-1]].is_terminal:
            outcome = tree.outcome(chain[-1])
            samples += [(node_id, outcome) for node_id in (0, *chain[:-1])]
    return samples
