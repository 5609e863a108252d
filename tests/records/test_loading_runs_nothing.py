"""Loaders read values. They run no code, start nothing and open no connection."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from focus.errors import SchemaError
from focus.records import load_tree, read_critic_records, read_problems
from focus.testing.records import GOLDEN

WATCHED = """
import sys
from focus.records import load_stored_tree, read_critic_records, read_problems

golden, rows = sys.argv[1:]
seen = []
forbidden = ("import", "exec", "compile", "subprocess.", "os.system", "os.exec", "os.posix_spawn",
             "socket.", "ctypes.", "pickle.", "marshal.")
sys.addaudithook(lambda event, _: event.startswith(forbidden) and seen.append(event))
load_stored_tree(golden + "/tree-1.json")
list(read_critic_records(golden + "/directory"))
found = read_problems(rows)
print(seen, len(found.problems), len(found.bad_rows))
"""


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("exploded"),))


def test_loading_raises_no_event_of_code_processes_or_sockets(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(b'{"problem": "!!python/object:os.system", "solution": "4"}\n{"__class__": 1}')
    child = subprocess.run(
        [sys.executable, "-c", WATCHED, str(GOLDEN), str(rows)], capture_output=True, text=True
    )
    assert (child.stdout.strip(), child.stderr) == ("[] 1 1", "")


def test_a_pickle_is_damaged_json_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps(Bomb())
    Path("tree.json").write_bytes(data)
    Path("manifest.json").write_bytes(data)
    with pytest.raises(SchemaError):
        load_tree("tree.json")
    with pytest.raises(SchemaError):
        list(read_critic_records("."))
    assert read_problems("tree.json").problems == ()
    assert not Path("exploded").exists()
