"""F4 and F5: any text comes back equal; files of every released format stay readable."""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from focus.errors import FocusError, RecordError, SchemaError
from focus.problem import Message, Problem
from focus.promises.base import Measured, Stand
from focus.records import (
    JsonlDirectory,
    actor_records,
    critic_records,
    decode_actor,
    decode_critic,
    decode_packed,
    decode_problem,
    encode_critic,
    encode_problem,
    load_stored_tree,
    read_critic_records,
)
from focus.records.strict_json import dumps, loads
from focus.testing.records import (
    CREDIT,
    GOLDEN,
    TEXTS,
    critic_record,
    golden_contexts,
    golden_tree,
    three,
)

__all__ = ("misread", "old_files", "random_text", "random_value", "round_trips")

_SPECIAL = "\0\x01\t\n\r\x1f\x7f\x85\xa0\u061c\u200b\u200f\u2028\u2029\ufeff\ufffe\uffff\U0010ffff"
_PLANES = (
    (0x20, 0x7F),
    (0x80, 0x0800),
    (0x0800, 0xD800),
    (0xE000, 0x1_0000),
    (0x1_0000, 0x11_0000),
)
_DEEP = 100_000


def round_trips(stand: Stand) -> Measured:
    """Random values of JSON through every kind of record; counts what comes back changed.

    Also a huge text, and, each in all its places, what must be refused: halves of
    characters, numbers that are not finite, bottomless nesting.
    """
    examples = stand.pick(quick=2_000, full=100_000)
    rng = random.Random(0)
    mismatches = 0
    for number in range(examples):
        mismatches += not _comes_back(rng)
        if number % 100 == 0:
            stand.progress(number, examples)
    huge = stand.pick(quick=2**20, full=64 * 2**20)
    mismatches += not _huge_comes_back(stand.folder, rng, huge)
    taken = [name for name, store in _REFUSED.items() if not _is_refused(store)]
    detail = {"huge_text_characters": huge, "must_refuse": len(_REFUSED), "taken": taken}
    return Measured(mismatches + len(taken), examples + 1 + len(_REFUSED), detail)


def random_text(rng: random.Random, *, most: int = 24) -> str:
    """Any Unicode but halves of characters, the awkward ones often."""
    return "".join(
        rng.choice(_SPECIAL) if rng.random() < 0.25 else chr(rng.randrange(*rng.choice(_PLANES)))
        for _ in range(rng.randrange(most + 1))
    )


def random_value(rng: random.Random, *, depth: int = 4) -> Any:
    """Any value of JSON."""
    kind = rng.randrange(8 if depth else 6)
    if kind == 0:
        return rng.choice([None, True, False])
    if kind == 1:
        return rng.choice([rng.randrange(-(10**30), 10**30), rng.randrange(-9, 10)])
    if kind == 2:
        return rng.choice([-0.0, 5e-324, 1.7976931348623157e308, rng.gauss(0, 1), 0.1 + 0.2])
    if kind < 6:
        return random_text(rng)
    size = rng.randrange(4)
    if kind == 6:
        return [random_value(rng, depth=depth - 1) for _ in range(size)]
    return {random_text(rng): random_value(rng, depth=depth - 1) for _ in range(size)}


def _comes_back(rng: random.Random) -> bool:
    texts = [random_text(rng) for _ in range(4)]
    problem = Problem(
        id=texts[0] if rng.random() < 0.5 else rng.randrange(-(10**20), 10**20),
        prompt=(Message(texts[1], texts[2]),),
        label=random_value(rng),
        metadata={texts[3]: random_value(rng)},
    )
    record = critic_record(problem=problem.id, text=texts[1] + texts[2])
    again = decode_problem(_through(encode_problem(problem)))
    same = decode_critic(_through(encode_critic(record)))
    # repr tells -0.0 from 0.0, 1 from True and "7" from 7.
    return repr((again, same)) == repr((problem, record)) and again.key == problem.key


def _through(plain: dict[str, Any]) -> Any:
    return loads(dumps(plain, what="value"), where="value")


