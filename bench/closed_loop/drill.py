"""Kills trainer, server and supervisor of a running loop at random, and audits the disk.

    python -m bench.closed_loop.drill --kills 50 --rounds 40

The audit reads files as any other program would: JSON, SQLite and text, nothing of FOCUS.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from .__main__ import Plan, config

__all__ = ("Audit", "audit", "drill")

TARGETS = ("trainer", "server", "supervisor")
SPARE_S = 900.0


@dataclass(frozen=True)
class Audit:
    """What lies on disk after a drill.

    Attributes:
        rounds: decided ones.
        prompts: accepted prompt files.
        records: critic records in them.
        versions: published critics.
        wrong: everything that should not be; empty when all is well.
    """

    rounds: int
    prompts: int
    records: int
    versions: int
    wrong: tuple[str, ...]


def drill(folder: Path, *, kills: int, rounds: int, seed: int = 0) -> Counter[str]:
    """Run a loop to its end with `kills` deaths on the way; how often each was killed."""
    plan = Plan(rounds=rounds, seeds=1, prompts=6, outcomes=120, heldout=1)
    path = config(folder, plan, seed)
    path.write_text(
        path.read_text() + "[restart]\nmost = 1000\nfirst_pause_s = 0.1\nmost_pause_s = 0.5\n"
    )
    rng, killed = random.Random(seed), Counter[str]()
    supervisor = _supervise(path)
    deadline = time.monotonic() + SPARE_S + 60 * kills
    try:
        while supervisor.poll() is None or supervisor.returncode < 0:
            if time.monotonic() > deadline:
                raise SystemExit(f"the drill did not end in time: {dict(killed)}")
            if supervisor.poll() is not None:
                supervisor = _supervise(path)
            if killed.total() == kills:
                time.sleep(0.2)
                continue
            time.sleep(rng.uniform(0.2, 4.0))
            target = rng.choice(TARGETS)
            pid = supervisor.pid if target == "supervisor" else _pid_of(folder, target)
            if pid is not None and supervisor.poll() is None:
                os.kill(pid, signal.SIGKILL)
                killed[target] += 1
                supervisor.poll() if target != "supervisor" else supervisor.wait()
    finally:
        if supervisor.poll() is None:
            supervisor.terminate()
            supervisor.wait()
    if supervisor.returncode:
        raise SystemExit(f"focus loop ended with exit code {supervisor.returncode}")
    return killed


def _supervise(path: Path) -> subprocess.Popen[bytes]:
    with open(path.with_name("supervisor.log"), "ab") as log:
        return subprocess.Popen([sys.executable, "-m", "focus", "loop", str(path)], stderr=log)


def _pid_of(folder: Path, name: str) -> int | None:
    """The living child that carries the loop's mark."""
    mark = f"FOCUS_LOOP_CHILD={os.path.realpath(folder)}#{name}".encode()
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            group = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[2])
        except (OSError, IndexError):
            continue
        if mark in environment and group == int(pid):
            return int(pid)
    return None


def audit(folder: Path) -> Audit:
    """Look for records that were trained twice or lost, and for trees of two critics."""
    accepted = _accepted(folder / "targets")
    lines = {
        path.name: [json.loads(line) for line in path.read_text().splitlines()] for path in accepted
    }
    tags = {
        int(path.stem[-6:]): json.loads(path.read_text())
        for path in sorted((folder / "rounds").glob("round-*.json"))
    }
    wrong = [
        *_two_critics(lines, tags),
        *_trained_wrongly(folder / "critics" / "training", lines),
        *_snapshots_wrong(folder / "critics", lines),
    ]
    return Audit(
        rounds=len(tags),
        prompts=len(lines),
        records=sum(map(len, lines.values())),
        versions=len(list((folder / "critics" / "snapshots").glob("critic-*"))),
        wrong=tuple(wrong),
    )


def _accepted(targets: Path) -> list[Path]:
    """Prompt files of the attempts that count."""
    found: list[Path] = []
    for mark in sorted(targets.glob("round-*.accepted.json")):
        said = json.loads(mark.read_text())
        if said["attempt"] is not None:
            name = f"round-{said['round']:06d}.attempt-{said['attempt']:03d}.*.jsonl"
            found += sorted(targets.glob(name))
    return found


def _two_critics(lines: dict[str, list[dict]], tags: dict[int, dict]) -> Iterator[str]:
    for name, records in lines.items():
        versions = {record["critic_version"] for record in records}
        if len(versions) != 1:
            yield f"{name}: a tree with critics {sorted(versions)}"
        tag = tags[records[0]["round"]]
        expected = tag["snapshot"] if tag["steering"] else f"constant-{tag['constant']:g}"
        if versions != {expected}:
            yield f"{name}: critics {sorted(versions)}, the round was decided for {expected}"


def _trained_wrongly(training: Path, lines: dict[str, list[dict]]) -> Iterator[str]:
    """Each prompt is new in one session; each pass applies each of its records once."""
    (ledger,) = training.glob("*.sqlite")
    with contextlib.closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as db:
        new = Counter(name for (name,) in db.execute("select name from prompts where is_new"))
        applied = db.execute("select session, pass, record from applied").fetchall()
    for name in lines:
        if new[name] != 1:
            yield f"{name}: new in {new[name]} sessions"
    if strangers := set(new) - set(lines):
        yield f"trained on what never counted: {sorted(strangers)}"
    passes: dict[tuple[int, int], Counter[str]] = {}
    for session, number, record in applied:
        passes.setdefault((session, number), Counter())[record] += 1
    of_session: dict[int, set[str]] = {}
    for (session, number), records in sorted(passes.items()):
        if twice := [record for record, count in records.items() if count != 1]:
            yield f"session {session}, pass {number}: applied twice: {twice[:3]}"
        whole = of_session.setdefault(session, set(records))
        if whole != set(records):
            yield f"session {session}, pass {number}: other records than in its first pass"


def _snapshots_wrong(store: Path, lines: dict[str, list[dict]]) -> Iterator[str]:
    """The last snapshot's records are those of the accepted prompts, each once."""
    known = {f"{name}#{record['node']}" for name, rs in lines.items() for record in rs}
    last = sorted((store / "snapshots").glob("critic-*"))[-1]
    listed = (last / "records.txt").read_text().split("\n")[:-1]
    if len(listed) != len(set(listed)):
        yield f"{last.name}: a record is listed twice"
    if strangers := set(listed) - known:
        yield f"{last.name}: records that never counted: {sorted(strangers)[:3]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    folder = options.out or Path(tempfile.mkdtemp(prefix="loop-drill-"))
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    killed = drill(folder, kills=options.kills, rounds=options.rounds, seed=options.seed)
    found = audit(folder)
    report = {"kills": killed.total(), "killed": dict(killed), **asdict(found)}
    print(json.dumps({**report, "wall_s": round(time.monotonic() - started, 1)}, indent=2))
    sys.exit(bool(found.wrong))


if __name__ == "__main__":
    main()
