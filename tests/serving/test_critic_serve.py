"""`focus critic serve` as a process: the values of a real model, as they were trained."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from focus import Critic
from focus.critic.consistency import compare, ruling
from focus.critic.loading import load_value_model, starting_value_model
from focus.critic.snapshot import Probe, SnapshotFacts, Verdict
from focus.critic.store import SnapshotStore
from focus.models import BUILTIN
from focus.records.records import CriticContext
from focus.rendering import load_tokenizer
from focus.rendering.tokenizers import tokenizer_hash

pytestmark = pytest.mark.anyio


def contexts() -> list[CriticContext]:
    tokenizer = load_tokenizer(BUILTIN)
    texts = ["Compute 3 + 4.", "Compute 37 + 45 - 18.\n37 + 45 = 82", "1", "+-+-" * 12]
    return [
        CriticContext(
            renderer="token_chunk/1",
            text=text,
            ids=tuple(tokenizer.encode(text)),
            tokenizer_hash=tokenizer_hash(tokenizer),
        )
        for text in texts
    ]


def published(folder: Path) -> SnapshotStore:
    """One steering snapshot of the shipped backbone with a random head."""
    torch.manual_seed(3)
    model = starting_value_model(BUILTIN, like=contexts()[0])
    torch.nn.init.normal_(model.head.weight, std=0.5)  # type: ignore[union-attr]
    values = model.predict(contexts())
    probes = [Probe(c, v) for c, v in zip(contexts(), values, strict=True)]
    store = SnapshotStore(folder / "store")
    store.create()
    facts = SnapshotFacts(
        origin="test", renderer="token_chunk/1", verdict=Verdict(True, "told so"), constant=0.5
    )
    store.publish(model.save, facts, probes=probes)
    return store


@contextlib.contextmanager
def serving(store: SnapshotStore) -> Iterator[str]:
    """The address of `focus critic serve`, which ends cleanly with the block."""
    words = [sys.executable, "-m", "focus", "critic", "serve", str(store.path), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None
        yield found.group()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=500) == 0


async def test_served_values_are_the_trained_ones(tmp_path: Path) -> None:
    store = published(tmp_path)
    snapshot = store.current()
    assert snapshot is not None
    with serving(store) as url:
        critic = Critic.served(url, version=snapshot.version)
        served = await compare(critic, snapshot.probes())
        await critic.aclose()
    assert served.max_difference < 1e-5
    assert ruling(snapshot, served).steering
    local = Critic.local(load_value_model(store.load(snapshot.version)))
    values = await local.score([probe.context for probe in snapshot.probes()])
    assert values == pytest.approx([probe.value for probe in snapshot.probes()], abs=1e-6)
    assert len({round(value, 3) for value in values}) > 1


def test_a_folder_that_is_no_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("hello")
    words = [sys.executable, "-m", "focus", "critic", "serve", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1
    assert "no store of critics" in done.stderr
