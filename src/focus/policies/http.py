"""JSON over HTTP with one server: bounded, checked, and without secrets in its errors."""

from __future__ import annotations

import asyncio
import functools
import os
import re
import ssl
import weakref
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple, Protocol

import anyio
import httpcore
import httpx

from focus.errors import (
    ConfigError,
    CorruptReply,
    FatalError,
    RecordError,
    Refused,
    RequestError,
    SchemaError,
    TransientError,
)
from focus.policies.credentials import Credentials
from focus.policies.faults import classify_status
from focus.records import strict_json

__all__ = ("HttpServer", "JsonServer")

_MOST_REPLY_BYTES = 16 * 2**20
_MOST_ERROR_BYTES = 4096
_TIMEOUT = httpx.Timeout(None, connect=10.0)
_KEPT_S = 5.0
"""A connection that was idle for longer is not used again: servers close theirs."""

_BROKEN = (
    httpx.TransportError,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.TimeoutException,
)
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
"""OpenSSL's word; not every layer above keeps its error as a cause."""

_SHOWN = 60
"""Characters of a body that is no JSON, enough to tell an error page from a cut reply."""


class JsonServer(Protocol):
    """Whatever carries JSON to one server and back; failures are request errors.

    Attributes:
        url: the server's address as errors may show it, without secrets.
    """

    @property
    def url(self) -> str: ...

    async def post(
        self,
        path: str,
        payload: Mapping[str, Any],
        *,
        headers: Mapping[str, str] | None = None,
        most_bytes: int | None = None,
    ) -> Any:
        """The JSON value that answers `payload`; text where the body is none (an empty one)."""
        ...

    async def get(self, path: str) -> Any:
        """The JSON value at `path`."""
        ...

    def cleaned(self, error: RequestError) -> RequestError:
        """An error about what the server answered, without secrets that it echoed."""
        ...

    async def aclose(self) -> None:
        """Let go of what it made itself."""
        ...


