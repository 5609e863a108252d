"""Replies to one generate request that no honest server gives: fuzzed, and hand-made floods."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator, Mapping
from typing import Any

from focus.promises.round_trips import random_value

__all__ = ("MAX_TOKENS", "PROMPT", "VERSION", "fuzzed", "honest")

PROMPT = (1, 2, 3)
MAX_TOKENS = 8
VERSION = "v1"

_NUMBERS = (-1, 0, 1, 256, 257, 10**9, 2**31, 2**53, 2**63, 10**400, 0.5, -0.0, 1e308, 5e-324)
_TEXTS = (
    "",
    "stop",
    "length",
    "abort",
    "NaN",
    "null",
    "\ud83d",
    "\0",
    "v2",
    "x" * 5_000,
    "9" * 300,
)
_RAW = (
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"1e999",
    b"-1e-999",
    b"9" * 5_000,
    b"1." + b"9" * 5_000,
    b"[" * 2_000 + b"]" * 2_000,
    b'{"a":' * 500 + b"1" + b"}" * 500,
    b'{"a":1,"a":2}',
    b'"\\ud83d"',
    b"tru",
    b"01",
    b"+1",
    b"0x10",
    b"1_000",
)
_HOLE = "\ufdd0hole\ufdd0"


def honest(rid: str) -> dict[str, Any]:
    """A reply as an engine gives it."""
    pairs = [[-0.25 * (1 + n), 65 + n, None] for n in range(MAX_TOKENS)]
    return {
        "text": "ABCDEFGH",
        "output_ids": [pair[1] for pair in pairs],
        "meta_info": {
            "id": rid,
            "finish_reason": {"type": "length", "length": MAX_TOKENS},
            "prompt_tokens": len(PROMPT),
            "completion_tokens": MAX_TOKENS,
            "cached_tokens": 0,
            "weight_version": VERSION,
            "output_token_logprobs": pairs,
        },
    }


def fuzzed(rng: random.Random, rid: str) -> bytes:
    """An honest reply with one to four things wrong: in its structure, its text or its bytes."""
    reply = honest(rid)
    holes: list[bytes] = []
    for _ in range(rng.randint(1, 4)):
        _spoil(reply, rng, holes)
    data = json.dumps(reply, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    for hole in holes:
        data = data.replace(json.dumps(_HOLE).encode(), hole, 1)
        data = data.replace(f'"{_HOLE}"'.encode(), hole, 1)
    return _spoiled_bytes(data, rng) if rng.random() < 0.25 else data


def _spoil(reply: dict[str, Any], rng: random.Random, holes: list[bytes]) -> None:
    """Change one place of the structure, if earlier changes have left any."""
    places = list(_places(reply))
    if not places:
        return
    holder, key = rng.choice(places)
    kind = rng.randrange(8)
    if kind == 0 and isinstance(holder, dict):
        del holder[key]
    elif kind == 1:
        holes.append(rng.choice(_RAW))
        holder[key] = _HOLE
    elif kind == 2:
        holder[key] = rng.choice(_NUMBERS)
    elif kind == 3:
        holder[key] = rng.choice(_TEXTS)
    elif kind == 4:
        holder[key] = [copy.deepcopy(holder[key])] * rng.choice([0, 1, 2, 50])
    elif kind == 5:
        holder[key] = {"type": holder[key]} if rng.random() < 0.5 else {}
    elif kind == 6:
        holder[key] = rng.choice([None, True, False])
    else:
        holder[key] = random_value(rng, depth=3)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) below `value`."""
    pairs: Any = value.items() if isinstance(value, Mapping) else enumerate(value)
    for key, below in pairs:
        yield value, key
        if isinstance(below, dict | list):
            yield from _places(below)


def _spoiled_bytes(data: bytes, rng: random.Random) -> bytes:
    kind, at = rng.randrange(7), rng.randrange(len(data))
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data + data
    if kind == 2:
        return b"\xef\xbb\xbf" + data
    if kind == 3:
        return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
    if kind == 4:
        return data[:at] + data[rng.randrange(len(data)) :]
    if kind == 5:
        return data.decode("utf-8", "replace").encode("utf-16")
    return rng.randbytes(rng.randrange(200))
