"""Workspaces: a fork is equal and independent, names stay inside, nothing is left on disk."""

import os
import random
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focus import DirectoryWorkspace, InMemoryWorkspace
from focus.agent.workspace import checked_path
from focus.errors import ToolError

PATHS = ("a", "b/c", "b/d.txt", "e f")


def kinds(scratch: Path) -> list[Any]:
    return [InMemoryWorkspace(), DirectoryWorkspace(scratch=scratch)]


async def walk(start: Any, rng: random.Random, *, steps: int) -> list[tuple[Any, dict[str, str]]]:
    """Random forks, writes, deletions and releases beside a model of each live copy."""
    live: list[tuple[Any, dict[str, str]]] = [(start, {})]
    for number in range(steps):
        files, model = rng.choice(live)
        path = rng.choice(PATHS)
        match rng.randrange(4):
            case 0:
                live.append((await files.fork(), dict(model)))
            case 1 | 2:
                await files.write(path, f"text {number}\u2028é\n")
                model[path] = f"text {number}\u2028é\n"
            case _ if path in model:
                await files.delete(path)
                del model[path]
            case _:
                with pytest.raises(ToolError, match="nothing is stored"):
                    await files.read(path)
    return live


@pytest.mark.parametrize("which", [0, 1], ids=["memory", "directory"])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_copy_sees_another(which: int, seed: int, tmp_path_factory: Any) -> None:
    scratch = tmp_path_factory.mktemp("scratch")

    async def main() -> None:
        start = kinds(scratch)[which]
        frozen = await start.fork()
        live = await walk(frozen, random.Random(seed), steps=30)
        for files, model in live:
            assert await files.snapshot() == dict(sorted(model.items()))
            assert await files.paths() == sorted(model)
            again = await files.restore(await files.snapshot())
            assert await again.snapshot() == await files.snapshot()
            await again.release()
        assert await start.snapshot() == {}
        for files, _ in live:
            await files.release()
            await files.release()

    anyio.run(main)
    assert not list(scratch.iterdir()), "a copy was left on disk"


def test_a_folder_that_is_passed_in_is_never_changed(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("print(1)\n")
    os.symlink("/etc/hostname", tmp_path / "src" / "link")

    async def main() -> None:
        files = DirectoryWorkspace(tmp_path / "src")
        assert await files.paths() == ["main.py"]
        with pytest.raises(ToolError, match="is a link"):
            await files.read("link")
        branch = await files.fork()
        await branch.write("main.py", "print(2)\n")
        await branch.write("new/file", "x")
        folder = await branch.folder()
        assert (folder / "main.py").read_text() == "print(2)\n"
        assert folder != tmp_path / "src"
        assert await files.read("main.py") == "print(1)\n"
        with pytest.raises(ToolError, match="cannot share a path"):
            await branch.write("main.py/below", "x")
        await branch.release()
        assert not folder.exists()

    anyio.run(main)
    assert sorted(os.listdir(tmp_path / "src")) == ["link", "main.py"]


BAD = ("", "..", "../x", "a/../../x", "/etc/x", "a//b", "a\0b", "a\nb", "a\\b", "C:x", "x" * 201)
BAD = (*BAD, "./a", "a/.", "a /b", "nul.", "a\u202eb", "a/b/")


@pytest.mark.parametrize("path", BAD)
def test_a_path_cannot_leave(path: str, tmp_path: Path) -> None:
    """S1: data cannot choose a path."""
    with pytest.raises(ToolError, match="not allowed as a path"):
        checked_path(path)

    async def main() -> None:
        for files in kinds(tmp_path):
            with pytest.raises(ToolError):
                await files.write(path, "x")
            await files.release()

    anyio.run(main)
    assert not list(tmp_path.iterdir())


@settings(max_examples=200)
@given(path=st.text(max_size=30))
def test_a_path_that_is_allowed_stays_inside(path: str) -> None:
    try:
        allowed = checked_path(path)
    except ToolError:
        return
    root = Path("/root/of/it")
    assert root in Path(os.path.normpath(root / allowed)).parents
