"""Replies whose status says that nothing was sampled."""

from __future__ import annotations

import email.utils
from collections.abc import Callable, Mapping
from http import HTTPStatus

from focus.testing.chaos.faults import Act, Family, Fault, Kind, Scene
from focus.testing.chaos.wire import Send, head

__all__ = ("STATUS_FAULTS", "refusal")

_LONG_AGO_S = 1_000_000_000.0
_ABSURD = ("soon", "-1", "1e400", "", "Thu, 99 Xyz 2026")


def refusal(
    status: int,
    body: bytes = b'{"error": {"message": "chaos"}}',
    *,
    headers: Callable[[Scene], Mapping[str, str]] = lambda scene: {},
) -> Act:
    """A reply of another status; its text says nothing of the cause."""
    return lambda scene: (Send(head(len(body), status=status, headers=headers(scene)) + body),)


def _seconds(scene: Scene) -> Mapping[str, str]:
    return {"retry-after": "0"}


def _date(scene: Scene) -> Mapping[str, str]:
    return {"retry-after": email.utils.formatdate(_LONG_AGO_S, usegmt=True)}


def _absurd(scene: Scene) -> Mapping[str, str]:
    return {"retry-after": scene.rng.choice(_ABSURD)}


def _elsewhere(scene: Scene) -> Mapping[str, str]:
    return {"location": scene.rng.choice(("file:///etc/passwd", "http://192.0.2.1/generate"))}


def _plain(status: HTTPStatus, kind: Kind) -> Fault:
    return Fault(f"status_{int(status)}", Family.STATUS, kind, refusal(status))


STATUS_FAULTS = (
    _plain(HTTPStatus.BAD_REQUEST, Kind.DATA),
    _plain(HTTPStatus.UNAUTHORIZED, Kind.FATAL),
    _plain(HTTPStatus.NOT_FOUND, Kind.FATAL),
    _plain(HTTPStatus.REQUEST_TIMEOUT, Kind.TRANSIENT),
    _plain(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, Kind.DATA),
    _plain(HTTPStatus.UNPROCESSABLE_ENTITY, Kind.DATA),
    Fault("status_429", Family.STATUS, Kind.TRANSIENT, refusal(429, headers=_seconds)),
    Fault("status_429_date", Family.STATUS, Kind.TRANSIENT, refusal(429, headers=_date)),
    Fault("status_429_absurd", Family.STATUS, Kind.TRANSIENT, refusal(429, headers=_absurd)),
    _plain(HTTPStatus.INTERNAL_SERVER_ERROR, Kind.TRANSIENT),
    _plain(HTTPStatus.BAD_GATEWAY, Kind.TRANSIENT),
    Fault("status_503_empty", Family.STATUS, Kind.TRANSIENT, refusal(503, b"")),
    Fault(
        "status_503_no_workers",
        Family.STATUS,
        Kind.TRANSIENT,
        refusal(503, b'{"error": "no available workers"}'),
    ),
    _plain(HTTPStatus.GATEWAY_TIMEOUT, Kind.TRANSIENT),
    Fault("redirect", Family.STATUS, Kind.DATA, refusal(302, b"", headers=_elsewhere)),
)