def _huge_comes_back(folder: Path, rng: random.Random, size: int) -> bool:
    text = random_text(rng, most=4_096)
    record = critic_record(text=(text * (1 + size // max(1, len(text))))[:size])
    JsonlDirectory(folder / "huge").write([record])
    return list(read_critic_records(folder / "huge")) == [record]


def _nested(opening: str, closing: str) -> bytes:
    return (opening * _DEEP + "1" + closing * _DEEP).encode()


def _deep_list() -> Any:
    value: Any = 1
    for _ in range(_DEEP):
        value = [value]
    return value


def _stored(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        JsonlDirectory(folder).write([critic_record(text=text)])


def _labelled(label: Any) -> None:
    encode_problem(Problem(id=1, prompt="p", label=label))


def _targeted(target: float) -> None:
    dumps(encode_critic(critic_record(target=target)), what="record")


def _read(data: bytes) -> None:
    loads(data, where="file")


_NOT_FINITE = (math.nan, math.inf, -math.inf)
_NOT_JSON = ("NaN", "Infinity", "-Infinity", "1e999", "9" * 10**6, '"\\ud83d"', '{"a":1,"a":2}')

_REFUSED: dict[str, Callable[[], Any]] = {
    **{f"label {number}": partial(_labelled, number) for number in _NOT_FINITE},
    **{f"target {number}": partial(_targeted, number) for number in _NOT_FINITE},
    **{f"read {text[:20]}": partial(_read, text.encode()) for text in _NOT_JSON},
    "half a character": partial(_stored, "\ud83d"),
    "other half of a character": partial(_stored, "x\udc00"),
    "deep lists": partial(_read, _nested("[", "]")),
    "deep objects": partial(_read, _nested('{"a":', "}")),
    "deep label": lambda: _labelled(_deep_list()),
}


def _is_refused(store: Callable[[], Any]) -> bool:
    """Refused with an error of ours, which is no accident of the interpreter."""
    try:
        store()
    except (RecordError, SchemaError):
        return True
    return False


def old_files(stand: Stand) -> Measured:
    """Reads a file of every released format, and refuses the next number of each by name."""
    results = list(misread(GOLDEN, stand.folder))
    wrong = [name for name, is_right in results if not is_right]
    return Measured(len(wrong), len(results), {"files": len(results), "misread": wrong})


def misread(golden: Path, folder: Path) -> Iterator[tuple[str, bool]]:
    """Each check's name, and whether it went as promised."""
    tree, contexts = golden_tree(), golden_contexts()
    yield (
        "actor",
        tuple(map(decode_actor, _lines(golden / "actor-1.jsonl")))
        == actor_records(tree, CREDIT, packing="path"),
    )
    yield (
        "critic",
        tuple(map(decode_critic, _lines(golden / "critic-1.jsonl")))
        == critic_records(tree, CREDIT, contexts),
    )
    yield (
        "packed tree",
        tuple(map(decode_packed, _lines(golden / "packed-1.jsonl")))
        == actor_records(tree, CREDIT, packing="tree"),
    )
    yield "problem", decode_problem(_lines(golden / "problem.json")[0]) == tree.header.problem
    stored = load_stored_tree(golden / "tree-1.json")
    yield "tree", (len(stored.tree), stored.texts, stored.credit) == (len(tree), TEXTS, CREDIT)
    found = list(read_critic_records(golden / "directory"))
    yield "directory", found == three("math/7", round=3, attempt=1)
    yield from _later_versions(golden, folder)


def _lines(path: Path) -> list[Any]:
    return [loads(line, where=path.name) for line in path.read_bytes().split(b"\n") if line]


def _later_versions(golden: Path, folder: Path) -> Iterator[tuple[str, bool]]:
    readers: dict[str, tuple[str, Callable[[Path], Any]]] = {
        "focus.actor": ("actor-1.jsonl", lambda path: [decode_actor(x) for x in _lines(path)]),
        "focus.packed": ("packed-1.jsonl", lambda path: [decode_packed(x) for x in _lines(path)]),
        "focus.critic": ("critic-1.jsonl", lambda path: [decode_critic(x) for x in _lines(path)]),
        "focus.tree": ("tree-1.json", load_stored_tree),
        "focus.records": (
            "directory/manifest.json",
            lambda path: list(read_critic_records(path.parent)),
        ),
    }
    for schema, (name, read) in readers.items():
        later = folder / schema / Path(name).name
        later.parent.mkdir(parents=True)
        later.write_bytes(
            (golden / name).read_bytes().replace(f"{schema}/1".encode(), f"{schema}/2".encode())
        )
        yield f"{schema}/2", _is_named(read, later, f"{schema}/2")


def _is_named(read: Callable[[Path], Any], path: Path, schema: str) -> bool:
    try:
        read(path)
    except FocusError as error:
        return isinstance(error, SchemaError) and schema in str(error)
    return False
