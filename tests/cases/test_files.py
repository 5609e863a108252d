"""Family (h): a record is whole, alone under its own name, inside its directory, or not there."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.slime.host.arguments import slime_args
from tests.slime.walks import Walks, prompt

from focus import Search
from focus.errors import RecordError, StoreError
from focus.integrations import JsonlDirectory
from focus.integrations.slime import make_generate
from focus.records import CriticContext, CriticRecord, RecordKey, read_critic_records
from focus.records.files import Files
from focus.records.jsonl import PromptFile
from focus.tree import Identity

pytestmark = pytest.mark.anyio


def key(problem: int | str) -> RecordKey:
    return RecordKey(
        identity=Identity(run="r"), problem=problem, key="k", policy_version="v", critic_version="c"
    )


def record(problem: int | str, text: str = "t", node: int = 0, **changes: Any) -> CriticRecord:
    return CriticRecord(
        source=key(problem),
        node=node,
        context=CriticContext(renderer="token_chunk/1", text=text, **changes),
        target=0.5,
        count=1,
        prior=0.5,
        depth=0,
    )


SEPARATORS = "\x85\u2028\u2029\x0b\x0c\x1c\x1d\x1e\n\r\x00\ufeff"


@settings(max_examples=60)
@given(
    texts=st.lists(
        st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(SEPARATORS)),
        min_size=1,
        max_size=4,
    )
)
def test_b64_lines_end_at_the_newline_byte_and_nowhere_else(
    texts: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Any text in, the same text out: one record a line, whatever counts as a line elsewhere."""
    sink = JsonlDirectory(tmp_path_factory.mktemp("b64") / "records")
    records = [record(1, text, node) for node, text in enumerate(texts)]
    path = sink.write(records)
    assert path is not None
    assert path.read_bytes().count(b"\n") == len(texts)
    assert list(read_critic_records(sink.path)) == records


WRITER = """
import sys
from focus.records import CriticContext, CriticRecord, JsonlDirectory, RecordKey
from focus.tree import Identity

folder, writer, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sink = JsonlDirectory(folder)
for number in range(count):
    source = RecordKey(identity=Identity(run="r"), problem=f"{writer}/{number}", key="k",
                       policy_version="v", critic_version="c")
    context = CriticContext(renderer="token_chunk/1", text="x", ids=tuple(range(4000)))
    sink.write([CriticRecord(source=source, node=0, context=context, target=0.5, count=1,
                             prior=0.5, depth=0)])
"""


def test_b65_processes_that_share_a_directory_spoil_no_line(tmp_path: Path) -> None:
    """4 writers × 25 records of 4,000 numbers: 100 whole lines, none doubled, none missing."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / "records"), str(number), "25"],
            env=environment,
        )
        for number in range(4)
    ]
    assert [writer.wait(timeout=500) for writer in writers] == [0] * 4
    found = [one.source.problem for one in read_critic_records(tmp_path / "records")]
    assert sorted(found) == sorted(f"{w}/{n}" for w in range(4) for n in range(25))


HOSTILE: tuple[int | str, ...] = (
    *("../../x", "/etc/x", "a/b", "a_b", "", ".", "..", "NUL", "CON", "x\0y", "a" * 300, "A", "a"),
    *("\u202eabc", "abc", 7, "7", "é", "e\u0301", "ß", "SS", "~", "$HOME", "%s{}", "a\nb", -7),
)


def test_b67_data_never_chooses_a_path(tmp_path: Path) -> None:
    """Every file lies inside, distinct ids have distinct files, and the id is in the record."""
    folder = tmp_path / "in" / "records"
    sink = JsonlDirectory(folder)
    paths = [sink.write([record(problem)]) for problem in HOSTILE]
    assert {path.parent for path in paths if path} == {folder}
    assert len({str(path).lower() for path in paths}) == len(HOSTILE)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    found = [one.source.problem for one in read_critic_records(folder)]
    assert sorted(map(repr, found)) == sorted(map(repr, HOSTILE))


@settings(max_examples=40)
@given(ids=st.lists(st.text(max_size=8) | st.integers(-9, 99), unique_by=repr, max_size=8))
def test_b67_names_are_plain_and_never_meet(ids: list[int | str]) -> None:
    names = set()
    for problem in ids:
        try:
            names.add(PromptFile.of(key(problem)).name)
        except RecordError:
            ids = [other for other in ids if other is not problem]
    assert len(names) == len(ids)
    assert all(name.isascii() and "/" not in name and len(name) < 80 for name in names)


@pytest.mark.usefixtures("slime")
async def test_b67_an_id_that_cannot_be_stored_is_refused_before_any_model_call() -> None:
    walks = Walks()
    hook = make_generate(walks, profile="token_chunk")
    for index in ("7", None, 1.5, True):
        with pytest.raises(ValueError, match="index"):
            await hook(slime_args(), prompt(index), {})  # type: ignore[arg-type]
    assert walks.requests == 0


class FullDisk(Files):
    """File call number `at` fails with `code`; None takes half of the bytes instead."""

    def __init__(self, at: int, code: int | None) -> None:
        self._left, self._code = at, code
        self.met = False

    def _count(self) -> bool:
        self._left -= 1
        if self._left != -1:
            return False
        self.met = True
        if self._code is not None:
            raise OSError(self._code, os.strerror(self._code))
        return True

    def create(self, path: Path) -> int:
        self._count()
        return super().create(path)

    def write(self, descriptor: int, data: memoryview) -> int:
        return super().write(descriptor, data[: len(data) // 2] if self._count() else data)

    def close(self, descriptor: int) -> None:
        super().close(descriptor)
        self._count()

    def link(self, source: Path, target: Path) -> None:
        self._count()
        super().link(source, target)

    def make_directory(self, path: Path) -> None:
        self._count()
        super().make_directory(path)


@pytest.mark.usefixtures("slime")
@pytest.mark.parametrize(
    "code", [errno.ENOSPC, errno.EIO, None], ids=["no space", "broken", "short"]
)
async def test_b68_no_samples_leave_whose_records_were_lost(
    code: int | None, tmp_path: Path
) -> None:
    """Each file call fails once: a typed error and whole lines only; then the run goes on."""
    at = 0
    while True:
        folder = tmp_path / f"{at}"
        disk = FullDisk(at, code)
        hook = make_generate(
            Walks(search=Search.flat(2)),
            profile="token_chunk",
            critic_sink=JsonlDirectory(folder, files=disk),
        )
        samples = await _attempt(hook)
        if samples is None:
            assert disk.met
            samples = await _attempt(hook)
        assert samples is not None
        _all_whole(folder, samples)
        if not disk.met:
            break
        at += 1
    assert at >= 6


async def _attempt(hook: Any) -> Sequence[Any] | None:
    try:
        made: Sequence[Any] = await hook(slime_args(), prompt(0), {})
    except StoreError:
        return None
    return made


def _all_whole(folder: Path, samples: Sequence[Any]) -> None:
    found = list(read_critic_records(folder))
    assert found
    assert {one.source.problem for one in found} == {sample.index for sample in samples}
