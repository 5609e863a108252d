"""Every exception FOCUS raises.

    FocusError
    ├── ConfigError            (ValueError)    a setting that cannot be honoured
    │   └── EvaluationOnly     a policy without tokens of its own was asked for training data
    ├── ProblemError           (ValueError)    a problem, row or prompt that cannot be used
    ├── LifecycleError         (RuntimeError)  an object used twice, too early or too late
    ├── MissingExtra           (ImportError)   an optional package is not installed
    ├── RequestError           (RuntimeError)  one generate or predict call failed
    │   ├── TransientError     retry may help: refused, reset, timed out, 429, 5xx
    │   ├── CorruptReply       a reply that breaks its own contract (counts, NaN, ids)
    │   ├── Aborted            the server ended the request early
    │   ├── Refused            this request will fail again: 4xx, context overflow
    │   └── FatalError         no request can succeed: wrong key, wrong model, mixed versions
    ├── CriticError            (RuntimeError)  a prediction is missing, non-finite or out of range
    ├── EnvError               (RuntimeError)  the task's own code raised
    │   └── NondeterminismError    an episode answered its own actions otherwise than before
    ├── ToolError              (ValueError)    a tool's answer to a call it cannot serve
    ├── GraderError            (RuntimeError)  an answer could not be graded; never a zero reward
    ├── CollectionFailed       (RuntimeError)  failed expansions while `allow_partial` is off
    ├── TrainerError           (RuntimeError)  a trainer failed half-way: weights unknown
    ├── CreditError            (ValueError)    an estimator refuses this tree
    ├── RecordError            (ValueError)    a sample breaks an invariant of exact-tokens.md
    └── StoreError             (OSError)       a file or folder of records cannot be used
        └── SchemaError        written by another version, or damaged

Whoever calls foreign code (a policy, an env, a critic, a grader) translates its
errors once, at that boundary, with ``from error``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = (
    "Aborted",
    "CollectionFailed",
    "ConfigError",
    "CorruptReply",
    "CreditError",
    "CriticError",
    "EnvError",
    "EvaluationOnly",
    "Failure",
    "FatalError",
    "FocusError",
    "GraderError",
    "LifecycleError",
    "MissingExtra",
    "NondeterminismError",
    "ProblemError",
    "RecordError",
    "Refused",
    "RequestError",
    "SchemaError",
    "StoreError",
    "ToolError",
    "TrainerError",
    "TransientError",
)


class FocusError(Exception):
    """Base of all errors that FOCUS raises on purpose."""


class ConfigError(FocusError, ValueError):
    """A setting is missing, contradictory or cannot be honoured."""


class EvaluationOnly(ConfigError):
    """Training data was asked of a policy whose tokens nobody knows; it can be evaluated."""


class ProblemError(FocusError, ValueError):
    """A problem cannot be collected: bad row, empty reference, prompt too long."""


class LifecycleError(FocusError, RuntimeError):
    """A single-use object was used again, or used outside its ``async with``."""


class MissingExtra(FocusError, ImportError):
    """An optional package is needed now and is not installed."""


class RequestError(FocusError, RuntimeError):
    """One call to a policy failed.

    The execution layer adds where it happened (``problem``, ``node``, ``request_id``,
    ``attempts``, ``elapsed_s``) before the error leaves it.
    """

    def __init__(self, message: str, **where: Any) -> None:
        super().__init__(message)
        self.message = message
        self.where: dict[str, Any] = where

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild_request_error, (type(self), self.message, self.where), vars(self))

    def located(self, **where: Any) -> RequestError:
        """The same error with more of its place known; earlier facts win."""
        for name, value in where.items():
            self.where.setdefault(name, value)
        return self

    def __str__(self) -> str:
        where = dict(self.where)
        if where.get("request_id") == where.get("request"):
            where.pop("request_id", None)
        place = ", ".join(f"{name}={value}" for name, value in where.items())
        return f"{self.message} [{place}]" if place else self.message


def _rebuild_request_error(
    kind: type[RequestError], message: str, where: dict[str, Any]
) -> RequestError:
    return kind(message, **where)


class TransientError(RequestError):
    """The same request may succeed later.

    ``retry_after_s`` is the server's own wish, if any; ``is_late`` says that our own deadline
    passed, so that a reply may still be on its way to nobody; ``is_full`` that the server had
    no room for the request and did nothing about it.
    """

    retry_after_s: float | None = None
    is_late: bool = False
    is_full: bool = False


class CorruptReply(RequestError):
    """The reply arrived and breaks its contract; none of it may be used."""


class Aborted(RequestError):
    """The server stopped the request (an abort is not a completion).

    ``is_final`` says that the host ends its whole rollout, so that a retry is pointless.
    """

    is_final: bool = False


class Refused(RequestError):
    """The server will refuse this request each time."""


class FatalError(RequestError):
    """No request of this run can succeed until something outside is changed."""


class CriticError(FocusError, RuntimeError):
    """The critic gave no usable prediction."""


class EnvError(FocusError, RuntimeError):
    """An environment method raised; the original error is the cause."""


class NondeterminismError(EnvError):
    """An episode that was made again from its recorded actions answered otherwise."""


class ToolError(FocusError, ValueError):
    """A tool cannot serve this call: the policy reads the text and goes on."""


class GraderError(FocusError, RuntimeError):
    """An answer could not be graded. Unknown is not zero."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed expansion or prediction, as data.

    Attributes:
        stage: ``"expansion"``, ``"prediction"``, or ``"release"`` of environment states.
        expansion: launch number; -1 for a release.
        node: checkpoint it started from; the root for a release.
        kind: class name of the error.
        message: its text, with problem, request, attempts and elapsed time.
    """

    stage: str
    expansion: int
    node: int
    kind: str
    message: str


class CollectionFailed(FocusError, RuntimeError):
    """Some expansions or predictions of a tree failed.

    ``failures`` lists them. The finished part is in ``collection``; pass
    ``allow_partial=True`` to :meth:`focus.Collector.collect` to accept it.
    """

    def __init__(self, message: str, failures: Sequence[Failure] = (), collection: Any = None):
        super().__init__(message)
        self.failures: tuple[Failure, ...] = tuple(failures)
        self.collection = collection

    def __reduce__(self) -> tuple[Any, ...]:
        kept = {name: value for name, value in vars(self).items() if name != "collection"}
        return (CollectionFailed, (str(self), self.failures), kept)


class CreditError(FocusError, ValueError):
    """An estimator's assumptions do not hold on this tree."""


class TrainerError(FocusError, RuntimeError):
    """A trainer failed in the middle of an update: its weights are not known any more.

    The round is not applied. Go on from the last saved state.
    """


class RecordError(FocusError, ValueError):
    """A sample breaks an exported-sample invariant; it is never exported."""


class StoreError(FocusError, OSError):
    """A record file or folder cannot be written, read or trusted."""


class SchemaError(StoreError):
    """A stored file was written by an unknown version, or is damaged."""
