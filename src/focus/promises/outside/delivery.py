"""Books: every expansion that was started is one of completed, failed, cancelled, cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from .reading import Export, Findings, Server

__all__ = ("Delivery", "check_delivery")


class Delivery:
    """Expansions over all trees: started, lost, doubled, unaccounted."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()

    def to_dict(self) -> dict[str, int]:
        names = ("started", "completed", "failed", "cancelled", "cut", "trees", "trees_accepted")
        broken = ("lost", "doubled", "unaccounted")
        return {name: self.count[name] for name in (*names, *broken)}


def check_delivery(export: Export, server: Server, findings: Findings, total: Delivery) -> None:
    """One tree's books against the tree and against what reached the server."""
    books, where = export.books, export.where
    parts = [books[f"expansions_{name}"] for name in ("completed", "failed", "cancelled", "cut")]
    started = books["expansions_started"]
    gap = abs(started - sum(parts))
    findings.check(gap == 0, "books", where, f"{started} expansions started, {parts} ended")
    total.count.update(
        started=started,
        completed=parts[0],
        failed=parts[1],
        cancelled=parts[2],
        cut=parts[3],
        trees=1,
        trees_accepted=export.accepted,
        unaccounted=gap,
        lost=_lost(export, server, findings),
        doubled=_doubled(export, findings),
    )
    _check_requests(export, findings)


def _lost(export: Export, server: Server, findings: Findings) -> int:
    """Expansions that the server saw and of which the client holds neither edge nor failure."""
    books = export.books
    chains = _chains(export)
    ended = {number for number, chain in chains.items() if export.nodes[chain[-1]]["terminal"]}
    failed = {f["expansion"] for f in export.failures if f["stage"] == "expansion"}
    seen = server.below(export.wire_name).keys()
    unknown = seen - chains.keys() - failed
    beyond = len([number for number in seen if number >= books["expansions_started"]])
    missing: int = max(0, len(unknown) - books["expansions_cancelled"])
    missing += max(0, books["expansions_completed"] - len(ended - failed))
    missing += max(0, books["expansions_failed"] - len(failed))
    findings.check(
        missing + beyond == 0,
        "lost",
        export.where,
        f"seen {sorted(seen)}, in the tree {sorted(chains)}, failed {sorted(failed)}, "
        f"started {books['expansions_started']}, cancelled {books['expansions_cancelled']}",
    )
    return missing + beyond


def _doubled(export: Export, findings: Findings) -> int:
    """Edges that stand twice in the tree, or replies that two edges hold."""
    edges = [node["edge"] for node in export.nodes[1:]]
    places = Counter((edge["expansion"], edge["index"]) for edge in edges)
    replies = Counter(edge["request_id"] for edge in edges)
    failed = Counter(f["expansion"] for f in export.failures if f["stage"] == "expansion")
    twice = sum(count - 1 for seen in (places, replies, failed) for count in seen.values())
    findings.check(twice == 0, "doubled", export.where, f"{twice} edges or failures occur twice")
    return twice


def _check_requests(export: Export, findings: Findings) -> None:
    books = export.books
    parts = [books[f"requests_{name}"] for name in ("accepted", "failed", "cancelled", "late")]
    sent = books["requests_sent"]
    findings.check(
        sent == sum(parts), "books", export.where, f"{sent} requests sent, {parts} ended"
    )
    edges = len(export.nodes) - 1
    is_quiet = not books["expansions_cancelled"] and not export.failures
    agrees = parts[0] == edges if is_quiet else parts[0] >= edges
    findings.check(
        agrees, "books", export.where, f"{parts[0]} replies accepted, the tree holds {edges} edges"
    )


def _chains(export: Export) -> dict[int, Sequence[int]]:
    """Nodes of each expansion, in order."""
    chains: dict[int, list[int]] = {}
    for number, node in enumerate(export.nodes[1:], start=1):
        chains.setdefault(node["edge"]["expansion"], []).append(number)
    return dict(chains)
