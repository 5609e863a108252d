"""Slime's schedule: steps of whole prompts, micro-batches by tokens, ranks in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .parallel import Layout

__all__ = ("Schedule",)


@dataclass
class Schedule:
    """Which rank trains which sample in which micro-batch.

    Attributes:
        partitions: per rank, positions of its samples in the batch.
        microbatches: per rank, lists of positions in its partition, over all steps.
        microbatches_per_rank: per step.
        batch_sizes: prompts per step.
        dropped: prompts beyond the last whole step.
    """

    partitions: list[list[int]]
    microbatches: list[list[list[int]]]
    microbatches_per_rank: list[int] = field(default_factory=list)
    batch_sizes: list[int] = field(default_factory=list)
    dropped: int = 0

    @classmethod
    def of(
        cls, args: Any, lengths: Sequence[int], identities: Sequence[int], layout: Layout
    ) -> Schedule:
        """Every step holds `global_batch_size` prompts with all their samples."""
        assert args.use_dynamic_batch_size, "a static micro-batch never fits a tree's samples"
        prompts: dict[int, list[int]] = {}
        for position, identity in enumerate(identities):
            prompts.setdefault(identity, []).append(position)
        size = args.global_batch_size
        groups = list(prompts.values())
        steps = len(groups) // size
        assert steps >= 1, f"{len(groups)} prompts for a step of {size}"
        made = cls(
            [[] for _ in range(layout.dp)],
            [[] for _ in range(layout.dp)],
            dropped=len(groups) - steps * size,
        )
        for step in range(steps):
            positions = [p for group in groups[step * size : (step + 1) * size] for p in group]
            made._add_step(positions, lengths, args.max_tokens_per_gpu * layout.cp, layout.dp)
            made.batch_sizes.append(size)
        return made

    def _add_step(
        self, positions: list[int], lengths: Sequence[int], most: int, ranks: int
    ) -> None:
        assert len(positions) >= ranks, "a rank would go without a sample"
        bins = _first_fit(positions, lengths, most)
        while len(bins) % ranks:
            largest = max(bins, key=lambda held: (len(held) > 1, sum(lengths[p] for p in held)))
            assert len(largest) > 1, "no micro-batch can be split"
            bins.remove(largest)
            bins += [largest[: len(largest) // 2], largest[len(largest) // 2 :]]
        self.microbatches_per_rank.append(len(bins) // ranks)
        for number, held in enumerate(bins):
            part, batches = self.partitions[number % ranks], self.microbatches[number % ranks]
            batches.append(list(range(len(part), len(part) + len(held))))
            part += held


def _first_fit(positions: list[int], lengths: Sequence[int], most: int) -> list[list[int]]:
    """Each sample into the first bin with room; one that is too long gets its own."""
    bins: list[list[int]] = []
    for position in positions:
        for held in bins:
            if sum(lengths[p] for p in held) + lengths[position] <= most:
                held.append(position)
                break
        else:
            bins.append([position])
    return bins
