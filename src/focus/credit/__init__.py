"""Credit: from a settled tree to one weight per edge and one target per checkpoint.

One estimator per file. The mathematics, with its biases, is in docs/concepts/credit.md.
"""

from focus.credit.base import Credit, Estimator, Target
from focus.credit.direct_branch import DirectBranchTd
from focus.credit.grpo import Grpo
from focus.credit.refined import RefinedTd
from focus.credit.rloo import Rloo

__all__ = ("Credit", "DirectBranchTd", "Estimator", "Grpo", "RefinedTd", "Rloo", "Target")
