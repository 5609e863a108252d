"""Tokenizers: one object per folder, whole decodes, a name for the mapping."""

from __future__ import annotations

import copy
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.errors import ConfigError
from focus.models import BUILTIN
from focus.rendering import decode, encode, load_tokenizer, lock_of, tokenizer_hash

TOKENIZER = load_tokenizer(BUILTIN)


def test_threads_that_ask_together_get_one_object(tmp_path: Path) -> None:
    """B53: a folder that nobody has loaded yet, asked for by eight threads at once."""
    for path in BUILTIN.glob("*token*"):
        shutil.copy(path, tmp_path)
    barrier = Barrier(8)

    def ask(_: int) -> tuple[int, int]:
        barrier.wait()
        tokenizer = load_tokenizer(tmp_path)
        return id(tokenizer), id(lock_of(tokenizer))

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(ask, range(8)))) == 1
    assert load_tokenizer(str(tmp_path)) is load_tokenizer(tmp_path / ".")


def test_a_folder_without_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)


@given(st.text())
def test_any_text_round_trips(text: str) -> None:
    encodable = text.encode("utf-8", "ignore").decode()
    assert decode(TOKENIZER, encode(TOKENIZER, encodable), keep_special=True) == encodable


@given(st.text(min_size=1), st.data())
def test_a_reply_decodes_whole_however_it_was_cut(text: str, data: st.DataObject) -> None:
    """B07: pieces may break a character; one decode of all ids never does."""
    encodable = text.encode("utf-8", "ignore").decode() + "🙂\\boxed{5}"
    ids = encode(TOKENIZER, encodable)
    cut = data.draw(st.integers(0, len(ids)))
    assert decode(TOKENIZER, ids[:cut] + ids[cut:]) == encodable


def test_an_emoji_spans_several_ids() -> None:
    ids = encode(TOKENIZER, "🙂")
    assert len(ids) == 4
    assert "\ufffd" in decode(TOKENIZER, ids[:2])


def test_special_tokens_are_kept_on_request() -> None:
    end = TOKENIZER.eos_token_id
    assert decode(TOKENIZER, [end]) == ""
    assert decode(TOKENIZER, [end], keep_special=True) == "<|im_end|>"


def test_the_hash_names_the_mapping() -> None:
    name = tokenizer_hash(TOKENIZER)
    changed: Any = copy.deepcopy(TOKENIZER)
    assert tokenizer_hash(changed) == name
    changed.add_tokens(["another"])
    assert tokenizer_hash(changed) != name
