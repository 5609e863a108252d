"""Train with Tinker: datums, losses, the critic as a verdict token, and the loop.

Importing this package imports no SDK.
"""

from focus.integrations.tinker.audit import LogProbAudit, audit_log_probs, require_training_law
from focus.integrations.tinker.datums import actor_datum, loss_config, verdict_datum
from focus.integrations.tinker.learner import TinkerLearner
from focus.integrations.tinker.packing import PathRow, pack_paths
from focus.integrations.tinker.settings import (
    TINKER_DEFAULTS,
    TinkerHost,
    TinkerSettings,
    VerdictText,
)
from focus.integrations.tinker.training import CollectorFor, train
from focus.integrations.tinker.verdict import Verdict, verdict_critic, verdict_value

__all__ = (
    "TINKER_DEFAULTS",
    "CollectorFor",
    "LogProbAudit",
    "PathRow",
    "TinkerHost",
    "TinkerLearner",
    "TinkerSettings",
    "Verdict",
    "VerdictText",
    "actor_datum",
    "audit_log_probs",
    "loss_config",
    "pack_paths",
    "require_training_law",
    "train",
    "verdict_critic",
    "verdict_datum",
    "verdict_value",
)
