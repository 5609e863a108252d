"""The page itself: one HTML document that carries its code and, when exported, its data."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
from collections.abc import Iterable, Iterator
from importlib.resources import files
from typing import Any

__all__ = ("content_security_policy", "document", "inline_json", "packed")

_VENDOR = (
    "d3-dispatch",
    "d3-timer",
    "d3-ease",
    "d3-color",
    "d3-interpolate",
    "d3-selection",
    "d3-drag",
    "d3-transition",
    "d3-zoom",
    "d3-hierarchy",
)
_OWN = (
    "base",
    "state",
    "source",
    "charts",
    "overview",
    "trees",
    "model",
    "layout",
    "color",
    "canvas",
    "node",
    "replay",
    "credit",
    "explorer",
    "main",
)


def document(
    *, title: str, run: dict[str, Any] | None, trees: Iterable[tuple[str, dict[str, Any]]] = ()
) -> Iterator[str]:
    """The page in pieces, to be written one after another.

    Args:
        title: of the browser's tab.
        run: what an exported page carries; None makes a page that asks its server.
        trees: key and `tree_data` of each tree that an exported page carries.
    """
    script, style = _script(), _asset("page", "page.css")
    policy = content_security_policy(script, style, connect="'none'" if run else "'self'")
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{html.escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
    )
    yield _asset("page", "page.html")
    if run is not None:
        yield f'<script type="application/json" id="run-data">{inline_json(run)}</script>\n'
    for key, data in trees:
        yield (
            f'<script type="text/plain" class="tree-data" data-key="{html.escape(key)}">'
            f"{packed(data)}</script>\n"
        )
    yield f"<script>{script}</script>\n</body>\n</html>\n"


def content_security_policy(script: str, style: str, *, connect: str) -> str:
    """Only this script and this style run; nothing is loaded from anywhere else."""
    return (
        f"default-src 'none'; script-src {_source_hash(script)}; style-src {_source_hash(style)}; "
        f"img-src data:; connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def inline_json(value: Any) -> str:
    r"""JSON that no HTML parser can leave: the characters of markup are escaped.

    >>> inline_json({"text": "</script><b>&"})
    '{"text":"\\u003c/script\\u003e\\u003cb\\u003e\\u0026"}'
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def packed(value: Any) -> str:
    """JSON, compressed, in an alphabet without markup.

    >>> json.loads(gzip.decompress(base64.b64decode(packed({"a": "</script>"}))))
    {'a': '</script>'}
    """
    data = json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")
    return base64.b64encode(gzip.compress(data, mtime=0)).decode("ascii")


def _source_hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _script() -> str:
    parts = [_asset("vendor", f"{name}.min.js") for name in _VENDOR]
    own = "\n".join(_asset("page", f"{name}.js") for name in _OWN)
    return "\n".join([*parts, f'(() => {{\n"use strict";\n{own}}})();'])


def _asset(folder: str, name: str) -> str:
    return (files("focus.viz.web") / folder / name).read_text(encoding="utf-8")
