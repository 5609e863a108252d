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
from focus.credit import LambdaTd
from focus.search import RootOnly

__all__ = ("METHODS", "Method", "Plan")

REFINE = rollouts_then(ValueRefinement(gain="preposterior"), rollouts=4, least=1)
STEPWISE = LambdaTd(decay=0.8)

METHODS: dict[str, Method] = PEERS | {
    "focus": Method(
        search=REFINE,
        credit=STEPWISE,
        critic="free",
        values="surprisal",
        about="four rollouts, then refinement; lambda TD on a surprisal critic",
    ),
    "focus-cascade": Method(
        search=cascade,
        credit=STEPWISE,
        critic="free",
        values="surprisal",
        about="rollouts that branch where they stand; lambda TD on a surprisal critic",
    ),
    "focus-flat": Method(
        search=alone,
        credit=STEPWISE,
        critic="free",
        values="surprisal",
        about="flat rollouts, one if no more fit; lambda TD on a surprisal critic",
    ),
    "focus-unbiased": Method(
        search=alone,
        credit=OUTCOME,
        critic="free",
        values="surprisal",
        about="flat rollouts; outcomes less the surprisal critic's value of each checkpoint",
    ),
    "focus-mixed": Method(
        search=until_mixed(RootOnly(), most=2.5),
        credit=STEPWISE,
        critic="free",
        values="surprisal",
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
