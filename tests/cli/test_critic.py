"""`focus critic`: train, look, publish; what a user meets on the way."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForSequenceClassification

from focus.critic.snapshot import Probe, encode_probes
from focus.critic.store import SnapshotStore

from .conftest import Invoke

torch.set_num_threads(1)


def _samples() -> Any:
    """The made-up process of the trainer's tests."""
    folder = Path(__file__).parents[1] / "integrations" / "critic"
    spec = importlib.util.spec_from_file_location("critic_samples", folder / "samples.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SAMPLES = _samples()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, invoke: Invoke) -> Path:
    """Records, outcomes, a model, and a store after one session."""
    root = tmp_path_factory.mktemp("critics")
    SAMPLES.small_model(root / "model")
    SAMPLES.write_round(root / "records", range(60))
    SAMPLES.write_fresh(root / "outcomes", range(1000, 1200))
    train = ["critic", "train", root / "records", "--out", root / "store"]
    train += ["--outcomes", root / "outcomes", "--model", root / "model", "--device", "cpu"]
    train += ["--lr", "1e-2", "--set", "passes=2", "--json", root / "sessions.json"]
    found = invoke(*train)
    assert found.stdout.splitlines()[0].startswith("critic-0001 from ")
    assert found.stdout.splitlines()[-1] == f"next: focus critic report {root / 'store'}"
    assert "nothing to train on" in invoke(*train).stdout
    return root


def test_figures_of_each_session_are_written(root: Path) -> None:
    [session] = json.loads((root / "sessions.json").read_text())
    assert session["version"] == "critic-0001"
    assert session["judgement"]["gate"]["samples"] == 600
    assert session["records"] + session["held_out_records"] == 180
    assert session["reason"]


def test_a_report_names_verdict_figures_and_bars(root: Path, invoke: Invoke) -> None:
    page = invoke("critic", "report", root / "store").stdout
    assert "critic-0001 *" in page
    assert "steering: " in page
    assert "600 fresh outcomes of 200 problems, by actor-0" in page
    assert max(map(len, page.splitlines())) <= 100
    plain = json.loads(invoke("critic", "report", root / "store", "--json").stdout)
    assert plain["current"] == "critic-0001"
    assert plain["versions"][0]["judgement"]["parts"]["root"]["samples"] == 200


def test_the_page_stands_alone(root: Path, invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    invoke("critic", "report", root / "store", "--html", file)
    page = file.read_text(encoding="utf-8")
    addresses = set(re.findall(r"https?://[^\"'<> ]*", page))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert re.search(r"<script|<link|<img|@import|url\((?!#)", page) is None
    assert page.count("<svg") == page.count("<figcaption>") >= 3
    again = tmp_path / "again.html"
    invoke("critic", "report", root / "store", "--html", again)
    assert again.read_text(encoding="utf-8") == page


def test_damage_is_told_and_ends_with_1(root: Path, invoke: Invoke, tmp_path: Path) -> None:
    shutil.copytree(root / "store", tmp_path / "store")
    invoke("critic", "report", tmp_path / "store", "--verify")
    weights = tmp_path / "store/snapshots/critic-0001/model/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    found = invoke("critic", "report", tmp_path / "store", "--verify", code=1)
    assert "model.safetensors" in found.stderr


def classifier(folder: Path) -> Path:
    torch.manual_seed(2)
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_labels=1,
        pad_token_id=0,
        initializer_range=0.5,
    )
    LlamaForSequenceClassification(config).eval().save_pretrained(folder)
    (folder / "optimizer.bin").write_bytes(b"not to be published")
    return folder


def test_a_critic_from_elsewhere_is_judged_alike(
    root: Path, invoke: Invoke, tmp_path: Path
) -> None:
    model = classifier(tmp_path / "hf")
    words = ["critic", "publish", model, "--store", tmp_path / "store"]
    words += ["--records", root / "records"]
    found = invoke(*words, "--outcomes", root / "outcomes").stdout
    assert found.startswith("critic-0001 not steering: not shown to beat")
    again = invoke(*words, "--outcomes", root / "outcomes").stdout
    assert again.startswith("critic-0001")
    store = SnapshotStore(tmp_path / "store")
    snapshot = store.load("critic-0001")
    assert snapshot.facts.records.count == 180
    assert {Path(name).suffix for name in snapshot.files} <= {
        ".json",
        ".jsonl",
        ".txt",
        ".safetensors",
    }
    assert "not judged" in invoke(*words[:3], "--store", tmp_path / "other", *words[5:]).stdout


def test_a_critic_that_was_converted_wrongly_is_refused(
    root: Path, invoke: Invoke, tmp_path: Path
) -> None:
    model = classifier(tmp_path / "hf")
    wrong = [Probe(SAMPLES.context(11, number), 0.123) for number in range(1, 9)]
    (tmp_path / "scores.jsonl").write_bytes(encode_probes(wrong))
    words = ["critic", "publish", model, "--store", tmp_path / "store"]
    words += ["--records", root / "records", "--scores", tmp_path / "scores.jsonl"]
    found = invoke(*words, code=1)
    assert "differs from the trained one" in found.stderr
    assert SnapshotStore(tmp_path / "store").versions() == ()


def test_a_bare_head_is_kept_in_the_range(root: Path, invoke: Invoke, tmp_path: Path) -> None:
    """As Megatron trains it: w·h + b, no squashing."""
    SAMPLES.small_model(tmp_path / "hf")
    head = {"weight": torch.zeros(1, 32), "bias": torch.tensor([1.7])}
    save_file(head, tmp_path / "hf" / "value_head.safetensors")
    words = ["critic", "publish", tmp_path / "hf", "--store", tmp_path / "store"]
    invoke(*words, "--records", root / "records", "--squash", "clamp")
    probes = SnapshotStore(tmp_path / "store").load("critic-0001").probes()
    assert {probe.value for probe in probes} == {1.0}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", ".", "--out", "s", "--set", "colour=1"], "unknown setting"),
        (["train", ".", "--out", "s", "--model", "missing"], "no config.json"),
        (["report", "nowhere"], "nothing is published here yet"),
        (["publish", "m", "--store", "s", "--records", "nowhere"], "no critic records"),
    ],
)
def test_a_mistake_is_one_line(
    words: list[str], message: str, invoke: Invoke, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in invoke("critic", *words, code=1).stderr


def test_a_folder_or_device_that_is_not_there_is_misuse(
    invoke: Invoke, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    train = ("critic", "train", "--out", "s")
    assert "no such folder" in invoke(*train, "nowhere", code=2).stderr
    assert "not cpu, cuda" in invoke(*train, ".", "--device", "tpu", code=2).stderr
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    assert "sees 2 GPUs" in invoke(*train, ".", "--device", "cuda:2", code=2).stderr


@pytest.mark.parametrize("command", ["train", "report", "publish", "serve"])
def test_help_has_an_example(command: str, invoke: Invoke) -> None:
    page = invoke("critic", command, "--help").stdout
    assert f"focus critic {command}" in page.split("Example", 1)[1]