class HttpServer:
    """One server behind one address; nothing else is ever contacted.

    Redirects and proxies from the environment are not followed. Bodies come uncompressed,
    are counted while they arrive and cut off at `most_bytes`; JSON is read strictly (no NaN,
    no repeated key, bounded depth and digits). There is no read timeout: the caller's
    deadline rules (:class:`focus.execution.Execution`).

    An https server must show a certificate of a public authority, or of those in the file
    SSL_CERT_FILE or the folder SSL_CERT_DIR where the environment names one.

    Connections of its own are made on first use, for each event loop its own and one per request
    at once, kept for later ones, and closed by `aclose`; a passed-in client is borrowed.

    Args:
        url: http(s) address, perhaps with a path; ``user:password@`` is sent as basic
            authentication and shown nowhere.
        api_key: bearer token, sent to this server only and shown nowhere.
        client: used instead of an own one; never closed.
        most_bytes: largest reply body.

    Raises:
        ConfigError: the address is no http(s) URL, or names two kinds of credentials.

    >>> HttpServer("http://me:secret@localhost:30000/", api_key=None)
    HttpServer('http://localhost:30000')
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        client: httpx.AsyncClient | None = None,
        most_bytes: int = _MOST_REPLY_BYTES,
    ) -> None:
        address = _address(url)
        if api_key and address.userinfo:
            raise ConfigError("give either an api_key or credentials in the URL, not both")
        self._address = address.copy_with(username=None, password=None, query=None, fragment=None)
        self._url = str(self._address).rstrip("/")
        self._auth = Credentials(address, api_key)
        self._borrowed = client
        self._most_bytes = most_bytes
        self._own: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Connections] = (
            weakref.WeakKeyDictionary()
        )

    def __repr__(self) -> str:
        return f"HttpServer({self.url!r})"

    @property
    def url(self) -> str:
        """The address without credentials and trailing slash."""
        return self._url

    async def post(
        self,
        path: str,
        payload: Mapping[str, Any],
        *,
        headers: Mapping[str, str] | None = None,
        most_bytes: int | None = None,
    ) -> Any:
        """Send a JSON object and read the JSON value that answers it.

        An empty body is the empty text. `most_bytes` bounds this reply more tightly.

        Raises:
            TransientError: not reached, cut off, or a status that may pass.
            CorruptReply: a body that is compressed, too large or no strict JSON.
            Refused, FatalError: any other status, redirects included, a payload that is no
                JSON, or a certificate that nobody vouches for.
        """
        try:
            content = strict_json.dumps(payload, what=f"the request to {self.url}{path}")
        except RecordError as error:
            raise Refused(str(error)) from error
        return await self._exchange("POST", path, content, headers or {}, most_bytes)

    async def get(self, path: str) -> Any:
        """The JSON value at `path`.

        Raises:
            RequestError: as `post`.
        """
        return await self._exchange("GET", path, None, {}, None)

    def cleaned(self, error: RequestError) -> RequestError:
        """An error about what the server answered, without secrets that it echoed.

        Its frames are dropped, since they hold the reply; raise it outside the handler.
        """
        return self._auth.cleaned(error)

    async def aclose(self) -> None:
        """Close this loop's own connections; a borrowed client stays open."""
        client = self._own.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    def _connections(self) -> _Connections:
        loop = asyncio.get_running_loop()
        client = self._own.get(loop)
        if client is None:
            client = self._own[loop] = _Connections(self._address)
        return client

    async def _exchange(
        self,
        method: str,
        path: str,
        content: bytes | None,
        headers: Mapping[str, str],
        most_bytes: int | None,
    ) -> Any:
        where = f"{method} {self.url}{path}"
        # Raised outside the handlers: frames below hold headers and bodies, keys and all.
        fault: RequestError | None = None
        body = b""
        try:
            async with self._answer(method, self._url + path, content, headers) as answer:
                fault = await self._status_fault(answer, where)
                if fault is None:
                    most = min(self._most_bytes, most_bytes or self._most_bytes)
                    body = await _body(answer, where, most)
                    return _parsed(body)
        except _BROKEN as error:
            text = self._auth.redacted(str(error))
            fault = _broken(where, error, text)
            fault.__cause__ = type(error)(text)
        except SchemaError as error:
            text = self._auth.redacted(str(error)[:_MOST_ERROR_BYTES])[:500]
            begins = self._auth.redacted(body[:_MOST_ERROR_BYTES].decode("utf-8", "replace"))
            fault = CorruptReply(f"{where}: {text}; it begins {begins[:_SHOWN]!r}")
            body = b""
        except RequestError as error:
            fault = error
        raise self._auth.cleaned(fault)

    def _answer(
        self, method: str, url: str, content: bytes | None, headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[_Answer]:
        fixed = {**headers, "accept": "application/json", "accept-encoding": "identity"}
        if content is not None:
            fixed["content-type"] = "application/json"
        if self._borrowed is not None:
            return self._answer_of(self._borrowed, method, url, content, fixed)
        if self._auth.header is not None:
            fixed["authorization"] = self._auth.header
        return self._connections().answer(method, url, content, fixed)

    @asynccontextmanager
    async def _answer_of(
        self,
        client: httpx.AsyncClient,
        method: str,
        url: str,
        content: bytes | None,
        headers: Mapping[str, str],
    ) -> AsyncIterator[_Answer]:
        async with client.stream(
            method,
            url,
            content=content,
            headers=headers,
            auth=self._auth,
            follow_redirects=False,
            timeout=_TIMEOUT,
        ) as response:
            yield _Answer(response.status_code, response.headers, response.aiter_bytes())

    async def _status_fault(self, answer: _Answer, where: str) -> RequestError | None:
        if 200 <= answer.status < 300:
            return None
        head = bytearray()
        if _encoding(answer) is None:
            async for chunk in answer.chunks:
                head += chunk
                if len(head) >= _MOST_ERROR_BYTES:
                    break
        text = head[:_MOST_ERROR_BYTES].decode("utf-8", "replace")
        text = self._auth.redacted(re.sub(r"[\s\x00-\x1f]+", " ", text).strip())
        fault = classify_status(answer.status, body=text, headers=answer.headers)
        if fault is not None:
            fault.message = f"{where}: {fault.message}"
        return fault


class _Answer(NamedTuple):
    """What a server answered, its body unread."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterable[bytes]


class _Connections:
    """The connections of one loop: one per request at once, kept for later ones.

    A pool looks at all of its own before and after each request, and a client does a browser's
    work around it (cookies, redirects, proxies); together that is twice what the
    request itself costs.
    """

    def __init__(self, address: httpx.URL) -> None:
        self._host = address.netloc
        self._verify = _authorities(is_secure=address.scheme == "https")
        self._all: set[httpcore.AsyncHTTPConnection] = set()
        self._free: list[httpcore.AsyncHTTPConnection] = []

    @asynccontextmanager
    async def answer(
        self, method: str, url: str, content: bytes | None, headers: Mapping[str, str]
    ) -> AsyncIterator[_Answer]:
        """What the server answers, on the connection that was used last of those that are free."""
        target = _target(url)
        connection = await self._taken(target.origin)
        try:
            async with connection.stream(
                method,
                target,
                headers=[("host", self._host), *headers.items()],
                content=content,
                extensions={"timeout": _TIMEOUT.as_dict()},
            ) as response:
                yield _Answer(
                    response.status, httpx.Headers(response.headers), response.aiter_stream()
                )
        finally:
            if connection.is_available():
                self._free.append(connection)
            else:
                await self._close(connection)

    async def aclose(self) -> None:
        while self._all:
            await self._close(next(iter(self._all)))

    async def _taken(self, origin: httpcore.Origin) -> httpcore.AsyncHTTPConnection:
        while self._free:
            connection = self._free.pop()
            if not connection.has_expired():
                return connection
            await self._close(connection)
        connection = httpcore.AsyncHTTPConnection(
            origin, ssl_context=self._verify, keepalive_expiry=_KEPT_S
        )
        self._all.add(connection)
        return connection

    async def _close(self, connection: httpcore.AsyncHTTPConnection) -> None:
        self._all.discard(connection)
        with anyio.CancelScope(shield=True):
            await connection.aclose()


def _authorities(*, is_secure: bool) -> ssl.SSLContext:
    """Who may vouch for the server."""
    try:
        # Plain HTTP has no certificate to check; loading the bundle would take 50 ms.
        return httpx.create_ssl_context(verify=is_secure)
    except OSError as error:
        named = os.environ.get("SSL_CERT_FILE")
        raise FatalError(f"SSL_CERT_FILE={named!r} names no file of certificates") from error


def _broken(where: str, error: Exception, text: str) -> RequestError:
    """Asking again may mend a connection, and not a server that nobody vouches for."""
    said = f"{where}: {type(error).__name__}" + (text and f": {text}")
    if isinstance(error, httpx.ConnectError | httpcore.ConnectError) and _UNTRUSTED in text:
        return FatalError(f"{said}; SSL_CERT_FILE may name a file of the authorities to trust")
    return TransientError(said)


@functools.lru_cache(maxsize=256)
def _target(url: str) -> httpcore.URL:
    """Parsed once: a server is asked at the same few addresses all the time."""
    parsed = httpx.URL(url)
    return httpcore.URL(
        scheme=parsed.raw_scheme, host=parsed.raw_host, port=parsed.port, target=parsed.raw_path
    )


def _address(url: str) -> httpx.URL:
    try:
        address = httpx.URL(url)
    except (httpx.InvalidURL, TypeError) as error:
        raise ConfigError(f"not a URL ({type(error).__name__})") from None
    if address.scheme not in ("http", "https") or not address.host:
        raise ConfigError(
            f"expected an address such as http://127.0.0.1:30000, got one with scheme "
            f"{address.scheme!r} and host {address.host!r}"
        )
    return address


async def _body(answer: _Answer, where: str, most_bytes: int) -> bytes:
    encoding = _encoding(answer)
    if encoding is not None:
        raise CorruptReply(f"{where}: the reply is encoded as {encoding[:40]!r}, unasked for")
    body = bytearray()
    async for chunk in answer.chunks:
        body += chunk
        if len(body) > most_bytes:
            raise CorruptReply(f"{where}: the reply exceeds {most_bytes} bytes")
    return bytes(body)


def _encoding(answer: _Answer) -> str | None:
    """How the body is compressed, though we asked for none; None when it is not."""
    encoding = answer.headers.get("content-encoding", "identity")
    return None if encoding == "identity" else encoding


def _parsed(body: bytes) -> Any:
    return strict_json.loads(body, where="the reply") if body.strip() else ""
