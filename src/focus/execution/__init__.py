"""Permits, deadlines, retries and reply checks around a policy's calls."""

from focus.execution.admission import AdmissionPool, PoolStatistics
from focus.execution.checks import check_generation
from focus.execution.counts import RequestCounts
from focus.execution.execution import Execution, Reply
from focus.execution.services import ExecutionServices
from focus.execution.together import Together
from focus.policies.retry import RetryPolicy

__all__ = (
    "AdmissionPool",
    "Execution",
    "ExecutionServices",
    "PoolStatistics",
    "Reply",
    "RequestCounts",
    "RetryPolicy",
    "Together",
    "check_generation",
)
