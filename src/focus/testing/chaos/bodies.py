"""Replies of status 200 whose body is no reply."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import cache
from typing import Any

from focus.testing.chaos.faults import Act, Family, Fault, Kind, Scene, spoiled
from focus.testing.chaos.wire import Send, head

__all__ = ("BODY_FAULTS",)

_BOMB_BYTES = 8 * 2**20
_DIGITS = 1_000_000


def _sent(body: Callable[[Scene], bytes], **headers: str) -> Act:
    named = {name.replace("_", "-"): text for name, text in headers.items()}

    def act(scene: Scene) -> tuple[Send]:
        data = body(scene)
        return (Send(head(len(data), headers=named) + data),)

    return act


def _plain(scene: Scene) -> bytes:
    return json.dumps(scene.body).encode()


def _cut(scene: Scene) -> bytes:
    return _plain(scene)[:-20]


def _doubled_key(scene: Scene) -> bytes:
    return b'{"meta_info": null, ' + _plain(scene)[1:]


def _with_literal(literal: str) -> Callable[[Scene], bytes]:
    """The first log-prob becomes a number that JSON does not have."""

    def body(scene: Scene) -> bytes:
        changed = scene.fresh()
        changed["meta_info"]["output_token_logprobs"][0][0] = "@"
        return json.dumps(changed).encode().replace(b'"@"', literal.encode())

    return body


@cache
def _bomb() -> bytes:
    return gzip.compress(b" " * _BOMB_BYTES)


def _fault(name: str, act: Act) -> Fault:
    return Fault(name, Family.BODY, Kind.CORRUPT, act)


def _error_of(code: int | None) -> Callable[[Any, Scene], Any]:
    error = {"message": "chaos", **({} if code is None else {"code": code})}
    return lambda body, scene: {"error": error}


BODY_FAULTS = (
    _fault("cut_json", _sent(_cut)),
    _fault(
        "html", _sent(lambda scene: b"<html><body>200 OK</body></html>", content_type="text/html")
    ),
    _fault("error_object", spoiled(_error_of(None))),
    Fault("error_object_400", Family.BODY, Kind.DATA, spoiled(_error_of(400))),
    Fault("error_object_503", Family.BODY, Kind.TRANSIENT, spoiled(_error_of(503))),
    _fault("doubled_keys", _sent(_doubled_key)),
    _fault("list_body", spoiled(lambda body, scene: [body])),
    _fault("string_body", spoiled(lambda body, scene: json.dumps(body))),
    _fault("null_body", _sent(lambda scene: b"null")),
    _fault("byte_order_mark", _sent(lambda scene: b"\xef\xbb\xbf" + _plain(scene))),
    _fault("not_utf8", _sent(lambda scene: _plain(scene).replace(b'"text": "', b'"text": "\xff'))),
    _fault("nan_literal", _sent(_with_literal("NaN"))),
    _fault("infinity_literal", _sent(_with_literal("-Infinity"))),
    _fault("huge_number", _sent(_with_literal("-" + "9" * _DIGITS))),
    _fault("deep_nesting", _sent(lambda scene: b"[" * 100_000 + b"]" * 100_000)),
    _fault("gzip_bomb", _sent(lambda scene: _bomb(), content_encoding="gzip")),
    _fault("empty_body", _sent(lambda scene: b"")),
)
