"""One place that says what kind of fault an exception or HTTP status is.

By type and number, never by message text: a read timeout has an empty message, and a
server may put anything into a body.
"""

from __future__ import annotations

import email.utils
import sys
import time
from collections.abc import Mapping

from focus.errors import (
    CorruptReply,
    FatalError,
    FocusError,
    Refused,
    RequestError,
    TransientError,
)

__all__ = ("classify_exception", "classify_status", "retry_after_s")

_TRANSIENT_STATUS = frozenset({408, 425, 429})
_FULL_STATUS = frozenset({429, 503})
_FATAL_STATUS = frozenset({401, 403, 404, 405})


def classify_exception(error: Exception) -> RequestError:
    """The request error that a policy's exception stands for.

    A `RequestError` passes through. Timeouts and connection faults are transient, an
    undecodable body is corrupt, an HTTP status error is what its status says; anything
    unknown is refused, so that a bug is loud and is not repeated.

    >>> classify_exception(ConnectionResetError("reset")).__class__.__name__
    'TransientError'
    >>> classify_exception(KeyError("x")).__class__.__name__
    'Refused'
    """
    if isinstance(error, RequestError):
        return error
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, TimeoutError | ConnectionError):
        return TransientError(text)
    if isinstance(error, FocusError):
        return FatalError(text)
    return _httpx_fault(error, text) or Refused(text)


def _httpx_fault(error: Exception, text: str) -> RequestError | None:
    """None unless httpx raised it; who has not imported httpx cannot have its errors."""
    httpx = sys.modules.get("httpx")
    if httpx is None:
        return None
    if isinstance(error, httpx.TransportError):
        return TransientError(text)
    if isinstance(error, httpx.DecodingError):
        return CorruptReply(text)
    if isinstance(error, httpx.HTTPStatusError):
        return classify_status(error.response.status_code, headers=error.response.headers)
    return None


def classify_status(
    status: int, *, body: str = "", headers: Mapping[str, str] | None = None
) -> RequestError | None:
    """The error that an HTTP status stands for; None for 2xx.

    408, 425, 429 and 5xx may pass; 401, 403, 404 and 405 mean that the address or key is
    wrong for every request; other codes refuse this request only.

    >>> classify_status(503).__class__.__name__, classify_status(422).__class__.__name__
    ('TransientError', 'Refused')
    """
    if 200 <= status < 300:
        return None
    text = f"HTTP {status}" + (f": {body[:500]}" if body else "")
    if status in _TRANSIENT_STATUS or status >= 500:
        error = TransientError(text)
        error.retry_after_s = retry_after_s(headers or {})
        error.is_full = status in _FULL_STATUS
        return error
    return FatalError(text) if status in _FATAL_STATUS else Refused(text)


def retry_after_s(headers: Mapping[str, str], *, most_s: float = 60.0) -> float | None:
    """Seconds that a Retry-After header asks for, in [0, most_s]; None when absent or absurd.

    >>> retry_after_s({"retry-after": "2"}), retry_after_s({"retry-after": "soon"})
    (2.0, None)
    """
    wish = (headers.get("retry-after") or headers.get("Retry-After") or "").strip()
    if wish.isascii() and wish.isdigit():
        return min(float(wish[:9]), most_s)
    try:
        when = email.utils.parsedate_to_datetime(wish).timestamp()
    except (IndexError, OverflowError, TypeError, ValueError):
        return None
    return min(max(0.0, when - time.time()), most_s)
