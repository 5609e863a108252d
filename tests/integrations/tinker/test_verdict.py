"""The critic's question: single tokens, the model's chat format, one identity."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.errors import ConfigError, CriticError
from focus.integrations.tinker import Verdict, VerdictText, verdict_value
from focus.records import CriticContext
from focus.rendering.tokenizers import decode, tokenizer_hash

SHORT = VerdictText(suffix="?", yes="y", no="n")


def context(tokenizer: Any, **changes: Any) -> CriticContext:
    known = {
        "renderer": "token_chunk/1",
        "text": "",
        "ids": (1, 2, 3),
        "tokenizer_hash": tokenizer_hash(tokenizer),
    }
    return CriticContext(**{**known, **changes})


def test_a_suffix_is_appended_as_it_stands(tokenizer: Any) -> None:
    verdict = Verdict.of(tokenizer, SHORT)
    assert decode(tokenizer, verdict.suffix) == "?"
    assert decode(tokenizer, verdict.answers) == "yn"
    assert verdict.prompt(context(tokenizer)) == (1, 2, 3, *verdict.suffix)
    assert verdict.room == len(verdict.suffix) + 2


def test_a_question_is_asked_in_the_models_chat_format(tokenizer: Any) -> None:
    verdict = Verdict.of(tokenizer, VerdictText(question="Right?", yes="y", no="n"))
    text = decode(tokenizer, verdict.suffix, keep_special=True)
    assert text == "<|im_end|>\n<|im_start|>user\nRight?<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (VerdictText(suffix="?"), "choose one that is one token"),
        (VerdictText(suffix="?", yes="y", no="y"), "are one token"),
        (VerdictText(suffix="", yes="y", no="n"), "suffix is empty"),
    ],
)
def test_answers_are_two_single_tokens(tokenizer: Any, text: VerdictText, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Verdict.of(tokenizer, text)


def test_the_suffix_is_part_of_the_identity(tokenizer: Any) -> None:
    names = {
        Verdict.of(tokenizer, text).name
        for text in (SHORT, SHORT, VerdictText(suffix="!", yes="y", no="n"))
    }
    assert len(names) == 2


@pytest.mark.parametrize(
    "changes", [{"renderer": "text/1"}, {"ids": None}, {"tokenizer_hash": "other"}]
)
def test_a_context_of_another_kind_is_refused(tokenizer: Any, changes: dict[str, Any]) -> None:
    with pytest.raises(CriticError):
        Verdict.of(tokenizer, SHORT).prompt(context(tokenizer, **changes))


log_probs = st.floats(-800.0, 0.0)


@given(log_probs, log_probs)
def test_the_value_is_the_share_of_yes(log_yes: float, log_no: float) -> None:
    value = verdict_value(log_yes, log_no)
    assert 0.0 <= value <= 1.0
    assert math.isclose(value + verdict_value(log_no, log_yes), 1.0)
    if min(log_yes, log_no) > -300:
        share = math.exp(log_yes) / (math.exp(log_yes) + math.exp(log_no))
        assert math.isclose(value, share, rel_tol=1e-9)


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_a_missing_log_prob_is_no_value(value: float) -> None:
    with pytest.raises(CriticError):
        verdict_value(value, -1.0)
