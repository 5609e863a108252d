"""What to buy, in which order and for how much: the configuration of one tree's search."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

from focus.errors import ConfigError
from focus.sampling import Sampling
from focus.search.allocators.base import Allocator
from focus.search.allocators.entropy import TokenEntropy
from focus.search.allocators.refinement import ValueRefinement
from focus.search.allocators.root_only import RootOnly
from focus.search.budget import Budget
from focus.search.early_stop import EarlyStop
from focus.search.gates import Concurrency, Gate

__all__ = ("Edges", "Phase", "Search")

EXPLORE = TokenEntropy(window=8)
REFINE = ValueRefinement()
CASCADE = ValueRefinement(gain="preposterior")

_FREE_TO_CHANGE = frozenset({"max_tokens", "stop", "seed"})


@dataclass(frozen=True)
class Edges:
    """An expansion buys at most `limit` edges; its tip stays unfinished and forkable."""

    limit: int

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise ConfigError(f"an expansion needs at least one edge, got Edges({self.limit})")


@dataclass(frozen=True)
class Phase:
    """One allocator with one budget; phases run in order over one tree and one evidence.

    Attributes:
        allocator: ranks the checkpoints.
        tokens, attempts, turns, nodes, wall_s, cap, least_tokens: see `Budget`.
        gate: how often one checkpoint may be bought.
        extent: edges per expansion; None runs to the end of the episode.
        sampling: override of max_tokens, stop or seed. The law (temperature, top_p,
            top_k) is the tree's: what a trainer must match is one law per tree.
        early_stop: when an expansion is given up; None never does.
        until_mixed: buy nothing more once two finished leaves of the tree, whichever phase
            bought them, have different outcomes.
        siblings: branches bought of a checkpoint at once, while it stays eligible and
            affordable; a policy that can samples their first edges in one call.
        lockstep: rollouts stop at every checkpoint until all have one, and branches are
            bought there, before it is passed; see `Search.cascade`.
        budget: the caps, as one value; derived.

    Raises:
        ConfigError: the budget or `siblings` buys nothing, the override changes the
            sampling law, or `lockstep` meets an extent, a hard cap or `siblings`.
    """

    allocator: Allocator
    _: KW_ONLY
    tokens: int | None = None
    attempts: int | None = None
    turns: int | None = None
    nodes: int | None = None
    wall_s: float | None = None
    gate: Gate = field(default_factory=lambda: Concurrency(4))
    extent: Edges | None = None
    cap: Literal["mean", "hard"] = "mean"
    sampling: Sampling | None = None
    early_stop: EarlyStop | None = None
    until_mixed: bool = False
    siblings: int = 1
    lockstep: bool = False
    least_tokens: int | None = None
    budget: Budget = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # A class has the methods too, so a forgotten () must be told apart.
        if isinstance(self.allocator, type) or not isinstance(self.allocator, Allocator):
            raise ConfigError(f"{self.allocator!r} is not an allocator such as TokenEntropy()")
        if isinstance(self.gate, type) or not isinstance(self.gate, Gate):
            raise ConfigError(f"{self.gate!r} is not a gate such as Concurrency(4)")
        if self.sampling is not None:
            _check_override(self.sampling)
        if self.siblings < 1:
            raise ConfigError(f"siblings must be >= 1, got {self.siblings}")
        if self.lockstep and (self.extent or self.cap == "hard" or self.siblings > 1):
            raise ConfigError(
                "a phase in lockstep decides itself how many siblings it asks for, and lets "
                "rollouts end: it takes no siblings, no extent and no hard cap"
            )
        object.__setattr__(
            self,
            "budget",
            Budget(
                tokens=self.tokens,
                attempts=self.attempts,
                turns=self.turns,
                nodes=self.nodes,
                wall_s=self.wall_s,
                cap=self.cap,
                least_tokens=self.least_tokens,
            ),
        )


def _check_override(sampling: Sampling) -> None:
    changed = {
        field.name
        for field in dataclasses.fields(sampling)
        if getattr(sampling, field.name) is not None
    }
    if refused := sorted(changed - _FREE_TO_CHANGE):
        raise ConfigError(
            f"a phase may override {', '.join(sorted(_FREE_TO_CHANGE))} only, not "
            f"{', '.join(refused)}: a tree has one sampling law"
        )


@dataclass(frozen=True)
class Search:
    """Ordered phases and the number of expansions in flight.

    `concurrency` is part of the algorithm, not a speed setting: launch k is decided on
    exactly the results of launches 0…k−concurrency, whatever finishes first. Siblings are
    bought together, once all of them fit: those from launch k on are decided on exactly the
    results of 0…k+siblings−1−concurrency. In lockstep every decision sees all results, and
    `concurrency` bounds the rollouts under way.

    Raises:
        ConfigError: there is no phase, `concurrency` < 1, or a phase buys more siblings at
            once than may be in flight.

    >>> search = Search.two_phase(tokens=16_384)
    >>> [(type(phase.allocator).__name__, phase.tokens) for phase in search.phases]
    [('TokenEntropy', 8192), ('ValueRefinement', 8192)]
    """

    phases: Sequence[Phase]
    _: KW_ONLY
    concurrency: int = 4

    def __post_init__(self) -> None:
        object.__setattr__(self, "phases", tuple(self.phases))
        if not self.phases:
            raise ConfigError("a search needs at least one phase")
        if self.concurrency < 1:
            raise ConfigError(f"concurrency must be >= 1, got {self.concurrency}")
        most = max(phase.siblings for phase in self.phases)
        if most > self.concurrency:
            raise ConfigError(
                f"{most} siblings at once need a concurrency of {most}, got {self.concurrency}"
            )

    @property
    def tokens(self) -> int:
        """Token budget of all phases together; phases without one add nothing."""
        return sum(phase.tokens or 0 for phase in self.phases)

    @property
    def opening(self) -> int:
        """Launches, from the first, that no result can move to another checkpoint.

        Their outcomes are a fair sample of the policy: which of them exist, and where they
        start, does not depend on how others ended.

        >>> Search.two_phase(tokens=16_384, concurrency=4).opening, Search.flat(8).opening
        (4, 8)
        """
        first = self.phases[0]
        if first.lockstep:
            return 1
        is_fixed = isinstance(first.allocator, RootOnly) and not first.until_mixed
        fixed = first.attempts if is_fixed else None
        return max(self.concurrency, fixed or 0)

    @classmethod
    def two_phase(
        cls,
        *,
        tokens: int,
        concurrency: int = 4,
        explore: Allocator = EXPLORE,
        refine: Allocator = REFINE,
        cap: Literal["mean", "hard"] = "mean",
        siblings: int = 1,
    ) -> Search:
        """Half of `tokens` to branch where the policy was unsure, half to refine values.

        The first phase plants one finished rollout on every checkpoint it passes: with
        κ = 1 an unmeasured checkpoint is worth nothing to `ValueRefinement`, so the
        second phase would have nothing to rank without it.
        """
        gate = Concurrency(concurrency)
        return cls(
            (
                Phase(explore, tokens=tokens // 2, gate=gate, cap=cap, siblings=siblings),
                Phase(refine, tokens=tokens - tokens // 2, gate=gate, cap=cap, siblings=siblings),
            ),
            concurrency=concurrency,
        )

    @classmethod
    def cascade(
        cls, *, tokens: int, concurrency: int = 16, allocator: Allocator = CASCADE
    ) -> Search:
        """Rollouts in lockstep that branch where they stand, so that nothing is asked twice.

        All rollouts under way wait at their next checkpoints for each other. Then more are
        bought of the best-ranked checkpoints, for an even part of the tokens and of the
        `concurrency` that are free, and all go on: one call per checkpoint. Once all have
        ended, what is left of the tokens begins anew at the root.

        With the default ranking, values decide where branches grow and outcomes nothing:
        the branches of a checkpoint are a sample whose size was fixed before.
        """
        gate = Concurrency(concurrency)
        phase = Phase(allocator, tokens=tokens, gate=gate, lockstep=True)
        return cls((phase,), concurrency=concurrency)

    @classmethod
    def flat(cls, rollouts: int, *, concurrency: int = 4) -> Search:
        """`rollouts` independent rollouts from the root: the group of GRPO and RLOO.

        >>> Search.flat(8).phases[0].attempts
        8
        """
        gate = Concurrency(concurrency)
        siblings = min(rollouts, concurrency)
        phase = Phase(RootOnly(), attempts=rollouts, gate=gate, siblings=siblings)
        return cls((phase,), concurrency=concurrency)
