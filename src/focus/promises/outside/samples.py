"""Actor and critic records against the tree, the server and the credit computed here."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import Any

from .credit import Credited, credited
from .packed import rows_of
from .reading import Export, Findings, Server, bits
from .replies import is_token

__all__ = ("Trained", "check_samples")

_EXACT = 1e-12
_IDENTITY = ("run", "round", "attempt", "problem", "policy_version", "critic_version")


class Trained:
    """Over all trees: how many sampled ids are trained, withheld and why, and samples seen."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()

    def to_dict(self) -> dict[str, int]:
        names = ("samples", "targets", "sampled_ids", "trained_ids", "withheld_unvalued")
        return {name: self.count[name] for name in (*names, "withheld_untold")}


def check_samples(export: Export, server: Server, findings: Findings, total: Trained) -> None:
    """Every record of one accepted tree; one whose rewards are no numbers has no credit."""
    edges = [node["edge"] for node in export.nodes[1:]]
    if not all(math.isfinite(edge["reward"] + edge["step_reward"]) for edge in edges):
        findings.add("I11", export.where, "a reward that is no number")
        return
    credit = credited(export)
    rows = rows_of(export, findings)
    for record in rows:
        _check_record(export, record, credit, server, findings)
    _check_once(export, rows, credit, findings, total)
    for record in export.critic:
        _check_target(export, record, credit, findings)
    nodes = [record["node"] for record in export.critic]
    findings.check(len(nodes) == len(set(nodes)), "C4", export.where, "a checkpoint twice")
    total.count.update(samples=len(export.actor), targets=len(nodes))


def _check_record(
    export: Export,
    record: dict[str, Any],
    credit: Credited,
    server: Server,
    findings: Findings,
) -> None:
    where = f"{export.where} sample of nodes {record['nodes']}"
    _check_header(export, record, findings, where)
    columns = [record[name] for name in ("loss_mask", "log_probs", "weights")]
    size = len(record["response"])
    if not size or any(len(column) != size for column in columns):
        findings.add("I2", where, f"response of {size}, columns of {list(map(len, columns))}")
        return
    _check_numbers(export, record, findings, where)
    _check_prefix(export, record, server, findings, where)
    _check_runs(export, record, credit, findings, where)
    _check_outcome(export, record, findings, where)


def _check_header(export: Export, record: dict[str, Any], findings: Findings, where: str) -> None:
    header = export.header
    expected = {**header, "problem": header["problem"]["id"]}
    for name in _IDENTITY:
        same = record[name] == expected[name]
        findings.check(same, "I13", where, f"{name} {record[name]!r}, tree {expected[name]!r}")
    law = header["sampling"]
    wanted = {"temperature": law["temperature"], "top_p": law["top_p"], "top_k": law["top_k"]}
    trainer = export.settings["trainer_law"]
    for name, value in wanted.items():
        same = record[name] == value == trainer[name]
        findings.check(
            same, "I16", where, f"{name} {record[name]}, tree {value}, trainer {trainer}"
        )


def _check_numbers(export: Export, record: dict[str, Any], findings: Findings, where: str) -> None:
    vocabulary, limit = export.header["vocab_size"], export.header["context_limit"]
    tokens = record["prefix"] + record["response"]
    findings.check(
        all(is_token(token, vocabulary) for token in tokens), "I1", where, "ids that are none"
    )
    sound = limit is None or (len(tokens) <= limit and len(record["prefix"]) < limit)
    findings.check(sound, "I18", where, f"{len(tokens)} tokens in a context of {limit}")
    for value in record["log_probs"]:
        good = type(value) in (float, int) and math.isfinite(value) and value <= 1e-6
        findings.check(good, "I6", where, f"log-prob {value!r}")
    for value in record["weights"]:
        good = type(value) in (float, int) and math.isfinite(value)
        findings.check(good, "I11", where, f"weight {value!r}")
    flags = {type(flag) is int and flag in (0, 1) for flag in record["loss_mask"]}
    findings.check(flags == {True}, "I2", where, "a mask that is not 0 and 1")


def _check_prefix(
    export: Export, record: dict[str, Any], server: Server, findings: Findings, where: str
) -> None:
    """The prefix is what the server was asked with for the first id of the response."""
    first = export.nodes[record["nodes"][0]]
    asked = server.named(first["edge"]["request_id"])
    same = any(entry["prefix"] == record["prefix"] for entry in asked)
    findings.check(same, "I3", where, "the prefix is not the request's")
    same = record["prefix"] == export.context(first["parent"])
    findings.check(same, "I8", where, "the prefix is not the path's")


def _check_runs(
    export: Export, record: dict[str, Any], credit: Credited, findings: Findings, where: str
) -> None:
    """Masked-in runs are replies with their weight; the rest is zero."""
    at = 0
    trained = set(record["nodes"])
    for node in _lineage(export, record):
        for span in export.nodes[node]["edge"]["spans"]:
            is_trained = node in trained and span["log_probs"] is not None
            if at == len(record["response"]) and not is_trained:
                continue  # it conditions nothing of this sample
            part = slice(at, at + len(span["ids"]))
            at = part.stop
            if record["response"][part] != span["ids"]:
                findings.add("I4", where, f"ids at {part.start} differ from node {node}")
            elif is_trained:
                _check_run(record, part, span["log_probs"], credit, node, findings, where)
            else:
                _check_rest(record, part, findings, where)
    findings.check(at == len(record["response"]), "I4", where, f"{at} ids on its path")


