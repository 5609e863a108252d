"""What is compared: per method a search, an estimator and what values its checkpoints.

Every method gets the same tokens per prompt; `search` turns them into rollouts or a tree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from focus import (
    Concurrency,
    DirectBranchTd,
    EachCheckpoint,
    Edges,
    FixedWidth,
    Grpo,
    Phase,
    RefinedTd,
    Rloo,
    Search,
    SpoTree,
    TokenEntropy,
    TreeGrpo,
    TreeRl,
    UniformRandom,
    ValueRefinement,
    VinePpo,
)
from focus.credit import Estimator, LambdaTd
from focus.search import Allocator, RootOnly

__all__ = ("METHODS", "Method")

Plan = Callable[[int, float], Search]
"""A search from the tokens per prompt and those of an average solution."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """One row of the comparison.

    Attributes:
        search: from the tokens per prompt and those of an average solution.
        credit: weights, once the critic steers or where there is none.
        warm_credit: weights before the critic has passed its gate.
        critic: ``"none"``; ``"learned"`` is trained every round and values checkpoints
            once it has passed the gate; ``"free"`` values them from the first round on.
        about: whose idea it is.
    """

    search: Plan
    credit: Estimator
    warm_credit: Estimator | None = None
    critic: Literal["none", "learned", "free"] = "none"
    about: str = ""


def flat(tokens: int, length: float) -> Search:
    """As many independent rollouts as the budget buys."""
    rollouts = max(2, round(tokens / length))
    return Search.flat(rollouts, concurrency=rollouts)


def vine(probes: int) -> Plan:
    def search(tokens: int, length: float) -> Search:
        # Probes from each of about six checkpoints cost half a solution each.
        rollouts = max(1, round(tokens / (length * (1 + 3 * probes))))
        phases = [
            Phase(RootOnly(), attempts=rollouts, gate=Concurrency(rollouts)),
            Phase(EachCheckpoint(probes), attempts=10**6, gate=Concurrency(probes)),
        ]
        return Search(phases, concurrency=8)

    return search


def spo(tokens: int, length: float) -> Search:
    widths = (4, 2, 2) if tokens / length >= 6 else (3, 2)
    phase = Phase(FixedWidth(widths), attempts=10**6, extent=Edges(1), gate=Concurrency(8))
    return Search([phase], concurrency=8)


def two_phase(tokens: int, length: float) -> Search:
    return Search.two_phase(tokens=tokens)


def rollouts_then(allocator: Allocator, *, rollouts: int | None = None) -> Plan:
    """Some rollouts from the prompt, half the budget unless said, then branches by a ranking."""

    def search(tokens: int, length: float) -> Search:
        first = rollouts or max(2, round(tokens / length / 2))
        return Search(
            [
                Phase(RootOnly(), attempts=first, gate=Concurrency(first)),
                Phase(allocator, tokens=max(1, tokens - round(first * length))),
            ],
            concurrency=4,
        )

    return search


def learned(search: Plan, credit: Estimator, about: str) -> Method:
    """A method with a critic: whole outcomes as long as it has not passed its gate."""
    return Method(
        search=search,
        credit=credit,
        warm_credit=LambdaTd(decay=1.0),
        critic="learned",
        about=about,
    )


REFINE = rollouts_then(ValueRefinement(gain="preposterior"), rollouts=4)

METHODS: dict[str, Method] = {
    "grpo": Method(search=flat, credit=Grpo(), about="GRPO"),
    "rloo": Method(search=flat, credit=Rloo(), about="RLOO"),
    "vine-ppo": Method(search=vine(1), credit=VinePpo(), about="VinePPO, one probe a checkpoint"),
    "spo-tree": Method(search=spo, credit=SpoTree(), about="SPO-tree, widths 4-2-2"),
    "tree-grpo": Method(
        search=rollouts_then(UniformRandom()), credit=TreeGrpo(), about="Tree-GRPO"
    ),
    "tree-rl": Method(
        search=rollouts_then(TokenEntropy()), credit=TreeRl(), about="TreeRL, entropy-guided"
    ),
    "focus": Method(
        search=two_phase,
        credit=DirectBranchTd(),
        warm_credit=RefinedTd(),
        critic="learned",
        about="two-phase search, direct-branch TD",
    ),
    "focus-flat": Method(
        search=flat,
        credit=DirectBranchTd(),
        warm_credit=RefinedTd(),
        critic="learned",
        about="flat rollouts, direct-branch TD",
    ),
    "focus-refine": Method(
        search=REFINE,
        credit=DirectBranchTd(),
        warm_credit=RefinedTd(),
        critic="learned",
        about="four rollouts, then refinement; direct-branch TD",
    ),
    "flat-refined": Method(
        search=flat,
        credit=RefinedTd(),
        warm_credit=RefinedTd(),
        critic="learned",
        about="flat rollouts, refined TD",
    ),
    "free-lambda0.8": Method(
        search=flat,
        credit=LambdaTd(decay=0.8),
        critic="free",
        about="flat rollouts, lambda TD, a critic without a gate",
    ),
}
for _decay in (0.5, 0.8, 0.95, 1.0):
    _credit = LambdaTd(decay=_decay)
    METHODS |= {
        f"flat-lambda{_decay}": learned(flat, _credit, "flat rollouts, lambda TD"),
        f"refine-lambda{_decay}": learned(
            REFINE, _credit, "four rollouts, then refinement; lambda TD"
        ),
        f"two-lambda{_decay}": learned(two_phase, _credit, "two-phase search, lambda TD"),
    }
