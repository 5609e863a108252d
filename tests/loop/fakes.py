"""Children of a loop without a model: a trainer that publishes, an actor that collects.

python fakes.py trainer RECORDS STORE        one snapshot per accepted round, for ever
python fakes.py actor FOLDER ROUNDS          one tree per round, with the round's critic
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import anyio

from focus.critic.snapshot import RecordsUsed, SnapshotFacts, Verdict, record_ids
from focus.critic.store import SnapshotStore
from focus.loop.rounds import RoundCritics
from focus.records import JsonlDirectory, read_critic_records
from focus.records.jsonl import accepted_attempts
from focus.records.records import CriticContext, CriticRecord, RecordKey
from focus.tree import Identity

PER_ROUND = 3


def trainer(records: Path, store: Path) -> None:
    """Publishes each accepted round once, whatever died before: origins are its ledger."""
    critics = SnapshotStore(store)
    while True:
        marks = accepted_attempts(records) if records.exists() else {}
        for round in sorted(marks):
            publish(critics, records, round)
        time.sleep(0.05)


def publish(critics: SnapshotStore, records: Path, round: int) -> None:
    origin = f"fake/round-{round}"
    if any(critics.manifest(v).facts.origin == origin for v in critics.versions()):
        return
    used = list(read_critic_records(records, rounds={round}))

    def fill(folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(origin.encode())

    facts = SnapshotFacts(
        origin=origin,
        renderer="token_chunk/1",
        verdict=Verdict(False, "a fake never steers"),
        constant=0.25,
        records=RecordsUsed.of(used),
    )
    critics.publish(fill, facts, record_ids=record_ids(used))


def write_round(sink: JsonlDirectory, round: int, version: str) -> None:
    """A few records of one prompt, accepted."""
    source = RecordKey(
        identity=Identity(run="fake", round=round),
        problem=round,
        key=f"key-{round}",
        policy_version="p",
        critic_version=version,
    )
    context = CriticContext(renderer="token_chunk/1", text="x", ids=(1,))
    sink.write(
        [
            CriticRecord(
                source=source, node=n, context=context, target=0.5, count=1, prior=0.5, depth=n
            )
            for n in range(PER_ROUND)
        ]
    )
    sink.accept(round=round, attempt=0)


async def actor(folder: Path, rounds: int) -> None:
    """Goes on after its last accepted round."""
    critics, sink = RoundCritics.from_environment(), JsonlDirectory(folder / "targets")
    done = accepted_attempts(sink.path) if sink.path.exists() else {}
    for round in range(len(done), rounds):
        chosen = await critics.of(round)
        write_round(sink, round, chosen.critic.version)


if __name__ == "__main__":
    role, first, second = sys.argv[1:]
    if role == "trainer":
        trainer(Path(first), Path(second))
    else:
        anyio.run(actor, Path(first), int(second))
