"""What is compared: per method a search, an estimator and what values its checkpoints.

Every method gets the same tokens per prompt; `search` turns them into rollouts or a tree.
Those of other systems are in `peers.py`.
"""

from __future__ import annotations

from bench.learning.peers import OUTCOME, PEERS
from bench.learning.plans import (
    Method,
    Plan,
    alone,
    cascade,
    rollouts_then,
    two_phase,
    until_mixed,
)

from focus import DirectBranchTd, RefinedTd, ValueRefinement
from focus.credit import Estimator, LambdaTd
from focus.search import RootOnly

__all__ = ("METHODS", "Method", "Plan")

REFINE = rollouts_then(ValueRefinement(gain="preposterior"), rollouts=4, least=1)
STEPWISE = LambdaTd(decay=0.8)


def _steered(search: Plan, *, about: str, credit: Estimator = STEPWISE) -> Method:
    """A method whose surprisal critic values checkpoints from the first round on."""
    return Method(search=search, credit=credit, critic="free", values="surprisal", about=about)


METHODS: dict[str, Method] = PEERS | {
    "focus": _steered(
        REFINE,
        about="four rollouts, then refinement; lambda TD on a surprisal critic",
    ),
    "focus-cascade": _steered(
        cascade,
        about="rollouts that branch where they stand; lambda TD on a surprisal critic",
    ),
    "focus-flat": _steered(
        alone,
        about="flat rollouts, one if no more fit; lambda TD on a surprisal critic",
    ),
    "focus-unbiased": _steered(
        alone,
        credit=OUTCOME,
        about="flat rollouts; outcomes less the surprisal critic's value of each checkpoint",
    ),
    "focus-mixed": _steered(
        until_mixed(RootOnly(), most=2.5),
        about="rollouts until two end differently; lambda TD on a surprisal critic",
    ),
    "focus-network": Method(
        search=two_phase,
        credit=DirectBranchTd(),
        warm_credit=RefinedTd(),
        critic="learned",
        about="two-phase search, direct-branch TD on a value network behind its gate",
    ),
    "focus-network-lambda": Method(
        search=REFINE,
        credit=STEPWISE,
        warm_credit=OUTCOME,
        critic="learned",
        about="four rollouts, then refinement; lambda TD on a value network behind its gate",
    ),
}
