"""A policy server in a process of its own: each segment takes a fixed time, whatever is asked.

python -m bench.overhead.slow_server SERVICE_S

Speaks SGLang's /generate, prints its address, and answers GET /busy with the times at which each
request arrived and left, on this machine's monotonic clock.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

__all__ = ("main",)

_VERSION = "slow"


class _Server:
    def __init__(self, service_s: float) -> None:
        self._service_s = service_s
        self._busy: list[tuple[float, float]] = []

    async def serve(self) -> None:
        server = await asyncio.start_server(self._talk, "127.0.0.1", 0, backlog=2048)
        print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
        async with server:
            await server.serve_forever()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                path = line.split()[1]
                body = await reader.readexactly(await _length(reader))
                writer.write(_wire(await self._answer(path, body)))
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client is done
        finally:
            writer.close()

    async def _answer(self, path: bytes, body: bytes) -> object:
        if path == b"/busy":
            return self._busy
        if path == b"/model_info":
            return {"model_path": "slow", "weight_version": _VERSION}
        arrived = time.monotonic()
        asked = json.loads(body)
        await asyncio.sleep(self._service_s)
        reply = _segment(asked)
        self._busy.append((arrived, time.monotonic()))
        return reply


async def _length(reader: asyncio.StreamReader) -> int:
    length = 0
    while (line := (await reader.readline()).strip().lower()) != b"":
        name, _, value = line.partition(b":")
        if name == b"content-length":
            length = int(value)
    return length


def _segment(asked: dict) -> object:
    count = asked["sampling_params"]["max_new_tokens"]
    return {
        "text": "",
        "meta_info": {
            "id": asked["rid"],
            "finish_reason": {"type": "length", "length": count},
            "prompt_tokens": len(asked["input_ids"]),
            "completion_tokens": count,
            "cached_tokens": 0,
            "weight_version": _VERSION,
            "output_token_logprobs": [[-0.5, 65, None]] * count,
        },
    }


def _wire(value: object) -> bytes:
    body = json.dumps(value).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body


def main() -> None:
    asyncio.run(_Server(float(sys.argv[1])).serve())


if __name__ == "__main__":
    main()
