"""Ragged cached passes equal plain ones, for every family that is accepted."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from focus.errors import ConfigError
from focus.policies._engine.loading import context_limit_of
from focus.policies._engine.runner import Runner

VOCABULARY, CONTEXT = 50, 96

SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 1,
}
FAMILIES = {
    "Llama": SMALL,
    "Qwen2": SMALL,
    "Qwen3": SMALL | {"head_dim": 8},
    "Mistral": SMALL | {"sliding_window": None},
    "Gemma": SMALL | {"head_dim": 8},
    "GPTNeoX": SMALL,
    "GPT2": {
        "vocab_size": VOCABULARY,
        "n_positions": CONTEXT,
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "bos_token_id": 1,
        "eos_token_id": 1,
    },
}


def build(family: str) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**FAMILIES[family])
    return transformers.AutoModelForCausalLM.from_config(config).eval()


MODEL = build("Llama")
RUNNER = Runner(MODEL, context_limit=CONTEXT)


def plain(model: Any, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=torch.tensor([ids])).logits[0, -1]
    return logits


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_passes_the_check_made_at_start(family: str) -> None:
    model = build(family)
    runner = Runner(model, context_limit=context_limit_of(model))
    assert (
        runner.slots.bytes_per_token
        == 2 * 2 * 32 // (1 if family in ("GPT2", "GPTNeoX") else 2) * 4
    )


rows = st.lists(
    st.lists(st.integers(0, VOCABULARY - 1), min_size=2, max_size=40), min_size=1, max_size=5
)


@settings(max_examples=25, deadline=None)
@given(rows=rows, data=st.data())
def test_any_cutting_of_ragged_rows_gives_the_plain_logits(
    rows: list[list[int]], data: st.DataObject
) -> None:
    cuts = [data.draw(st.integers(1, len(row) - 1)) for row in rows]
    RUNNER.run(0, [row[:cut] for row, cut in zip(rows, cuts, strict=True)], [0] * len(rows))
    got = RUNNER.run(0, [row[cut:] for row, cut in zip(rows, cuts, strict=True)], cuts)
    expected = torch.stack([plain(MODEL, row) for row in rows])
    torch.testing.assert_close(got, expected, atol=2e-5, rtol=1e-4)


def test_a_long_prompt_goes_in_chunks() -> None:
    rows = [[(3 * i + k) % VOCABULARY for i in range(n)] for k, n in enumerate((30, 5, 17, 8))]
    got = Runner(MODEL, context_limit=CONTEXT, chunk=8).run(0, rows, [0] * 4)
    expected = torch.stack([plain(MODEL, row) for row in rows])
    torch.testing.assert_close(got, expected, atol=2e-5, rtol=1e-4)


def test_positions_never_pass_the_context_limit() -> None:
    """Padding beside a row that ends at the limit must not look up a position past it."""
    model = build("GPT2")
    runner = Runner(model, context_limit=CONTEXT)
    full, short = [7] * CONTEXT, [7] * 20
    runner.run(0, [full[:-1], short[:1]], [0, 0])
    got = runner.run(0, [full[-1:], short[1:]], [CONTEXT - 1, 1])
    expected = torch.stack([plain(model, full), plain(model, short)])
    torch.testing.assert_close(got, expected, atol=2e-5, rtol=1e-4)


def test_a_model_whose_cached_passes_differ_is_refused() -> None:
    model = build("Llama")
    forward = model.forward

    @functools.wraps(forward)
    def forgetful(position_ids: Any = None, **options: Any) -> Any:
        return forward(position_ids=None if position_ids is None else position_ids * 0, **options)

    model.forward = forgetful
    with pytest.raises(ConfigError, match="differs from a plain forward pass"):
        Runner(model, context_limit=CONTEXT)
