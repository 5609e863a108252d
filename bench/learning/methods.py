"""What is compared: per method a search, an estimator and what values its checkpoints.

Every method gets the same tokens per prompt; `search` turns them into rollouts or a tree.
`peers.py` holds those of others, this file our own.
"""

from __future__ import annotations

from bench.learning.peers import PEERS
from bench.learning.plans import Method, Plan, flat, rollouts_then, two_phase

from focus import (
    DirectBranchTd,
    RefinedTd,
    ValueRefinement,
)
from focus.credit import Estimator, LambdaTd

__all__ = ("METHODS", "Method", "Plan")


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
    **PEERS,
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
