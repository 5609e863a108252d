"""The page of `focus view` from a server of this machine, for a run that goes on."""

from __future__ import annotations

import json
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from focus.cli.view_source import ViewSource
from focus.errors import ConfigError, FocusError
from focus.viz.web.document import document

__all__ = ("ViewServer",)

_LOOPBACK = "127.0.0.1"


class ViewServer(ThreadingHTTPServer):
    """Answers on the loopback interface only, to requests that name it.

    Args:
        source: what is shown.
        title: of the page.
        port: 0 takes a free one.

    Raises:
        ConfigError: the port is taken.
    """

    daemon_threads = True

    def __init__(self, source: ViewSource, *, title: str, port: int = 0) -> None:
        try:
            super().__init__((_LOOPBACK, port), _Handler)
        except OSError as error:
            raise ConfigError(
                f"port {port} cannot be used ({error.strerror}); choose another --port"
            ) from error
        self.page: bytes = "".join(document(title=title, run=None)).encode("utf-8")
        self._source = source
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://{_LOOPBACK}:{self.server_port}/"

    def answer(self, path: str) -> tuple[str, bytes] | None:
        """Content type and body of an address; None for one that does not exist.

        Raises:
            FocusError: what was asked for cannot be read.
        """
        parts = urlsplit(path)
        if parts.path == "/":
            return "text/html; charset=utf-8", self.page
        if parts.path not in ("/run.json", "/tree.json"):
            return None
        with self._lock:
            if parts.path == "/run.json":
                return _json(self._source.run())
            return _json(self._source.tree(parse_qs(parts.query).get("key", [""])[0]))

    def is_addressed(self, host: str | None) -> bool:
        """Whether a request means this server, and not a name that was pointed at it."""
        return host in (f"{_LOOPBACK}:{self.server_port}", f"localhost:{self.server_port}")


def _json(value: Any) -> tuple[str, bytes]:
    data = json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")
    return "application/json", data


class _Handler(BaseHTTPRequestHandler):
    server: ViewServer

    def do_GET(self) -> None:
        if not self.server.is_addressed(self.headers.get("Host")):
            self._send(HTTPStatus.FORBIDDEN, "text/plain", b"not for this host")
            return
        try:
            found = self.server.answer(self.path)
        except ConfigError as error:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", str(error).encode("utf-8", "replace"))
        except FocusError as error:
            message = str(error).encode("utf-8", "replace")
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", message)
        else:
            if found is None:
                self._send(HTTPStatus.NOT_FOUND, "text/plain", b"no such address")
            else:
                self._send(HTTPStatus.OK, *found)

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests of the own page are no news."""
