"""What a hostile server says over a real socket: bombs, floods, redirects, endless streams."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from focus.testing.loopback import Answer, Cut, Speech

__all__ = ("Flood", "floods")

_CHUNK = 2**16
_MOST_BYTES = 2**30
_OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


@dataclass(frozen=True)
class Flood:
    """Says `head`, then `piece` again and again, 1 GiB at most or until the client hangs up."""

    head: bytes
    piece: bytes
    pause: bool = False

    async def say(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(self.head)
        block = self.piece if self.pause else self.piece * max(1, _CHUNK // len(self.piece))
        for _ in range(_MOST_BYTES // len(block)):
            writer.write(block)
            await writer.drain()
            if self.pause:
                await asyncio.sleep(0.01)
        return False


def floods(elsewhere: str) -> Mapping[str, Answer | bytes | Speech]:
    """Each hostile answer by name.

    Args:
        elsewhere: the address of another server, which nobody must ask.
    """
    return dict(_floods(elsewhere))


def _floods(elsewhere: str) -> Iterator[tuple[str, Answer | bytes | Speech]]:
    yield from _bodies()
    yield from _bombs()
    yield from _headers()
    yield from _redirects(elsewhere)


def _bodies() -> Iterator[tuple[str, Answer | bytes | Speech]]:
    start = b'{"meta_info": {"output_token_logprobs": ['
    sized = b"content-length: 1073741824\r\n\r\n"
    yield "1 GB of blanks", Flood(_OK + sized, b" ")
    yield "1 GB of one text", Flood(_OK + sized + b'{"text": "', b"x")
    yield "10^9 token ids", Flood(_OK + sized + start, b"[-0.25, 65, null], ")
    yield "1 GB of brackets", Flood(_OK + sized, b"[")
    yield "endless digits", Flood(_OK + sized + b'{"meta_info": ', b"9")
    chunked = _OK + b"transfer-encoding: chunked\r\n\r\n"
    yield "endless chunks", Flood(chunked, b"4000\r\n" + b" " * 0x4000 + b"\r\n")
    yield "one byte at a time", Flood(chunked, b"1\r\n \r\n", pause=True)
    yield "a chunk of no end", Flood(chunked + b"7fffffffffffffff\r\n", b" ")
    yield "endless chunk extension", Flood(chunked + b"1;x=", b"y")
    yield "million digits", Answer(b'{"meta_info": ' + b"7" * 10**6 + b"}")
    yield "nested 100,000 lists", Answer(b"[" * 100_000 + b"]" * 100_000)
    yield "nested 100,000 objects", Answer(b'{"a":' * 100_000 + b"1" + b"}" * 100_000)
    yield "100,000 keys of one name", Answer(b"{" + b'"a":1,' * 100_000 + b'"a":1}')
    yield "short body", Cut(_OK + b"content-length: 100\r\n\r\n{}")
    yield "bad chunk", Cut(chunked + b"zz\r\n{}\r\n")


def _bombs() -> Iterator[tuple[str, Answer]]:
    """A client that asked for no compression has nothing to unpack, whatever it is called."""
    bomb = _bomb(2**28)
    for encoding in ("gzip", "br", "zstd", "deflate", "gzip, gzip", "x-unknown"):
        yield f"{encoding} bomb", Answer(bomb, headers={"content-encoding": encoding})
    for status in (400, 500):
        yield f"{status} with a bomb", Answer(bomb, status, {"content-encoding": "gzip"})


def _bomb(size: int) -> bytes:
    """`size` bytes of blanks, a thousand times smaller, never held at once."""
    packer = zlib.compressobj(wbits=31)
    block = b" " * _CHUNK
    return b"".join(packer.compress(block) for _ in range(size // _CHUNK)) + packer.flush()


def _headers() -> Iterator[tuple[str, bytes | Speech]]:
    yield "100,000 headers", b"HTTP/1.1 200 OK\r\n" + b"x-flood: yes\r\n" * 100_000 + b"\r\n{}"
    yield "one header of 1 GB", Flood(b"HTTP/1.1 200 OK\r\nx-flood: ", b"y")
    yield "headers without end", Flood(b"HTTP/1.1 200 OK\r\n", b"x-flood: yes\r\n")
    yield "endless status line", Flood(b"HTTP/1.1 200 ", b"O")
    yield "endless informational replies", Flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n")
    yield "no HTTP", Cut(b"220 smtp ready\r\n")
    yield "two lengths", Cut(_OK + b"content-length: 2\r\ncontent-length: 900\r\n\r\n{}")
    yield "negative length", Cut(_OK + b"content-length: -1\r\n\r\n{}")
    yield "folded header", Cut(_OK + b"x:\r\n y\r\ncontent-length: 2\r\n\r\n{}")


def _redirects(elsewhere: str) -> Iterator[tuple[str, Answer]]:
    places = (elsewhere, "file:///etc/passwd", "//localhost/", "http://[::1]:1/", "gopher://x/")
    for place in places:
        for status in (301, 303, 307, 308):
            yield f"{status} to {place}", Answer(status=status, headers={"location": place})
    yield "refresh", Answer(b"{}", headers={"refresh": f"0; url={elsewhere}"})
    yield "other host in a 300", Answer(status=300, headers={"link": f"<{elsewhere}>"})
