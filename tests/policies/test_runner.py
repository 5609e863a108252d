"""Ragged cached passes equal plain ones, for every family that is accepted."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from focus.errors import ConfigError
from focus.policies._engine.loading import context_limit_of, fuse_norms
from focus.policies._engine.replay import Record, Recording
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


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fused_norms_change_no_number_and_no_name(family: str, dtype: torch.dtype) -> None:
    model = build(family).to(dtype)
    for weight in model.parameters():
        if weight.ndim == 1:
            weight.data.uniform_(0.5, 2.0)
    fused = copy.deepcopy(model)
    fuse_norms(fused)
    assert [*model.state_dict()] == [*fused.state_dict()]
    ids = torch.arange(24).reshape(2, 12)
    with torch.no_grad():
        torch.testing.assert_close(fused(input_ids=ids).logits, model(input_ids=ids).logits)
    kinds = {type(module).__name__ for module in fused.modules()}
    replaced = family in ("Llama", "Qwen2", "Qwen3", "Mistral") and dtype is torch.float32
    assert ("RMSNorm" in kinds) == replaced


class Recorder:
    """Replays by doing the work again, and sees whether its memory is still where it was."""

    def __init__(self) -> None:
        self.recorded, self.replayed = 0, 0
        self.runner: Runner | None = None

    def __call__(self, work: Callable[[], None]) -> Callable[[], object]:
        self.recorded += 1
        work()
        before = self.runner and self.runner.slots.storage

        def again() -> None:
            assert before is None or (self.runner and self.runner.slots.storage) is before
            self.replayed += 1
            work()

        return again


def replaying(family: str = "Llama") -> tuple[Runner, Recorder]:
    recorder, model = Recorder(), build(family)
    runner = Runner(model, context_limit=context_limit_of(model), recording=lambda: recorder)
    recorder.runner = runner
    return runner, recorder


@pytest.mark.parametrize("family", FAMILIES)
def test_replayed_steps_give_the_plain_logits_as_rows_come_and_go(family: str) -> None:
    """Rows and widths grow past the memory that was recorded, and shrink again."""
    runner, recorder = replaying(family)
    model = build(family)
    for count in (1, 3, 9, 2):
        rows = [[(5 * i + k) % VOCABULARY for i in range(60 + k)] for k in range(count)]
        runner.run(0, [row[:50] for row in rows], [0] * count)
        for place in range(50, 60):
            got = runner.run(0, [[row[place]] for row in rows], [place] * count)
        expected = torch.stack([plain(model, row[:60]) for row in rows])
        torch.testing.assert_close(got, expected, atol=2e-5, rtol=1e-4)
    assert recorder.replayed > 2 * recorder.recorded


def test_few_shapes_are_recorded() -> None:
    runner, recorder = replaying()
    runner.run(0, [[3]] * 16, [CONTEXT - 1] * 16)
    before = recorder.recorded
    for count in (*range(16, 0, -1), *range(1, 17)):
        for place in range(CONTEXT):
            runner.run(0, [[3]] * count, [place] * count)
    assert recorder.recorded - before == 5 * 2 - 1


def test_padding_beside_a_row_touches_no_row_that_waits() -> None:
    """Steps of two rows leave what a third holds alone only where it has a slot of its own."""
    runner, _ = replaying()
    rows = [[(3 * i + k) % VOCABULARY for i in range(20)] for k in range(3)]
    runner.run(0, [row[:-1] for row in rows], [0] * 3)
    runner.run(0, [row[-1:] for row in rows], [19] * 3)
    kept = runner.slots.read(1, 0, 20)
    runner.run(0, [[7]], [20])
    torch.testing.assert_close(runner.slots.read(1, 0, 20), kept)


class Waits(TorchDispatchMode):
    """Operations for which a host waits for its device, so that no CUDA graph can hold them."""

    NAMES = ("aten::lift_fresh", "aten::_local_scalar_dense", "aten::nonzero", "aten::_unique2")

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function.name() in self.NAMES:
            self.seen.append(function.name())
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_recorded_step_never_waits_for_the_device(family: str) -> None:
    steps: list[Callable[[], None]] = []

    def keep(work: Callable[[], None]) -> Callable[[], object]:
        steps.append(work)
        work()
        return work

    Runner(build(family), context_limit=CONTEXT, recording=lambda: keep)
    with torch.inference_mode(), Waits() as waits:
        steps[-1]()
    assert waits.seen == []
    with Waits() as waits:
        torch.tensor([1, 2]).sum().item()
    assert len(waits.seen) == 2


def a_recording_that_replays_nothing(work: Callable[[], None]) -> Callable[[], object]:
    work()
    return lambda: None


def a_recording_that_fails(work: Callable[[], None]) -> Callable[[], object]:
    raise RuntimeError("operation not permitted when stream is capturing")


def no_recorder() -> Record:
    raise RuntimeError("no pool of memory")


@pytest.mark.parametrize(
    "recording",
    [lambda: a_recording_that_replays_nothing, lambda: a_recording_that_fails, no_recorder],
)
def test_recordings_that_do_not_work_are_warned_of_and_not_used(recording: Recording) -> None:
    with pytest.warns(RuntimeWarning, match="not replayed"):
        runner = Runner(build("Llama"), context_limit=CONTEXT, recording=recording)
    rows = [[3, 4, 5], [6, 7, 8]]
    for place in range(3):
        got = runner.run(0, [[row[place]] for row in rows], [place] * 2)
    expected = torch.stack([plain(MODEL, row) for row in rows])
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
