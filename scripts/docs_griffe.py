"""Docstrings for the site: doctests become code blocks, where Markdown would make quotes."""

from __future__ import annotations

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"(?:^[ ]*>>> .*\n?(?:^[ ]*\S.*\n?)*\n?)+", re.MULTILINE)


def fenced(text: str) -> str:
    r"""`text` with each run of examples between fences.

    >>> fenced("One more.\n\n>>> 1 + 1\n2\n")
    'One more.\n\n```pycon\n>>> 1 + 1\n2\n```\n'
    """
    return DOCTEST.sub(lambda match: f"```pycon\n{match[0].rstrip()}\n```\n", text)


class Doctests(griffe.Extension):
    """Rewrites docstrings as they are read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