def _check_run(
    record: dict[str, Any],
    part: slice,
    values: list[float],
    credit: Credited,
    node: int,
    findings: Findings,
    where: str,
) -> None:
    findings.check(set(record["loss_mask"][part]) == {1}, "I10", where, f"node {node} not trained")
    same = list(map(bits, record["log_probs"][part])) == list(map(bits, values))
    findings.check(same, "I4", where, f"log-probs of node {node} are not the reply's")
    weight = credit.advantages.get(node)
    if weight is None:
        findings.add("I12", where, f"node {node} has no advantage")
        return
    off = abs(Fraction(weight) - credit.exact[node])
    findings.check(off <= _EXACT, "I12", where, f"floats miss the exact advantage by {float(off)}")
    same = {bits(value) for value in record["weights"][part]} == {bits(weight)}
    findings.check(same, "I12", where, f"weights {record['weights'][part][:1]}, {weight} computed")


def _check_rest(record: dict[str, Any], part: slice, findings: Findings, where: str) -> None:
    findings.check(not any(record["loss_mask"][part]), "I4", where, "trains ids of no reply")
    zeros = not any(record["log_probs"][part]) and not any(record["weights"][part])
    findings.check(zeros, "I5", where, "masked-out positions are not zero")


def _lineage(export: Export, record: dict[str, Any]) -> list[int]:
    """Nodes from the record's first to its last."""
    path = [record["nodes"][-1]]
    while path[-1] != record["nodes"][0] and export.nodes[path[-1]]["parent"]:
        path.append(export.nodes[path[-1]]["parent"])
    return path[::-1]


def _check_outcome(export: Export, record: dict[str, Any], findings: Findings, where: str) -> None:
    """The mean outcome of finished leaves below, which no advantage has touched."""
    last = record["nodes"][-1]
    node = export.nodes[last]
    findings.check(record["truncated"] is node["truncated"], "I14", where, "truncated otherwise")
    outcomes = [Fraction(export.nodes[leaf]["edge"]["reward"]) for leaf in _ends(export, last)]
    mean = None if not outcomes else float(sum(outcomes) / len(outcomes))
    told = record["outcome"]
    same = told == mean or (
        type(told) is float and mean is not None and math.isclose(told, mean, rel_tol=1e-9)
    )
    findings.check(same, "I17", where, f"outcome {told!r}, its leaves have {mean}")


def _ends(export: Export, number: int) -> list[int]:
    found, stack = [], [number]
    while stack:
        current = stack.pop()
        if export.nodes[current]["terminal"]:
            found.append(current)
        stack += export.children[current]
    return found


def _check_once(
    export: Export,
    rows: list[dict[str, Any]],
    credit: Credited,
    findings: Findings,
    total: Trained,
) -> None:
    """Each sampled id is trained in one sample, or withheld because nothing values it."""
    trained = Counter(node for record in rows for node in record["nodes"])
    for number in range(1, len(export.nodes)):
        size = len(list(export.sampled(number)))
        has_credit = number in credit.advantages
        times = trained[number]
        right = times == has_credit
        where = f"{export.where} node {number}"
        findings.check(right, "I10", where, f"trained {times} times, credit: {has_credit}")
        total.count["sampled_ids"] += size
        total.count["trained_ids"] += size * times
        reason = "withheld_untold" if has_credit else "withheld_unvalued"
        total.count[reason] += size * (times == 0)
    masked = sum(sum(map(bool, record["loss_mask"])) for record in rows)
    sizes = sum(len(list(export.sampled(node))) * times for node, times in trained.items())
    findings.check(
        masked == sizes, "I10", export.where, f"{masked} ids masked in, {sizes} in edges"
    )


def _check_target(
    export: Export, record: dict[str, Any], credit: Credited, findings: Findings
) -> None:
    where = f"{export.where} target of node {record['node']}"
    node = export.nodes[record["node"]]
    low, high = export.header["critic_range"]
    target, known = record["target"], credit.targets.get(record["node"])
    sound = type(target) is float and math.isfinite(target) and low <= target <= high
    findings.check(sound, "C2", where, f"target {target!r} in [{low}, {high}]")
    same = known is not None and bits(known[0]) == bits(target) and known[1] == record["count"]
    findings.check(same, "C2", where, f"target {target} of {record['count']}, {known} computed")
    same = record["context"].get("ids") == export.context(record["node"])
    findings.check(same, "C1", where, "the context is not the checkpoint's")
    findings.check(record["prior"] == node["value"], "C3", where, f"prior {record['prior']}")
    cut = any(export.nodes[leaf]["truncated"] for leaf in _ends(export, record["node"]))
    findings.check(record["truncated"] is cut, "C5", where, "truncated otherwise")
