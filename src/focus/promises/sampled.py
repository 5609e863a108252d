"""A1: samples of random trees, checked where they are made and again from outside."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from focus.credit import DirectBranchTd
from focus.errors import RecordError
from focus.promises.base import Measured, Stand
from focus.promises.gauntlet import checked
from focus.promises.packed_mutants import PACKED_MUTANTS
from focus.records import (
    PACKINGS,
    ActorRecord,
    PackedTree,
    PolicyRecord,
    actor_records,
    check_export,
    critic_records,
    encode_critic,
    encode_sample,
)
from focus.records.records import CriticContext
from focus.records.tree_codec import encode_tree
from focus.testing.trees import build_tree, random_sketch
from focus.tree import Tree

__all__ = ("MUTANTS", "exported", "samples_pass")

_BATCH = 2_500
_NAN = float("nan")
_LAW = {"temperature": 1.0, "top_p": 1.0, "top_k": None}

Mutant = Callable[[ActorRecord], ActorRecord]


def samples_pass(stand: Stand) -> Measured:
    """Violations: samples that the outside checker refuses, and spoiled ones let through.

    The trees are random in depth and width, with unfinished and cut leaves, under all packings.
    """
    enough = stand.pick(quick=10_000, full=200_000)
    rng, seen = random.Random(1), Counter[str]()
    spent = 0.0
    while seen["samples"] < enough:
        folder = stand.folder / str(seen["batches"])
        folder.mkdir()
        spent += _batch(rng, folder, seen)
        verdict = checked(folder)
        seen["batches"] += 1
        seen["violations"] += sum(verdict["by_invariant"].values())
        seen["checked"] += verdict["trained"]["samples"]
        for path in folder.iterdir():
            path.unlink()
        stand.progress(seen["samples"], enough)
    seen["unchecked"] = seen["samples"] - seen["checked"]
    detail = {**seen, "check_microseconds_per_sample": round(1e6 * spent / seen["samples"], 1)}
    broken = seen["violations"] + seen["let_through"] + seen["unchecked"]
    return Measured(broken, seen["samples"] + seen["spoiled"], detail)


def _batch(rng: random.Random, folder: Path, seen: Counter[str]) -> float:
    """Export some trees; seconds spent in the checks of production."""
    spent, until = 0.0, seen["samples"] + _BATCH
    with (folder / "trees.jsonl").open("w") as trees, (folder / "server.jsonl").open("w") as server:
        while seen["samples"] < until:
            number = seen["trees"]
            seen["trees"] += 1
            tree = build_tree(random_sketch(rng, nodes=rng.randint(2, 60), shaping=0.0))
            credit = DirectBranchTd().estimate(tree)
            records = actor_records(tree, credit, packing=PACKINGS[number % len(PACKINGS)])
            started = time.perf_counter()
            check_export(records, tree, credit)
            spent += time.perf_counter() - started
            seen["samples"] += len(records)
            _spoil(records, tree, credit, rng, seen)
            line, entries = exported(tree, records, credit, number)
            trees.write(json.dumps(line) + "\n")
            server.writelines(json.dumps(entry) + "\n" for entry in entries)
    return spent


def _spoil(
    records: Sequence[PolicyRecord],
    tree: Tree[Any],
    credit: Any,
    rng: random.Random,
    seen: Counter[str],
) -> None:
    """Break one record of the tree in one way; production must refuse the export."""
    if not records:
        return
    place = rng.randrange(len(records))
    spoiled = _spoiled(records[place], rng)
    seen["spoiled"] += 1
    try:
        check_export((*records[:place], spoiled, *records[place + 1 :]), tree, credit)
    except RecordError:
        return
    seen["let_through"] += 1


def _spoiled(record: PolicyRecord, rng: random.Random) -> PolicyRecord:
    if isinstance(record, PackedTree):
        return PACKED_MUTANTS[rng.choice(sorted(PACKED_MUTANTS))](record)
    return MUTANTS[rng.choice(sorted(MUTANTS))](record)


def _last(values: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    return (*values[:-1], value)


MUTANTS: dict[str, Mutant] = {
    "float id": lambda r: replace(r, response=_last(r.response, float(r.response[-1]))),
    "negative id": lambda r: replace(r, prefix=_last(r.prefix, -1)),
    "another id": lambda r: replace(r, response=_last(r.response, r.response[-1] + 1)),
    "prefix cut": lambda r: replace(r, prefix=r.prefix[1:]),
    "mask short": lambda r: replace(r, loss_mask=r.loss_mask[1:]),
    "mask off": lambda r: replace(r, loss_mask=_last(r.loss_mask, 0)),
    "log-prob NaN": lambda r: replace(r, log_probs=_last(r.log_probs, _NAN)),
    "log-prob above 0": lambda r: replace(r, log_probs=_last(r.log_probs, 0.5)),
    "log-prob next": lambda r: replace(r, log_probs=_last(r.log_probs, r.log_probs[-1] - 1e-12)),
    "weight NaN": lambda r: replace(r, weights=_last(r.weights, _NAN)),
    "weight next": lambda r: replace(r, weights=_last(r.weights, r.weights[-1] + 1e-12)),
    "no node": lambda r: replace(r, nodes=(), request_ids=()),
    "node twice": lambda r: replace(r, nodes=r.nodes * 2, request_ids=r.request_ids * 2),
    "temperature": lambda r: replace(r, temperature=0.5),
    "truncated": lambda r: replace(r, truncated=not r.truncated),
    "outcome": lambda r: replace(r, outcome=-0.125),
    "key": lambda r: replace(r, source=replace(r.source, key="another")),
    "version": lambda r: replace(r, source=replace(r.source, policy_version="another")),
}
"""Ways to spoil a sample, each of which some invariant forbids."""


def exported(
    tree: Tree[Any], records: Sequence[PolicyRecord], credit: Any, number: int
) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """A tree as the outside checker reads it, and the replies it was drawn from."""
    plain = encode_tree(tree)
    plain["header"]["problem"]["id"] = number
    plain["header"]["sampling"].update(_LAW)
    for index, node in enumerate(plain["nodes"][1:], start=1):
        node["edge"]["request_id"] = f"drawn/0/0/{number}/{index}/0/1"
    contexts = {
        node: CriticContext(renderer="drawn/1", text="", ids=tree.context(node))
        for node in credit.targets
    }
    line = {
        "tree": plain,
        "actor": [{**encode_sample(record), "problem": number} for record in records],
        "critic": [
            {**encode_critic(record), "problem": number}
            for record in critic_records(tree, credit, contexts)
        ],
        "books": {},
        "failures": [],
        "accepted": True,
        "settings": {
            "allowance": None,
            "most_reward": 1.0,
            "trainer_law": _LAW,
            "key": "drawn",
        },
    }
    return line, _replies(tree, plain)


def _replies(tree: Tree[Any], plain: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for node in tree.edges():
        assert node.parent is not None
        edge = plain["nodes"][node.id]["edge"]
        sampled = [span for span in node.incoming.spans if span.log_probs is not None]
        yield {
            "rid": f"{edge['request_id']}~0",
            "prefix": list(tree.context(node.parent)),
            "most": 64,
            "ids": [token for span in sampled for token in span.ids],
            "log_probs": [value for span in sampled for value in span.log_probs or ()],
            "finish": edge["finish"],
            "version": edge["policy_version"],
            "fault": None,
            "kind": "clean",
            "detectable": True,
            "whole": True,
        }
