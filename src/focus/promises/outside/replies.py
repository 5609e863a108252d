"""Edges against what the server sampled: ids, log-probs, prefix, version, finish."""

from __future__ import annotations

import math
from typing import Any

from .reading import Export, Findings, Server, bits

__all__ = ("check_replies", "is_token")

_SLACK = 1e-6


def is_token(value: Any, vocabulary: int | None) -> bool:
    """A whole number in the vocabulary, which may be unknown."""
    return type(value) is int and 0 <= value < (math.inf if vocabulary is None else vocabulary)


def check_replies(export: Export, server: Server, findings: Findings) -> dict[str, str]:
    """Every edge against its reply; the fault that each accepted reply met, by request."""
    header = export.header
    _check_tokens(export, 0, header["prompt_ids"], findings)
    faults = {}
    for number in range(1, len(export.nodes)):
        edge = export.nodes[number]["edge"]
        entry = _entry(export, number, server, findings)
        _check_edge(export, number, findings)
        if entry is not None:
            faults[edge["request_id"]] = entry["fault"] or "clean"
            _check_against(export, number, entry, findings)
    return faults


def _entry(
    export: Export, number: int, server: Server, findings: Findings
) -> dict[str, Any] | None:
    """The server's entry of the reply that an edge claims to be."""
    request = export.nodes[number]["edge"]["request_id"]
    entries = [entry for entry in server.named(request) if entry["whole"]]
    where = f"{export.where} node {number}"
    findings.check(
        len(entries) == 1,
        "I9",
        where,
        f"{len(entries)} replies to {request} could have arrived; an edge is exactly one",
    )
    return entries[0] if entries else None


def _check_edge(export: Export, number: int, findings: Findings) -> None:
    """What an edge must be whatever the server says."""
    node, where = export.nodes[number], f"{export.where} node {number}"
    edge = node["edge"]
    for span in edge["spans"]:
        _check_tokens(export, number, span["ids"], findings)
        for value in span["log_probs"] or []:
            sound = type(value) is float and math.isfinite(value) and value <= _SLACK
            findings.check(sound, "I6", where, f"log-prob {value!r}")
    findings.check(edge["finish"] in ("stop", "length"), "I14", where, f"finish {edge['finish']!r}")
    for name in ("reward", "step_reward"):
        value = edge[name]
        sound = type(value) in (float, int) and math.isfinite(value)
        findings.check(sound, "I11", where, f"{name} {value!r}")
    most = export.settings["most_reward"]
    findings.check(abs(edge["reward"]) <= most, "I11", where, f"reward {edge['reward']} of {most}")
    if export.has_turns:
        _check_turns(export, number, findings)
    else:
        _check_ending(export, number, findings)


def _check_turns(export: Export, number: int, findings: Findings) -> None:
    """A conversation's allowance, ending and folds.

    Whether an observation would still have fitted is not told by what stands in the tree.
    """
    node, where = export.nodes[number], f"{export.where} node {number}"
    ends = node["terminal"] and not export.children[number]
    findings.check(ends or not node["truncated"], "I14", where, "truncated, and goes on")
    limits = (export.settings["allowance"], export.settings.get("turns"))
    for used, limit in zip(export.spent(number), limits, strict=True):
        findings.check(limit is None or used <= limit, "I14", where, f"{used} spent of {limit}")
    if node["rebased"] is not None:
        kept = [*export.header["prompt_ids"], *(token for token, _ in export.sampled(number))]
        begins = node["rebased"][: len(kept)] == kept and node["edge"]["kind"] == "fold"
        findings.check(begins, "I8", where, "the fold is not prompt and notes as they were sampled")


def _check_ending(export: Export, number: int, findings: Findings) -> None:
    """A truncated leaf has neither allowance nor context left, and no other leaf is one.

    Not told where neither limit is known.
    """
    node, where = export.nodes[number], f"{export.where} node {number}"
    context = len(export.context(number))
    sampled = context - len(export.header["prompt_ids"])
    limits = (export.settings["allowance"], export.header["context_limit"])
    if limits == (None, None):
        return
    is_spent = any(
        limit is not None and used >= limit
        for limit, used in zip(limits, (sampled, context), strict=True)
    )
    if node["truncated"]:
        ends = node["terminal"] and not export.children[number]
        findings.check(ends and is_spent, "I14", where, "truncated with room left, or goes on")
    elif node["edge"]["finish"] == "length":
        findings.check(
            not is_spent and not node["terminal"], "I14", where, "no room left and not truncated"
        )


def _check_against(export: Export, number: int, entry: dict[str, Any], findings: Findings) -> None:
    node, where = export.nodes[number], f"{export.where} node {number}"
    edge, fault = node["edge"], entry["fault"]
    pairs = list(export.sampled(number))
    ids, values = [token for token, _ in pairs], [value for _, value in pairs]
    findings.check(ids == entry["ids"], "I4", where, f"ids are not the reply's ({fault})")
    same = [bits(value) for value in values] == [bits(value) for value in entry["log_probs"]]
    findings.check(same, "I4", where, f"log-probs are not the reply's ({fault})")
    prefix = export.context(node["parent"])
    findings.check(prefix == entry["prefix"], "I8", where, "its context is not what was asked with")
    findings.check(
        len(ids) <= entry["most"], "I7", where, f"{len(ids)} ids, {entry['most']} asked for"
    )
    findings.check(edge["finish"] == entry["finish"], "I14", where, "ended otherwise")
    versions = {edge["policy_version"], export.header["policy_version"], entry["version"]}
    findings.check(len(versions) == 1, "I15", where, f"weights {sorted(versions)}")


def _check_tokens(export: Export, number: int, ids: list[Any], findings: Findings) -> None:
    vocabulary = export.header["vocab_size"]
    bad = [token for token in ids if not is_token(token, vocabulary)]
    findings.check(
        not bad, "I1", f"{export.where} node {number}", f"{bad[:3]} of a vocabulary {vocabulary}"
    )
