"""Permits, deadlines, retries and reply checks around a policy's calls."""

from focus.execution.admission import AdmissionPool, PoolStatistics
from focus.execution.checks import check_generation
from focus.execution.execution import Execution, Reply, RequestCounts
from focus.execution.services import ExecutionServices
from focus.policies.retry import RetryPolicy

__all__ = (
    "AdmissionPool",
    "Execution",
    "ExecutionServices",
    "PoolStatistics",
    "Reply",
    "RequestCounts",
    "RetryPolicy",
    "check_generation",
)
