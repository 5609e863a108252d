"""``python -I -S -c …`` or ``-m``: check a folder and print what was found as JSON."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from .delivery import Delivery, check_delivery
from .reading import Export, Findings, Server, read_exports, read_server
from .replies import check_replies
from .samples import Trained, check_samples

__all__ = ("main", "verdict")

_SHOWN = 20


def verdict(folder: Path) -> dict[str, Any]:
    """Everything the checker has to say about an export."""
    server, findings = read_server(folder), Findings()
    delivery, trained = Delivery(), Trained()
    accepted: Counter[str] = Counter()
    identities: Counter[tuple[Any, ...]] = Counter()
    for export in read_exports(folder):
        identities[export.identity] += 1
        if export.books:
            check_delivery(export, server, findings, delivery)
        accepted.update(check_replies(export, server, findings).values())
        if export.accepted:
            check_samples(export, server, findings, trained)
        else:
            _check_unexported(export, findings)
    for identity in (identity for identity, count in identities.items() if count > 1):
        findings.add("I13", "/".join(map(str, identity)), "two trees of one identity")
    for name in server.doubled():
        findings.add("doubled", name, "reached the server twice under one name")
    return {
        "delivery": delivery.to_dict(),
        "trained": trained.to_dict(),
        "by_invariant": dict(Counter(finding.invariant for finding in findings.found)),
        "findings": [vars(finding) for finding in findings.found[:_SHOWN]],
        "matrix": _matrix(server, accepted),
    }


def _check_unexported(export: Export, findings: Findings) -> None:
    total = len(export.actor) + len(export.critic)
    findings.check(total == 0, "I14", export.where, f"{total} records of a tree that failed")


def _matrix(server: Server, accepted: Counter[str]) -> dict[str, dict[str, Any]]:
    """Per fault: replies that it spoiled, and how many of them stand in a tree."""
    matrix: dict[str, dict[str, Any]] = {}
    for entry in server.entries:
        row = matrix.setdefault(
            entry["fault"] or "clean",
            {"kind": entry["kind"], "detectable": entry["detectable"], "sent": 0, "whole": 0},
        )
        row["sent"] += 1
        row["whole"] += entry["whole"]
    for name, row in matrix.items():
        row["accepted"] = accepted[name]
    return dict(sorted(matrix.items()))


def main(folder: str) -> None:
    print(json.dumps(verdict(Path(folder))))


if __name__ == "__main__":
    main(sys.argv[1])
