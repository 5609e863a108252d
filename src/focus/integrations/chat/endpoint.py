"""A chat completions endpoint on the loopback interface, for one program."""

from __future__ import annotations

import hmac
import json
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from focus.errors import FocusError
from focus.integrations.chat.handover import ProgramStopped
from focus.integrations.chat.reply import Completion
from focus.records.strict_json import loads

__all__ = ("serving",)

_MOST_BYTES = 16 * 2**20


@contextmanager
def serving(answer: Callable[[Mapping[str, Any]], Completion]) -> Iterator[str]:
    """Answer chat completions with `answer` until the block ends; gives the base address.

    The address holds a secret, so that nobody else on this machine is answered; any key that
    a client sends is ignored.
    """
    root = f"/{secrets.token_urlsafe(24)}/v1"
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(answer, f"{root}/chat/completions"))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}{root}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(
    answer: Callable[[Mapping[str, Any]], Completion], path: str
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            status, plain = self._answered()
            body = json.dumps(plain).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            if self.close_connection:  # unsaid, a client would send its next request here
                self.send_header("connection", "close")
            self.end_headers()
            self.wfile.write(body)

        def _answered(self) -> tuple[HTTPStatus, Mapping[str, Any]]:
            told = self.headers.get("content-length") or ""
            size = int(told) if told.isdecimal() else 0
            if not 0 < size <= _MOST_BYTES:
                self.close_connection = True
                return _fault(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "no body, or too large a one")
            body = self.rfile.read(size)
            if not hmac.compare_digest(self.path.encode(), path.encode()):
                return _fault(HTTPStatus.NOT_FOUND, "only chat/completions is served")
            try:
                return HTTPStatus.OK, answer(loads(body, where="the request")).plain
            except FocusError as error:
                return _fault(HTTPStatus.BAD_REQUEST, str(error))
            except ProgramStopped:  # 400: clients repeat what a server lost, and this is final
                return _fault(HTTPStatus.BAD_REQUEST, "the episode is over")

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet: the program's own errors say what went wrong."""

    return Handler


def _fault(status: HTTPStatus, text: str) -> tuple[HTTPStatus, Mapping[str, Any]]:
    return status, {"error": {"message": text, "type": "focus", "code": status.value}}
