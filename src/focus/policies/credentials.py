"""Credentials of one server: in its requests, and nowhere else."""

from __future__ import annotations

import base64
import logging
import weakref
from typing import Any, TypeVar

import httpx

from focus.errors import RequestError

__all__ = ("Credentials",)

E = TypeVar("E", bound=RequestError)

_LOGGERS = ("httpx", "httpcore.connection", "httpcore.http11", "httpcore.http2", "httpcore.proxy")
"""They print what a server sent; under debug, its headers too."""

_HIDDEN = "***"
_LONG_NAME = 8
"""A user name may be a token; a shorter one is a word, and would be cut out of others."""


class Credentials(httpx.Auth):
    """A key, or the user and password of an address.

    From here on the loggers of the HTTP client print neither, for as long as this object
    lives.

    Args:
        address: perhaps with ``user:password@``.
        api_key: a bearer token; not beside a user and password.

    Attributes:
        header: what a request carries as its authorization; None without credentials.
    """

    def __init__(self, address: httpx.URL, api_key: str | None) -> None:
        self.header: str | None = f"Bearer {api_key}" if api_key else None
        self._secrets = [part for part in (api_key, address.password) if part]
        if address.userinfo:
            pair = base64.b64encode(f"{address.username}:{address.password}".encode()).decode()
            self._secrets += [address.userinfo.decode(), pair]
            self.header = f"Basic {pair}"
        if len(address.username) >= _LONG_NAME:
            self._secrets.append(address.username)
        if self.header is not None:
            _known.add(self)

    def auth_flow(self, request: httpx.Request) -> Any:
        if self.header is not None:
            request.headers["authorization"] = self.header
        yield request

    def redacted(self, text: str) -> str:
        """`text` with every secret that a server echoed taken out."""
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        return text

    def cleaned(self, error: E) -> E:
        """The same error without secrets in its text, and without the frames that hold a reply.

        Raise it outside the handler that caught it, or Python keeps those frames beside it.
        """
        error.message = self.redacted(error.message)
        error.args = (error.message,)
        error.where = {
            name: self.redacted(value) if isinstance(value, str) else value
            for name, value in error.where.items()
        }
        return error.with_traceback(None)


_known: weakref.WeakSet[Credentials] = weakref.WeakSet()


class _Redaction(logging.Filter):
    """Takes secrets out of what the HTTP client logs."""

    def filter(self, record: logging.LogRecord) -> bool:
        if _known:
            record.msg, record.args = _without_secrets(record.getMessage()), None
        return True


def _without_secrets(text: str) -> str:
    for credentials in tuple(_known):
        text = credentials.redacted(text)
    return text


_REDACTION = _Redaction()
for _name in _LOGGERS:
    logging.getLogger(_name).addFilter(_REDACTION)
