"""Checks exported trees and records against a server's own books, without FOCUS.

Nothing here imports FOCUS: the checker runs on the standard library alone, in a process in
which FOCUS cannot be imported, and re-derives each sample from what the server says that it
sampled. It reads a folder with

- ``server.jsonl``: one line per request that reached the server: its name, prefix, what was
  truly sampled, the fault done to the reply;
- ``trees.jsonl``: one line per collection: the tree, actor and critic records, books,
  failures, and the settings that a tree does not hold.
"""

from __future__ import annotations

__all__: tuple[str, ...] = ()
