"""One server, bounded and checked: nothing it sends may crash, bloat, redirect or leak."""

from __future__ import annotations

import asyncio
import gzip
import json
import traceback
from typing import Any

import anyio
import anyio.lowlevel
import httpx
import pytest

from focus.errors import ConfigError, CorruptReply, FatalError, Refused, TransientError
from focus.policies.http import HttpServer

from .loopback import Answer, Ask, Cut, Handler, Loopback

pytestmark = pytest.mark.anyio

KEY = "canary-7f3a"


def always(answer: Answer | bytes | None) -> Handler:
    async def handler(ask: Ask) -> Answer | bytes | None:
        return answer

    return handler


async def outcome(answer: Answer | bytes | None, **options: Any) -> Any:
    """What a post gives or raises."""
    async with Loopback(always(answer)) as loopback:
        server = HttpServer(loopback.url, **options)
        try:
            return await server.post("/x", {"a": 1})
        except Exception as error:
            return error
        finally:
            await server.aclose()


async def test_json_goes_out_and_comes_back() -> None:
    async with Loopback(always(Answer.of({"b": [1, 2.5, None]}))) as loopback:
        server = HttpServer(loopback.url + "/base/")
        assert await server.post("/x", {"a": 1}, headers={"x-key": "k"}) == {"b": [1, 2.5, None]}
        assert await server.get("/y") == {"b": [1, 2.5, None]}
        await server.aclose()
    post, get = loopback.asks
    assert (post.path, post.json, post.headers["x-key"]) == ("/base/x", {"a": 1}, "k")
    assert (get.method, get.path) == ("GET", "/base/y")
    assert loopback.connections == 1


STATUSES = [
    (400, Refused),
    (401, FatalError),
    (404, FatalError),
    (413, Refused),
    (422, Refused),
    (408, TransientError),
    (429, TransientError),
    (500, TransientError),
    (502, TransientError),
    (503, TransientError),
    (504, TransientError),
]


@pytest.mark.parametrize(("status", "kind"), STATUSES)
async def test_a_status_has_its_class_and_names_the_server(status: int, kind: type) -> None:
    error = await outcome(Answer(b'{"message": "no  room\n"}', status, {"retry-after": "7"}))
    assert type(error) is kind
    assert f"HTTP {status}" in str(error)
    assert "POST http://127.0.0.1:" in str(error)
    assert '"no room "' in str(error)
    assert getattr(error, "retry_after_s", 7.0) == 7.0


HUGE = b'{"n": ' + b"9" * 10_000 + b"}"
BODIES = {
    "html": b"<html>Bad gateway</html>",
    "cut": b'{"a": [1, 2',
    "twice": b'{"a": 1, "a": 2}',
    "nan": b'{"a": NaN}',
    "infinity": b'{"a": -Infinity}',
    "overflow": b'{"a": 1e999}',
    "digits": HUGE,
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "bom": b'\xef\xbb\xbf{"a": 1}',
    "latin": b'{"a": "\xe9"}',
    "half": b'{"a": "\\ud800"}',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=list(BODIES))
async def test_a_body_that_is_no_strict_json_is_corrupt(body: bytes) -> None:
    error = await outcome(Answer(body))
    assert type(error) is CorruptReply
    assert len(str(error)) < 1000


async def test_a_body_that_is_no_json_shows_how_it_begins_without_the_key() -> None:
    error = await outcome(Answer(f"<html>{KEY} {'x' * 99}</html>".encode()), api_key=KEY)
    assert "it begins '<html>*** xxx" in str(error)
    assert KEY not in str(error)


async def test_an_empty_body_is_empty_text() -> None:
    assert await outcome(Answer()) == ""


async def test_compressed_replies_are_refused_unread() -> None:
    bomb = gzip.compress(b" " * 10_000_000)
    error = await outcome(Answer(bomb, headers={"content-encoding": "gzip"}))
    assert type(error) is CorruptReply
    assert "gzip" in str(error)


async def test_an_endless_reply_is_cut_off() -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    endless = head + (b"10000\r\n" + b"a" * 0x10000 + b"\r\n") * 64
    error = await outcome(endless, most_bytes=100_000)
    assert type(error) is CorruptReply
    assert "exceeds 100000 bytes" in str(error)


async def test_a_long_error_page_is_not_read_to_its_end() -> None:
    error = await outcome(Answer(b"x" * 10_000_000, 500))
    assert type(error) is TransientError
    assert len(str(error)) < 1000


BROKEN = {
    "reset": None,
    "no http": b"EHLO\r\n\r\n",
    "short": Cut(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{}"),
    "chunks": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}",
    "headers": b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 50_000,
}


@pytest.mark.parametrize("answer", BROKEN.values(), ids=list(BROKEN))
async def test_a_broken_connection_is_transient(answer: bytes | None) -> None:
    error = await outcome(answer)
    assert type(error) is TransientError
    assert "POST http://127.0.0.1:" in str(error)


async def test_nobody_listening_is_transient_and_named() -> None:
    async with Loopback(always(None)) as loopback:
        url = loopback.url
    server = HttpServer(url)
    with pytest.raises(TransientError, match=f"GET {url}/health: ConnectError"):
        await server.get("/health")
    await server.aclose()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_redirects_are_refused_and_no_other_host_is_asked(status: int) -> None:
    async with Loopback(always(Answer.of({}))) as other:
        error = await outcome(Answer(b"", status, {"location": other.url + "/x"}))
        assert type(error) is Refused
        assert other.connections == 0


