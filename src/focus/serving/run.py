"""The server process: a socket, a line that says where, and a clean end."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from focus.errors import ConfigError

__all__ = ("bind", "run_until_signalled", "url_of")

_GRACE_S = 2
"""Running requests get this long to end before they are cut off."""

_KEEP_ALIVE_S = 75
"""Longer than clients keep idle connections, so that none is closed under a new request."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one.

    Raises:
        ConfigError: the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot listen on {host} port {port}: {error.strerror}") from error
    return listener


def url_of(listener: socket.socket) -> str:
    """The address that clients use."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run_until_signalled(app: ASGIApp, listener: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM, then let requests end and return."""
    config = uvicorn.Config(
        app,
        access_log=False,
        lifespan="on",
        log_level="error",
        timeout_graceful_shutdown=_GRACE_S,
        timeout_keep_alive=_KEEP_ALIVE_S,
    )
    with _signals_end_quietly():
        uvicorn.Server(config).run(sockets=[listener])


@contextlib.contextmanager
def _signals_end_quietly() -> Iterator[None]:
    """uvicorn stops at a signal and then sends it again, to whoever listened before."""
    before = {
        number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
