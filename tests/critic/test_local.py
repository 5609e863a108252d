"""The value model in this process: exact predictions, and snapshots that are whole or refused."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaModel

from focus.critic.local import ValueModel
from focus.errors import CriticError, StoreError
from focus.records.records import CriticContext

torch.set_num_threads(1)


def value_model(*, version: str = "critic-0007", hash_: str = "tok") -> ValueModel:
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    head = torch.nn.Linear(32, 1)
    return ValueModel(LlamaModel(config).eval(), head, version=version, tokenizer_hash=hash_)


def context(*ids: int, hash_: str = "tok", renderer: str = "token_chunk/1") -> CriticContext:
    return CriticContext(renderer=renderer, text="", ids=ids, tokenizer_hash=hash_)


def family(seed: int) -> list[CriticContext]:
    """Contexts as a tree gives them: prefixes of one another, siblings, twins."""
    rng = random.Random(seed)
    found: list[tuple[int, ...]] = []
    for _ in range(40):
        stem = rng.choice(found) if found and rng.random() < 0.7 else ()
        more = rng.choices(range(50), k=rng.randint(0 if stem else 1, 8))
        found.append((stem + tuple(more))[:60])
    return [context(*ids) for ids in found]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("batch_tokens", [1, 64, 8192])
def test_a_prediction_does_not_depend_on_its_company(seed: int, batch_tokens: int) -> None:
    model, contexts = value_model(), family(seed)
    with torch.no_grad():
        for found, alone in zip(
            model.predict(contexts, batch_tokens=batch_tokens),
            [
                model.head(model.backbone(torch.tensor([c.ids])).last_hidden_state[0, -1])
                for c in contexts
            ],
            strict=True,
        ):
            assert found == pytest.approx(torch.sigmoid(alone).item(), abs=1e-5)
            assert 0.0 < found < 1.0


def test_predictions_spread() -> None:
    values = value_model().predict(family(0))
    assert max(values) - min(values) > 0.05


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    model, contexts = value_model(), family(1)
    model.save(tmp_path / "critic")
    copy = ValueModel.load(tmp_path / "critic")
    assert (copy.version, copy.tokenizer_hash) == ("critic-0007", "tok")
    assert copy.predict(contexts) == model.predict(contexts)
    own = {**model.backbone.state_dict(), **model.head.state_dict()}
    again = {**copy.backbone.state_dict(), **copy.head.state_dict()}
    assert own.keys() == again.keys()
    assert all(torch.equal(own[name], again[name]) for name in own)
    kinds = {path.suffix for path in (tmp_path / "critic").iterdir()}
    assert kinds == {".json", ".safetensors"}


@pytest.mark.parametrize(
    "wrong",
    [
        context(1, 2, hash_="other"),
        context(1, 2, renderer="text/1"),
        context(),
        CriticContext(renderer="token_chunk/1", text="hello", tokenizer_hash="tok"),
    ],
)
def test_a_context_it_was_not_made_for_is_refused(wrong: CriticContext) -> None:
    with pytest.raises(CriticError, match="critic-0007"):
        value_model().predict([context(1), wrong])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def with_field(name: str, value: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "focus_critic.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))

    return change


def without_a_weight(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights.pop("layers.1.mlp.down_proj.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def with_another_head(folder: Path) -> None:
    save_file({"weight": torch.zeros(1, 9), "bias": torch.zeros(1)}, head_of(folder))


def head_of(folder: Path) -> Path:
    return folder / "value_head.safetensors"


DAMAGE: dict[str, Callable[[Path], object]] = {
    "no manifest": lambda folder: (folder / "focus_critic.json").unlink(),
    "cut manifest": lambda folder: cut(folder / "focus_critic.json"),
    "a list": lambda folder: (folder / "focus_critic.json").write_text("[]"),
    "not text": lambda folder: (folder / "focus_critic.json").write_bytes(b"\xff\xfe"),
    "other schema": with_field("schema", "focus.value_model/9"),
    "no version": with_field("version", None),
    "hash of another type": with_field("tokenizer_hash", 7),
    "other renderer": with_field("renderer", "text/1"),
    "no head": lambda folder: head_of(folder).unlink(),
    "cut head": lambda folder: cut(head_of(folder)),
    "another head": with_another_head,
    "cut backbone": lambda folder: cut(folder / "model.safetensors"),
    "no backbone": lambda folder: (folder / "model.safetensors").unlink(),
    "a weight is missing": without_a_weight,
    "cut config": lambda folder: cut(folder / "config.json"),
    "no config": lambda folder: (folder / "config.json").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_snapshot_is_refused_by_its_folder(
    damage: Callable[[Path], object], tmp_path: Path
) -> None:
    folder = tmp_path / "critic"
    value_model().save(folder)
    damage(folder)
    with pytest.raises(StoreError, match=str(folder)):
        ValueModel.load(folder)


def test_a_pickled_backbone_is_never_read(tmp_path: Path) -> None:
    folder = tmp_path / "critic"
    value_model().save(folder)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(StoreError):
        ValueModel.load(folder)


def test_a_fresh_critic_knows_nothing(tmp_path: Path) -> None:
    value_model().backbone.save_pretrained(tmp_path)
    fresh = ValueModel.from_pretrained(tmp_path, version="critic-0000", tokenizer_hash="tok")
    assert fresh.predict(family(2)) == [0.5] * 40


def test_no_model_folder_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        ValueModel.from_pretrained(tmp_path / "none", version="v", tokenizer_hash="tok")