async def test_the_key_reaches_the_server_and_nothing_else() -> None:
    """In no repr, message, cause or traceback, locals included, even if the server echoes it."""

    async def echo(ask: Ask) -> Answer | None:
        if ask.path == "/reset":
            return None
        headers = json.dumps(dict(ask.headers)).encode()
        return (
            Answer(headers, 500 if ask.path == "/status" else 200)
            if ask.path != "/bad"
            else (Answer(b'{"%s": 1, "%s": 2}' % (KEY.encode(), KEY.encode())))
        )

    async with Loopback(echo) as loopback:
        server = HttpServer(loopback.url, api_key=KEY)
        assert KEY not in repr(server)
        for path in ("/status", "/reset", "/bad"):
            try:
                await server.post(path, {})
            except Exception as error:
                shown = traceback.TracebackException.from_exception(error, capture_locals=True)
                assert KEY not in "".join(shown.format())
            else:
                pytest.fail("no error")
        assert (await server.get("/ok"))["authorization"] == f"Bearer {KEY}"
        await server.aclose()


async def test_credentials_in_the_url_are_sent_and_hidden() -> None:
    async with Loopback(always(Answer(b"", 403))) as loopback:
        server = HttpServer(loopback.url.replace("//", f"//me:{KEY}@"))
        assert KEY not in repr(server) + server.url
        with pytest.raises(FatalError) as caught:
            await server.get("/x")
        assert KEY not in str(caught.value)
        await server.aclose()
    assert loopback.asks[0].headers["authorization"].startswith("Basic ")


@pytest.mark.parametrize(
    "url", ["", "localhost:3000", "ftp://a/b", "file:///etc", "http://", "h t"]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        HttpServer(url)


def test_two_kinds_of_credentials_are_refused() -> None:
    with pytest.raises(ConfigError, match="not both"):
        HttpServer("http://a:b@host", api_key=KEY)


async def test_a_borrowed_client_stays_open() -> None:
    async with Loopback(always(Answer.of(1))) as loopback, httpx.AsyncClient() as client:
        server = HttpServer(loopback.url, client=client)
        assert await server.get("/x") == 1
        await server.aclose()
        assert not client.is_closed


def test_one_server_object_serves_one_loop_after_another() -> None:
    async def find_port() -> int:
        async with Loopback(always(None)) as loopback:
            return loopback.port

    async def ask() -> Any:
        async with Loopback(always(Answer.of("y")), port=port):
            return await server.get("/x")

    port = asyncio.run(find_port())
    server = HttpServer(f"http://127.0.0.1:{port}")

    async def ask_and_close() -> Any:
        answer = await ask()
        await server.aclose()
        return answer

    assert [asyncio.run(ask_and_close()) for _ in range(3)] == ["y"] * 3


async def test_a_cancelled_request_leaves_the_client_usable() -> None:
    async def handler(ask: Ask) -> Answer:
        if ask.path == "/hang":
            await asyncio.Event().wait()
        return Answer.of("fine")

    async with Loopback(handler) as loopback:
        server = HttpServer(loopback.url)
        for _ in range(3):
            loopback.arrived.clear()
            task = asyncio.create_task(server.get("/hang"))
            await loopback.arrived.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await server.get("/x") == "fine"
        await server.aclose()


async def until_standing(loopback: Loopback, connections: int) -> None:
    """The server has heard of it, too."""
    with anyio.fail_after(10):
        while loopback.standing != connections:
            await anyio.lowlevel.checkpoint()


async def test_each_of_many_requests_at_once_has_a_connection_which_later_ones_use() -> None:
    everybody = asyncio.Barrier(5)

    async def handler(ask: Ask) -> Answer:
        await everybody.wait()
        return Answer.of(ask.path)

    async with Loopback(handler) as loopback:
        server = HttpServer(loopback.url)
        for _ in range(3):
            asked = [f"/{number}" for number in range(5)]
            assert await asyncio.gather(*map(server.get, asked)) == asked
        assert loopback.connections == loopback.standing == 5
        await server.aclose()
        await until_standing(loopback, 0)


async def test_a_connection_that_the_server_closed_meanwhile_is_replaced_unnoticed() -> None:
    async with Loopback(always(Cut(Answer.of(1).wire()))) as loopback:
        server = HttpServer(loopback.url)
        for number in range(1, 4):
            assert await server.get("/x") == 1
            await until_standing(loopback, 0)
            assert loopback.connections == number
        await server.aclose()


class Silence:
    """No answer, until the client goes away."""

    async def say(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        assert await reader.read() == b""
        return False


async def test_a_connection_with_something_unread_is_closed_and_not_used_again() -> None:
    async def handler(ask: Ask) -> Answer | Silence:
        return Silence() if ask.path == "/hang" else Answer(b"1" * 100)

    async with Loopback(handler) as loopback:
        server = HttpServer(loopback.url)
        with pytest.raises(CorruptReply):
            await server.post("/long", {}, most_bytes=10)
        await until_standing(loopback, 0)
        loopback.arrived.clear()
        async with anyio.create_task_group() as group:
            group.start_soon(server.get, "/hang")
            await loopback.arrived.wait()
            group.cancel_scope.cancel()
        await until_standing(loopback, 0)
        assert loopback.connections == 2
        await server.aclose()


async def test_a_payload_that_is_no_json_is_refused_before_it_is_sent() -> None:
    server = HttpServer("http://127.0.0.1:1")
    with pytest.raises(Refused, match="JSON"):
        await server.post("/x", {"a": float("nan")})
