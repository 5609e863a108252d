"""How many planted faults does the suite find?

    python bench/mutation/run.py --json bench/mutation/result.json
    python bench/mutation/run.py --only M08 M29 --json /tmp/two.json

Each fault of mutants.toml is planted in a copy of this checkout, never in the checkout
itself, and its part of the suite is run there until the first failure. In the end the tests
that failed are run once more without any fault: one that fails there too has found nothing.
A run that is stopped goes on where it was: results are in the file as soon as they are known,
and one is believed again while the source, the mutant and its tests are the same.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from mutants import Mutant, load_mutants

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = "focus.mutation/1"
COPIED = ("src", "tests", "examples", "docs", "bench", "scripts", "pyproject.toml", "README.md")
LEFT_OUT = shutil.ignore_patterns("__pycache__", ".*_cache", "*.egg-info", "node_modules")
MOST_S = 900


@dataclass(frozen=True)
class Result:
    """What became of one mutant.

    Attributes:
        id, digest: which one.
        state: a hash of what decides the verdict: source, its tests, and what tests share.
        verdict: ``"caught"``, ``"survived"``, or ``"broken"``: the tests could not run.
        by: the first test that failed, or the end of what was printed.
        seconds: wall time.
    """

    id: str
    digest: str
    state: str
    verdict: str
    by: str
    seconds: float


def main() -> int:
    options = _options()
    mutants = load_mutants()
    wanted = [m for m in mutants if not options.only or m.id in options.only]
    commit, files = _commit(), _files()
    known = _known(options.json)
    fitting = {m.id: (m.digest, _state(m, files)) for m in mutants}
    results = {
        name: known[name]
        for name, keys in fitting.items()
        if name in known and (known[name].digest, known[name].state) == keys
    }
    todo = [mutant for mutant in wanted if mutant.id not in results]
    with tempfile.TemporaryDirectory(prefix="focus-mutation-") as folder:
        copy = _copied(Path(folder))
        for number, mutant in enumerate(todo, start=1):
            print(f"[{number}/{len(todo)}] {mutant.id} {mutant.file}: {mutant.fault}", flush=True)
            results[mutant.id] = _judge(copy, mutant, fitting[mutant.id][1])
            print(f"    {_line(results[mutant.id])}", flush=True)
            _store(options.json, commit, mutants, results)
        results |= _confirmed(copy, [results[mutant.id] for mutant in todo])
    _store(options.json, commit, mutants, results)
    _print_table(wanted, results)
    return 0 if all(results[m.id].verdict == "caught" for m in wanted) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, required=True, help="where results are kept")
    parser.add_argument("--only", nargs="+", metavar="ID", help="these mutants, e.g. M08 M29")
    return parser.parse_args()


def _copied(folder: Path) -> Path:
    """A copy of the working tree as far as tests read it."""
    for name in COPIED:
        source, target = ROOT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=LEFT_OUT)
        elif source.exists():
            shutil.copy2(source, target)
    return folder


def _judge(copy: Path, mutant: Mutant, state: str) -> Result:
    path = copy / mutant.file
    sound = path.read_text("utf-8")
    path.write_text(mutant.applied(sound), "utf-8")
    try:
        code, said, seconds = _pytest(copy, mutant.tests)
    finally:
        path.write_text(sound, "utf-8")
    verdict = {0: "survived", 1: "caught"}.get(code, "broken")
    failed = _failed(said)
    by = failed[0] if failed else "" if code == 0 else said.strip()[-300:]
    return Result(mutant.id, mutant.digest, state, verdict, by, round(seconds, 1))


def _failed(said: str) -> list[str]:
    """Test functions that pytest lists as failed, without their parameters."""
    return re.findall(r"^(?:FAILED|ERROR) ([^\s\[]+)", said, re.MULTILINE)


def _confirmed(copy: Path, judged: Sequence[Result]) -> dict[str, Result]:
    """The results, with those called broken whose test fails without their fault as well."""
    caught = [result for result in judged if result.verdict == "caught" and "::" in result.by]
    if not caught:
        return {}
    print(f"the {len(caught)} tests that failed, without a fault", flush=True)
    _, said, seconds = _pytest(copy, sorted({result.by for result in caught}), stop=False)
    wrong = set(_failed(said))
    print(f"    {len(wrong)} fail all the same, in {seconds:.0f} s", flush=True)
    return {
        result.id: replace(result, verdict="broken", by=f"{result.by} fails without it too")
        for result in caught
        if result.by in wrong
    }


def _pytest(copy: Path, tests: Sequence[str], *, stop: bool = True) -> tuple[int, str, float]:
    """Exit code, output and seconds; what never ends is cut off and counts as a failure."""
    options = [
        "-q",
        "--tb=no",
        "--timeout=120",
        "-p",
        "no:cacheprovider",
        *(["-x"] if stop else []),
    ]
    command = [sys.executable, "-B", "-m", "pytest", *options]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(copy / "src"), str(copy))),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    started = time.monotonic()
    try:
        done = subprocess.run(
            [*command, *tests],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            timeout=MOST_S,
        )
    except subprocess.TimeoutExpired:
        return 1, f"FAILED no-end-within-{MOST_S}-s", time.monotonic() - started
    return done.returncode, done.stdout + done.stderr, time.monotonic() - started


def _files() -> dict[str, str]:
    """A hash of each Python file of source and tests, by its path."""
    paths = [path for name in ("src", "tests") for path in sorted((ROOT / name).rglob("*.py"))]
    return {
        path.relative_to(ROOT).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
    }


def _state(mutant: Mutant, files: Mapping[str, str]) -> str:
    own = [
        (name, digest)
        for name, digest in files.items()
        if not Path(name).name.startswith("test_")
        or any(name == test or name.startswith(f"{test}/") for test in mutant.tests)
    ]
    return hashlib.sha256(repr(own).encode()).hexdigest()[:16]


def _known(path: Path) -> dict[str, Result]:
    """Results of earlier runs."""
    try:
        stored: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    if stored.get("schema") != SCHEMA:
        return {}
    entries = [
        {name: entry[name] for name in Result.__dataclass_fields__} for entry in stored["mutants"]
    ]
    return {entry["id"]: Result(**entry) for entry in entries}


def _store(
    path: Path, commit: str, mutants: Sequence[Mutant], results: Mapping[str, Result]
) -> None:
    entries = [
        {"case": m.case, "area": m.area, "file": m.file, "fault": m.fault, "tests": list(m.tests)}
        | asdict(results[m.id])
        for m in mutants
        if m.id in results
    ]
    verdicts = [entry["verdict"] for entry in entries]
    whole = {
        "schema": SCHEMA,
        "date": datetime.date.today().isoformat(),
        "commit": commit,
        "command": "python bench/mutation/run.py --json bench/mutation/result.json",
        "planted": len(entries),
        "caught": verdicts.count("caught"),
        "survived": verdicts.count("survived"),
        "seconds": round(sum(entry["seconds"] for entry in entries), 1),
        "mutants": entries,
    }
    made = path.with_suffix(".part")
    made.write_text(json.dumps(whole, indent=2) + "\n", "utf-8")
    os.replace(made, path)


def _commit() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True
    )
    return found.stdout.strip()


def _line(result: Result) -> str:
    return f"{result.verdict} in {result.seconds:.0f} s" + (f" by {result.by}" if result.by else "")


def _print_table(mutants: Sequence[Mutant], results: Mapping[str, Result]) -> None:
    print()
    for mutant in mutants:
        print(f"{mutant.id}  {mutant.case}  {mutant.area:10}  {_line(results[mutant.id])}")
    caught = sum(results[mutant.id].verdict == "caught" for mutant in mutants)
    print(f"\n{caught} of {len(mutants)} planted faults caught")


if __name__ == "__main__":
    sys.exit(main())
