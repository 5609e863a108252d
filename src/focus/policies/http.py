"""JSON over HTTP with one server: bounded, checked, and without secrets in its errors."""

from __future__ import annotations

import asyncio
import re
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import httpx

from focus.errors import (
    ConfigError,
    CorruptReply,
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
_CONNECT_S = 10.0
_LANE = 8
"""Requests at once on one httpx client, which looks at all its connections for each of them."""
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

    Clients of its own are made on first use, for each event loop its own and one per 8
    requests at once, and closed by `aclose`; a passed-in client is borrowed.

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
        self._auth = Credentials(address, api_key)
        self._borrowed = client
        self._most_bytes = most_bytes
        self._own: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Lanes] = (
            weakref.WeakKeyDictionary()
        )

    def __repr__(self) -> str:
        return f"HttpServer({self.url!r})"

    @property
    def url(self) -> str:
        """The address without credentials and trailing slash."""
        return str(self._address).rstrip("/")

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
            Refused, FatalError: any other status, redirects included, or a payload that is
                no JSON.
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
        """Close this loop's own clients; a borrowed one stays open."""
        client = self._own.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    @contextmanager
    def _client(self) -> Iterator[httpx.AsyncClient]:
        """A client for one request."""
        if self._borrowed is not None:
            yield self._borrowed
            return
        loop = asyncio.get_running_loop()
        client = self._own.get(loop)
        if client is None:
            client = self._own[loop] = _Lanes(is_secure=self._address.scheme == "https")
        with client.lent() as lent:
            yield lent

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
            async with self._answer(method, path, content, headers) as response:
                fault = await self._status_fault(response, where)
                if fault is None:
                    most = min(self._most_bytes, most_bytes or self._most_bytes)
                    body = await _body(response, where, most)
                    return _parsed(body)
        except httpx.TransportError as error:
            text = self._auth.redacted(str(error))
            fault = TransientError(f"{where}: {type(error).__name__}" + (text and f": {text}"))
            fault.__cause__ = type(error)(text)
        except SchemaError as error:
            text = self._auth.redacted(str(error)[:_MOST_ERROR_BYTES])[:500]
            begins = self._auth.redacted(body[:_MOST_ERROR_BYTES].decode("utf-8", "replace"))
            fault = CorruptReply(f"{where}: {text}; it begins {begins[:_SHOWN]!r}")
            body = b""
        except CorruptReply as error:
            fault = error
        raise self._auth.cleaned(fault)

    @asynccontextmanager
    async def _answer(
        self, method: str, path: str, content: bytes | None, headers: Mapping[str, str]
    ) -> AsyncIterator[httpx.Response]:
        fixed = {"accept": "application/json", "accept-encoding": "identity"}
        if content is not None:
            fixed["content-type"] = "application/json"
        with self._client() as client:
            async with client.stream(
                method,
                self.url + path,
                content=content,
                headers={**headers, **fixed},
                auth=self._auth,
                follow_redirects=False,
                timeout=httpx.Timeout(None, connect=_CONNECT_S),
            ) as response:
                yield response

    async def _status_fault(self, response: httpx.Response, where: str) -> RequestError | None:
        if response.is_success:
            return None
        head = bytearray()
        if _encoding(response) is None:
            async for chunk in response.aiter_bytes():
                head += chunk
                if len(head) >= _MOST_ERROR_BYTES:
                    break
        text = head[:_MOST_ERROR_BYTES].decode("utf-8", "replace")
        text = self._auth.redacted(re.sub(r"[\s\x00-\x1f]+", " ", text).strip())
        fault = classify_status(response.status_code, body=text, headers=response.headers)
        if fault is not None:
            fault.message = f"{where}: {fault.message}"
        return fault


@dataclass(eq=False, slots=True)
class _Lane:
    client: httpx.AsyncClient
    in_flight: int = 0


class _Lanes:
    """The clients of one loop; a request takes the first that has room."""

    def __init__(self, *, is_secure: bool) -> None:
        self._is_secure = is_secure
        self._lanes: list[_Lane] = []

    @contextmanager
    def lent(self) -> Iterator[httpx.AsyncClient]:
        lane = next((lane for lane in self._lanes if lane.in_flight < _LANE), None)
        if lane is None:
            lane = _Lane(self._made())
            self._lanes.append(lane)
        lane.in_flight += 1
        try:
            yield lane.client
        finally:
            lane.in_flight -= 1

    async def aclose(self) -> None:
        for lane in self._lanes:
            await lane.client.aclose()

    def _made(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=_LANE),
            trust_env=False,
            # Plain HTTP has no certificate to check; loading the bundle would take 50 ms.
            verify=self._is_secure,
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


async def _body(response: httpx.Response, where: str, most_bytes: int) -> bytes:
    encoding = _encoding(response)
    if encoding is not None:
        raise CorruptReply(f"{where}: the reply is encoded as {encoding[:40]!r}, unasked for")
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > most_bytes:
            raise CorruptReply(f"{where}: the reply exceeds {most_bytes} bytes")
    return bytes(body)


def _encoding(response: httpx.Response) -> str | None:
    """How the body is compressed, though we asked for none; None when it is not."""
    encoding: str = response.headers.get("content-encoding", "identity")
    return None if encoding == "identity" else encoding


def _parsed(body: bytes) -> Any:
    return strict_json.loads(body, where="the reply") if body.strip() else ""
