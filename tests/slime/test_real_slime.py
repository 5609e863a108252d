"""The same checks through Slime's own modules, where they can be imported."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from focus.integrations.slime import make_evaluate, make_generate

from .host.arguments import slime_args
from .host.convert import train_data
from .host.parallel import Layout
from .host.sample import Sample as StandIn
from .host.schedule import Schedule
from .walks import Walks

pytestmark = [pytest.mark.slime, pytest.mark.anyio]

EXAMPLES = Path(__file__).parents[2] / "examples" / "math"
Load = Callable[[str], Any]


@pytest.fixture(autouse=True)
def _slime() -> None:
    """Nothing is lent: these tests are about the real modules."""


@pytest.fixture
def load() -> Iterator[Load]:
    """Imports one of Slime's modules, or skips and says which module is missing."""
    before = set(sys.modules)

    def imported(name: str) -> Any:
        with warnings.catch_warnings(action="ignore"):
            try:
                return importlib.import_module(name)
            except ImportError as error:
                pytest.skip(f"{name} cannot be imported: {error}")

    yield imported
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "slime":
            del sys.modules[name]


def prompt(load: Load, index: int) -> Any:
    sample_type = load("slime.utils.types").Sample
    return sample_type(
        index=index, group_index=index, prompt=f"Walk {index}.", label="secret", metadata={}
    )


async def test_its_samples_are_made_and_keep_its_rules(load: Load) -> None:
    source = prompt(load, 3)
    hook = make_generate(Walks(), profile="token_chunk", packing="path")
    made = await hook(slime_args(), source, {})
    assert {type(sample) for sample in made} == {type(source)}
    for sample in made:
        sample._validate_response_metadata_lengths()
        assert sample.effective_response_length == sum(sample.loss_mask)
        again = type(sample).from_dict(sample.to_dict())
        assert again == sample
    assert {sample.status for sample in made} == {type(source).Status.COMPLETED}
    validate = load("slime.observability.rollout_data_utils").validate_rollout_id_annotated
    validate([[made]])


async def test_its_evaluation_gets_one_sample_of_its_own(load: Load) -> None:
    source = prompt(load, 3)
    solved = await make_evaluate(Walks(), profile="token_chunk")(slime_args(), source, {})
    assert type(solved) is type(source)
    assert solved.get_reward_value(SimpleNamespace(reward_key=None)) in {0.0, 1.0}


@pytest.mark.parametrize("layout", [Layout(1, 1), Layout(2, 1), Layout(2, 2)])
async def test_its_schedule_is_the_stand_ins(load: Load, layout: Layout) -> None:
    schedule_of = load("slime.utils.dp_schedule").build_dp_schedule
    hook = make_generate(Walks(), profile="token_chunk")
    made = []
    for index in range(4):
        made += await hook(slime_args(), StandIn(index=index, prompt=f"Walk {index}."), {})
    args = slime_args(max_tokens_per_gpu=128)
    args.balance_data = args.balance_by_flops = False
    data = train_data(args, made)
    lengths = [len(tokens) for tokens in data["tokens"]]
    parallel = {
        "dp_size": layout.dp,
        "cp_size": layout.cp,
        "vpp_size": 1,
        "microbatch_group_size_per_vp_stage": 1,
    }
    partitions, batches, counts, sizes = schedule_of(
        args, parallel, lengths, global_batch_size=4, rollout_indices=data["rollout_ids"]
    )
    ours = Schedule.of(args, lengths, data["rollout_ids"], layout)
    assert sizes == ours.batch_sizes == [4]
    assert sorted(i for part in partitions for i in part) == list(range(len(made)))
    assert sorted(i for part in ours.partitions for i in part) == list(range(len(made)))
    for part, held in zip(partitions, batches, strict=True):
        assert len(held) == counts[0]
        for batch in held:
            tokens = sum(lengths[part[i]] for i in batch)
            assert tokens <= 128 * layout.cp or len(batch) == 1


async def test_its_evaluation_settings_read_our_file(load: Load) -> None:
    module = load("slime.utils.eval_config")
    config = yaml.safe_load((EXAMPLES / "eval_config.yaml").read_text())["eval"]
    args = slime_args()
    args.eval_temperature = args.eval_top_p = args.eval_top_k = None
    (data_set,) = module.build_eval_dataset_configs(
        args, module.ensure_dataset_list(config["datasets"]), {}
    )
    assert data_set.custom_generate_function_path == "train_slime.evaluate"
    assert (data_set.input_key, data_set.label_key) == ("problem", "solution")
