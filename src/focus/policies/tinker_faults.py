"""What an exception of Tinker's SDK means for a request."""

from __future__ import annotations

import sys
from typing import Any

from focus.errors import FatalError, Refused, RequestError, TransientError
from focus.policies.faults import classify_exception, classify_status

__all__ = ("classify_tinker",)


def classify_tinker(error: Exception) -> RequestError:
    """The request error that the SDK's exception stands for, by type and status.

    The SDK has been patient already: who is out of reach for it is out of reach. A request
    that the service failed at may be sent again, one that the user got wrong may not.

    >>> classify_tinker(ValueError("no such loss")).__class__.__name__
    'Refused'
    """
    tinker = sys.modules.get("tinker")
    if isinstance(error, RequestError) or tinker is None:
        return classify_exception(error)
    cause = error.__cause__
    if isinstance(error, ValueError) and isinstance(cause, tinker.APIStatusError):
        error = cause  # the SDK wraps the status that a result was refused with
    fault = _sdk_fault(tinker, error)
    if fault is None:
        return classify_exception(error)
    fault.__cause__ = error
    return fault


def _sdk_fault(tinker: Any, error: Exception) -> RequestError | None:
    text = f"{type(error).__name__}: {error}"[:500]
    if isinstance(error, tinker.RequestFailedError):
        is_ours = error.category is tinker.types.RequestErrorCategory.User
        return Refused(text) if is_ours else TransientError(text)
    if isinstance(error, tinker.APIStatusError):
        found = classify_status(error.status_code)
        fault = TransientError(text) if found is None else found
        fault.message = text
        return fault
    return FatalError(text) if isinstance(error, tinker.TinkerError) else None
