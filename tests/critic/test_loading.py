"""Value models from folders of any kind: the same values after a save, code never run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
)

from focus.critic import Critic
from focus.critic.classifier import ClassifierModel
from focus.critic.loading import load_value_model, starting_value_model
from focus.critic.local import ValueModel
from focus.critic.snapshot import SnapshotFacts, Verdict
from focus.critic.store import SnapshotStore
from focus.errors import ConfigError, CriticError, StoreError
from focus.records.records import CriticContext
from focus.rendering.tokenizers import tokenizer_hash

torch.set_num_threads(1)

pytestmark = pytest.mark.anyio

SIZES: dict[str, Any] = {
    "vocab_size": 20,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
}


def save(folder: Path, kind: str, *, with_tokenizer: bool = False) -> Path:
    """A small model of that kind, its weights far from zero."""
    torch.manual_seed(5)
    llama = LlamaConfig(**SIZES, num_key_value_heads=1, num_labels=1, initializer_range=0.5)
    bert = BertConfig(**SIZES, num_labels=1, initializer_range=0.5)
    model = {
        "causal": lambda: LlamaForCausalLM(llama),
        "classifier": lambda: LlamaForSequenceClassification(llama),
        "encoder": lambda: BertForSequenceClassification(bert),
        "three labels": lambda: BertForSequenceClassification(BertConfig(**SIZES, num_labels=3)),
    }[kind]()
    model.eval().save_pretrained(folder)
    if with_tokenizer:
        own_tokenizer().save_pretrained(folder)
    return folder


def own_tokenizer() -> PreTrainedTokenizerFast:
    letters = Tokenizer(WordLevel({c: i for i, c in enumerate("?abcdefghij")}, unk_token="?"))
    letters.pre_tokenizer = Split("", "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=letters, pad_token="?")


def context(*ids: int, hash_: str = "policy's", text: str = "") -> CriticContext:
    return CriticContext(renderer="token_chunk/1", text=text, ids=ids, tokenizer_hash=hash_)


CONTEXTS = [context(1, 2, 3), context(1, 2, 3, 4, 5), context(7), context(1, 2, 9)]


@pytest.mark.parametrize("kind", ["causal", "classifier", "encoder"])
def test_a_saved_model_values_alike_under_its_version(kind: str, tmp_path: Path) -> None:
    model = starting_value_model(save(tmp_path / "base", kind), like=CONTEXTS[0])
    if isinstance(model, ValueModel):
        torch.nn.init.normal_(model.head.weight)
    store = SnapshotStore(tmp_path / "store")
    facts = SnapshotFacts(origin="o", renderer=model.renderer, verdict=Verdict(False, "a test"))
    snapshot = store.publish(model.save, facts)
    loaded = load_value_model(store.load(snapshot.version))
    assert loaded.version == "critic-0001"
    assert type(loaded) is (ValueModel if kind == "causal" else ClassifierModel)
    values = model.predict(CONTEXTS)
    assert loaded.predict(CONTEXTS) == values
    assert len({round(value, 6) for value in values}) == len(CONTEXTS)


@pytest.mark.parametrize("kind", ["causal", "classifier", "encoder"])
@pytest.mark.parametrize("batch_tokens", [1, 8, 8192])
def test_company_does_not_matter(kind: str, batch_tokens: int, tmp_path: Path) -> None:
    model = starting_value_model(save(tmp_path, kind), like=CONTEXTS[0])
    together = model.predict(CONTEXTS, batch_tokens=batch_tokens)
    alone = [model.predict([one])[0] for one in CONTEXTS]
    assert together == pytest.approx(alone, abs=1e-5)


async def test_values_fill_the_declared_range(tmp_path: Path) -> None:
    save(tmp_path, "classifier")
    unit = starting_value_model(tmp_path, like=CONTEXTS[0])
    wide = starting_value_model(tmp_path, like=CONTEXTS[0], value_range=(-1.0, 3.0))
    stretched = [-1.0 + 4.0 * value for value in unit.predict(CONTEXTS)]
    assert await Critic.local(wide).score(CONTEXTS) == pytest.approx(stretched, abs=1e-6)


def test_ids_are_read_where_the_tokenizer_is_the_same_and_text_elsewhere(tmp_path: Path) -> None:
    save(tmp_path, "classifier", with_tokenizer=True)
    same = context(1, 2, hash_=tokenizer_hash(own_tokenizer()), text="ignored")
    assert starting_value_model(tmp_path, like=same).ids(same) == (1, 2)
    other = context(1, 2, text="cab")
    model = starting_value_model(tmp_path, like=other)
    assert model.ids(other) == (3, 1, 2)
    model.save(tmp_path / "saved")
    assert load_value_model(tmp_path / "saved").ids(other) == (3, 1, 2)


def test_what_it_cannot_read_is_refused(tmp_path: Path) -> None:
    model = starting_value_model(save(tmp_path, "causal"), like=CONTEXTS[0])
    with pytest.raises(CriticError, match="32 ids at most"):
        model.predict([context(*[1] * 33)])
    with pytest.raises(CriticError, match="tokenizer 'another'"):
        model.predict([context(1, hash_="another")])
    with pytest.raises(ConfigError, match="need a model with a tokenizer"):
        starting_value_model(tmp_path, like=CriticContext(renderer="token_chunk/1", text="ab"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"auto_map": {"AutoModel": "evil.Model"}}, "never run"),
        ({"pad_token_id": None}, "pad_token_id"),
        ({}, "one label"),
    ],
)
def test_a_model_that_is_no_critic_is_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = save(tmp_path, "classifier" if changes else "three labels") / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises((ConfigError, StoreError), match=message):
        starting_value_model(tmp_path, like=CONTEXTS[0])
