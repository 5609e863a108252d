"""Credit: from a settled tree to one weight per edge and one target per checkpoint.

One estimator per file. The mathematics, with its biases, is in docs/concepts/credit.md.
"""

from focus.credit.base import Credit, Estimator, Target
from focus.credit.direct_branch import DirectBranchTd
from focus.credit.grpo import Grpo
from focus.credit.lambda_td import LambdaTd
from focus.credit.refined import RefinedTd
from focus.credit.rloo import Rloo
from focus.credit.spo import SpoTree
from focus.credit.tree_grpo import TreeGrpo
from focus.credit.tree_rl import TreeRl
from focus.credit.vine_ppo import VinePpo

__all__ = (
    "Credit",
    "DirectBranchTd",
    "Estimator",
    "Grpo",
    "LambdaTd",
    "RefinedTd",
    "Rloo",
    "SpoTree",
    "Target",
    "TreeGrpo",
    "TreeRl",
    "VinePpo",
)
