"""Steps of the engine are timed, replayed where a recorder works and plain where none does."""

import json
import subprocess
import sys
from pathlib import Path

from bench.overhead.decoding import steps_of

from focus.models import resolve
from focus.policies._engine.loading import load_model
from focus.policies._engine.runner import Runner


def test_a_replayed_engine_says_so() -> None:
    model = load_model(resolve("builtin"), device="cpu", dtype="float32")
    runner = Runner(model, context_limit=512, recording=lambda: lambda work: (work(), work)[1])
    found = steps_of(runner, batch=2, context=8, steps=3)
    assert found.replayed
    assert found.tokens_per_s > 0


def test_the_command_prints_and_stores_each_batch(tmp_path: Path) -> None:
    out = tmp_path / "steps.json"
    words = ("-m", "bench.overhead.decoding", "builtin", "--batches", "1,2", "--context", "4")
    done = subprocess.run(
        [sys.executable, *words, "--device", "cpu", "--json", str(out)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count("tokens/s") == 4
    assert [(each["batch"], each["replayed"]) for each in json.loads(out.read_text())] == [
        (1, False),
        (2, False),
    ] * 2
