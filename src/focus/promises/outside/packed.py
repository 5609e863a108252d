"""Packed trees: held against the stored tree, and taken apart into one row per edge.

The rows are made by climbing, segment by segment, and then meet the checks of every row.
"""

from __future__ import annotations

from typing import Any

from .reading import Export, Findings

__all__ = ("rows_of",)

_SCHEMA = "focus.packed/1"
_SHARED = (
    *("run", "round", "attempt", "problem", "key", "policy_version", "critic_version"),
    *("temperature", "top_p", "top_k"),
)


def rows_of(export: Export, findings: Findings) -> list[dict[str, Any]]:
    """All samples of a tree as rows; what is wrong with a packed tree itself is found here."""
    rows = []
    for record in export.actor:
        if record.get("schema") == _SCHEMA:
            _check_packed(export, record, findings)
            rows += [_row(record, edge) for edge in record["edges"]]
        else:
            rows.append(record)
    return rows


def _check_packed(export: Export, record: dict[str, Any], findings: Findings) -> None:
    where = f"{export.where} packed tree"
    findings.check(len(export.actor) == 1, "I10", where, f"one of {len(export.actor)} samples")
    lineage = [node["parent"] for node in export.nodes[1:]]
    findings.check(record["lineage"] == lineage, "I8", where, "another lineage")
    _check_tokens(export, record, findings, where)
    _check_places(record, findings, where)


def _check_tokens(export: Export, record: dict[str, Any], findings: Findings, where: str) -> None:
    """Every token of the tree stands there once."""
    held: dict[int, list[int]] = {}
    for segment in record["segments"]:
        held.setdefault(segment["node"], []).extend(segment["ids"])
    for number, node in enumerate(export.nodes):
        expected = list(export.header["prompt_ids"]) if number == 0 else []
        for span in () if number == 0 else node["edge"]["spans"]:
            expected += span["ids"]
        expected += node.get("rebased") or []
        same = held.pop(number, []) == expected
        findings.check(same, "I19", where, f"tokens of node {number} are not the tree's")
    findings.check(not held, "I19", where, f"tokens of nodes {sorted(held)}, which are none")


def _check_places(record: dict[str, Any], findings: Findings, where: str) -> None:
    """Token j conditions token i by its interval iff it does by the parents' chain."""
    segments, at = record["segments"], 0
    above: list[list[int]] = []
    for index, segment in enumerate(segments):
        parent = segment["parent"]
        good = -1 <= parent < index and segment["start"] == at
        findings.check(good, "I20", where, f"segment {index} at {at}: {parent}")
        if not good:
            return
        chain = [] if parent < 0 else [*above[parent], parent]
        above.append(chain)
        seen = [j for j in range(index) if segments[j]["end"] > at]
        findings.check(seen == chain, "I20", where, f"segment {index} sees {seen}, not {chain}")
        before = sum(len(segments[j]["ids"]) for j in chain)
        same = segment["position"] == before
        findings.check(same, "I20", where, f"segment {index} at position {segment['position']}")
        at += len(segment["ids"])
    ends = {segment["start"] for segment in segments} | {at}
    for index, segment in enumerate(segments):
        good = segment["end"] in ends and segment["end"] >= segment["start"] + len(segment["ids"])
        findings.check(good, "I20", where, f"segment {index} ends at {segment['end']}")


def _row(record: dict[str, Any], edge: dict[str, Any]) -> dict[str, Any]:
    """One trained edge as a sample of its own, with everything above it as prefix."""
    segments = record["segments"]
    trained = [i for i, s in enumerate(segments) if s["node"] == edge["node"] and s["log_probs"]]
    path, current = [], trained[-1] if trained else -1
    while current >= 0:
        path.append(segments[current])
        current = segments[current]["parent"]
    path.reverse()
    first = next((i for i, s in enumerate(path) if trained and s is segments[trained[0]]), 0)
    row: dict[str, Any] = {name: record[name] for name in _SHARED}
    row |= {"nodes": [edge["node"]], "outcome": edge["outcome"], "truncated": edge["truncated"]}
    row["prefix"] = [token for segment in path[:first] for token in segment["ids"]]
    for name in ("response", "loss_mask", "log_probs", "weights"):
        row[name] = []
    for segment in path[first:]:
        size = len(segment["ids"])
        row["response"] += segment["ids"]
        row["loss_mask"] += [int(bool(segment["log_probs"]))] * size
        row["log_probs"] += segment["log_probs"] or [0.0] * size
        row["weights"] += [segment["weight"]] * size
    return row
