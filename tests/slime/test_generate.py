"""The training hook: one prompt in, samples of one rollout out, records on disk first."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from focus import Problem, Search
from focus.credit import Credit, Grpo
from focus.errors import (
    CollectionFailed,
    ConfigError,
    EnvError,
    ProblemError,
    RecordError,
    StoreError,
)
from focus.integrations import JsonlDirectory
from focus.integrations.slime import make_generate, preserve_advantages, to_sample
from focus.policies.slime import SlimePolicy
from focus.records import ActorRecord, RecordKey, read_critic_records
from focus.testing.envs import WalkEnv, walk_script
from focus.testing.policies import ScriptedPolicy
from focus.tree import Identity

from .host.arguments import slime_args
from .host.sample import Sample
from .walks import STEPS, Walks, prompt

pytestmark = pytest.mark.anyio

PARAMS: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "max_new_tokens": 4096}


def test_parameters_have_the_names_that_slime_looks_for() -> None:
    names = list(inspect.signature(make_generate(Walks(), profile="token_chunk")).parameters)
    assert names == ["args", "sample", "sampling_params", "evaluation"]


async def test_samples_of_a_tree_are_one_rollout() -> None:
    walks = Walks()
    source = prompt(5, metadata={"source_name": "walks"})
    made = await make_generate(walks, profile="token_chunk")(slime_args(), source, PARAMS)
    assert len(made) > 10
    assert all(type(sample) is Sample for sample in made)
    assert {(s.rollout_id, s.index, s.group_index) for s in made} == {(5, 5, 5)}
    assert {s.label for s in made} == {"secret"}
    assert {s.metadata["source_name"] for s in made} == {"walks"}
    assert len({id(s.metadata) for s in made}) == len(made)
    assert source == prompt(5, metadata={"source_name": "walks"})
    (given,) = walks.given
    assert isinstance(given[0], SlimePolicy)
    assert given[1] == Problem(
        id=5, prompt="Walk 5.", label="secret", metadata={"source_name": "walks"}
    )


async def test_a_rollout_id_of_slimes_own_is_kept() -> None:
    hook = make_generate(Walks(), profile="token_chunk")
    made = await hook(slime_args(), prompt(5, rollout_id=77), PARAMS)
    assert {sample.rollout_id for sample in made} == {77}


async def test_every_sample_is_prefix_then_segment_with_its_own_advantage() -> None:
    made = await make_generate(Walks(), profile="token_chunk")(slime_args(), prompt(0), PARAMS)
    policy = ScriptedPolicy(walk_script(STEPS))
    root = policy.render(Problem(id=0, prompt="Walk 0.").messages)
    for sample in made:
        size = sample.response_length
        assert 1 <= size <= 3
        assert len(sample.loss_mask) == len(sample.rollout_log_probs) == size
        assert set(sample.loss_mask) == {1}
        assert tuple(sample.tokens[: len(root)]) == root
        assert sample.response == policy.decode(sample.tokens[-size:])
        assert sample.weight_versions == ["scripted"]
        assert type(sample.reward) is float
        assert sample.teacher_log_probs is None
    assert {sample.reward > 0 for sample in made} == {True, False}


async def test_success_is_the_mean_outcome_of_rollouts_that_nothing_selected() -> None:
    made = await make_generate(Walks(), profile="token_chunk")(slime_args(), prompt(0), PARAMS)
    problem = Problem(id=0, prompt="Walk 0.", label="secret")
    collector = Walks()(ScriptedPolicy(walk_script(STEPS)), problem)
    async with collector:
        again = await collector.collect(problem, identity=Identity(run="slime"))
    assert [list(record.tokens) for record in again.actor] == [sample.tokens for sample in made]
    assert len(again.opening_outcomes) == 4
    assert {s.metadata["raw_reward"] for s in made} == {fmean(again.opening_outcomes)}


async def test_truncated_marks_leaves_out_of_allowance_only() -> None:
    hook = make_generate(Walks(allowance=9), profile="token_chunk")
    made = await hook(slime_args(), prompt(0), PARAMS)
    depth = {len(s.tokens): s.status for s in made}
    longest = max(depth)
    assert depth[longest] is Sample.Status.TRUNCATED
    assert {status for size, status in depth.items() if size < longest} == {Sample.Status.COMPLETED}


async def test_path_packing_brings_one_weight_per_token() -> None:
    hook = make_generate(Walks(), profile="token_chunk", packing="path")
    made = await hook(slime_args(), prompt(0), PARAMS)
    assert all(len(s.teacher_log_probs) == s.response_length for s in made)
    assert any(len(set(s.teacher_log_probs)) > 1 for s in made)
    segments = await make_generate(Walks(), profile="token_chunk")(slime_args(), prompt(0), PARAMS)
    assert len(made) < len(segments)
    assert sum(sum(s.loss_mask) for s in made) == sum(sum(s.loss_mask) for s in segments)


@pytest.mark.parametrize("packing", ["segment", "path"])
async def test_the_hooks_packing_rules(packing: Any) -> None:
    plain = make_generate(Walks(), profile="token_chunk", packing=packing)
    other = make_generate(
        Walks(packing="path" if packing == "segment" else "segment"),
        profile="token_chunk",
        packing=packing,
    )
    whole = make_generate(Walks(packing="tree"), profile="token_chunk", packing=packing)
    args = slime_args()
    made = await plain(args, prompt(0), PARAMS)
    assert made == await other(args, prompt(0), PARAMS)
    assert made == await whole(args, prompt(0), PARAMS)


class Nothing:
    """An estimator that trains no edge."""

    prior_strength = None

    def estimate(self, tree: Any, *, allow_partial: bool = False) -> Any:
        return Credit(estimator="nothing", advantages={})


@pytest.mark.parametrize("packing", ["segment", "path"])
async def test_a_tree_without_a_trainable_token_gives_a_masked_placeholder(packing: Any) -> None:
    hook = make_generate(Walks(credit=Nothing()), profile="token_chunk", packing=packing)
    (sample,) = await hook(slime_args(), prompt(3), PARAMS)
    assert (sample.loss_mask, sample.rollout_log_probs, sample.reward) == ([0], [0.0], 0.0)
    assert sample.response == ""
    assert sample.response_length == 1 < len(sample.tokens)
    assert (sample.rollout_id, sample.index) == (3, 3)
    assert sample.teacher_log_probs == ([0.0] if packing == "path" else None)


async def test_records_are_on_disk_when_samples_are_returned(tmp_path: Path) -> None:
    sink = JsonlDirectory(tmp_path / "a" / "targets")
    hook = make_generate(Walks(), profile="token_chunk", critic_sink=sink)
    assert not (tmp_path / "a").exists()
    await hook(slime_args(), prompt(6), PARAMS)
    records = list(read_critic_records(sink.path))
    assert {r.source.problem for r in records} == {6}
    assert {r.source.identity.round for r in records} == {1}
    assert {r.source.identity.attempt for r in records} == {0}
    assert all("secret" not in r.context.text for r in records)


async def test_no_samples_without_their_records(tmp_path: Path) -> None:
    sink = JsonlDirectory(tmp_path / "targets")
    hook = make_generate(Walks(), profile="token_chunk", critic_sink=sink)
    await hook(slime_args(), prompt(0), PARAMS)
    for file in sink.path.iterdir():
        file.rename(file.with_suffix(".moved"))
    sink.path.rename(tmp_path / "elsewhere")
    (tmp_path / "targets").write_text("a file")
    with pytest.raises(StoreError, match="problem 1"):
        await hook(slime_args(), prompt(1), PARAMS)


async def test_a_file_where_the_directory_should_be_stops_before_any_request(
    tmp_path: Path,
) -> None:
    (tmp_path / "targets").write_text("something else")
    walks = Walks()
    sink = JsonlDirectory(tmp_path / "targets")
    hook = make_generate(walks, profile="token_chunk", critic_sink=sink)
    with pytest.raises(StoreError, match="targets"):
        await hook(slime_args(), prompt(0), PARAMS)
    assert walks.requests == 0
    assert (tmp_path / "targets").read_text() == "something else"


async def test_another_runs_directory_stops_before_any_request(tmp_path: Path) -> None:
    first = make_generate(
        Walks(), profile="token_chunk", critic_sink=JsonlDirectory(tmp_path / "targets")
    )
    await first(slime_args(save="runs/one"), prompt(0), PARAMS)
    before = {file.name: file.read_bytes() for file in (tmp_path / "targets").iterdir()}
    walks = Walks()
    second = make_generate(
        walks, profile="token_chunk", critic_sink=JsonlDirectory(tmp_path / "targets")
    )
    with pytest.raises(StoreError, match="belongs to run"):
        await second(slime_args(save="runs/two"), prompt(0), PARAMS)
    assert walks.requests == 0
    assert {f.name: f.read_bytes() for f in (tmp_path / "targets").iterdir()} == before


async def test_two_trees_of_one_index_never_become_one_prompt(tmp_path: Path) -> None:
    hook = make_generate(Walks(), profile="token_chunk")
    twice = await hook(slime_args(), prompt(2), PARAMS)
    assert preserve_advantages(slime_args(), twice)
    twice += await hook(slime_args(), prompt(2), PARAMS)
    with pytest.raises(RecordError, match="prompt 2: two trees"):
        preserve_advantages(slime_args(), twice)
    sink = JsonlDirectory(tmp_path / "targets")
    stored = make_generate(Walks(), profile="token_chunk", critic_sink=sink)
    await stored(slime_args(), prompt(2), PARAMS)
    with pytest.raises(StoreError, match=r"problem 2.*written before"):
        await stored(slime_args(), prompt(2), PARAMS)


async def test_a_prompt_over_the_context_is_named() -> None:
    walks = Walks(policy=lambda: ScriptedPolicy(walk_script(STEPS), context_limit=5))
    with pytest.raises(ProblemError, match=r"problem 4.*fills the context"):
        await make_generate(walks, profile="token_chunk")(slime_args(), prompt(4), PARAMS)
    assert walks.requests == 0


class Unparsable(WalkEnv):
    async def reset(self, problem: Problem) -> Any:
        raise ProblemError("the reference 'secret' holds no answer")


async def test_an_unparsable_label_is_named_with_its_prompt() -> None:
    walks = Walks(env=Unparsable)
    with pytest.raises(ProblemError, match="problem 4: the reference"):
        await make_generate(walks, profile="token_chunk")(slime_args(), prompt(4), PARAMS)


async def test_what_collector_for_raises_is_the_cause() -> None:
    def broken(policy: Any, problem: Problem) -> Any:
        raise KeyError("solution")

    with pytest.raises(EnvError, match="problem 4: collector_for raised KeyError") as caught:
        await make_generate(broken, profile="token_chunk")(slime_args(), prompt(4), PARAMS)
    assert isinstance(caught.value.__cause__.__cause__, KeyError)  # type: ignore[union-attr]


async def test_something_else_than_a_collector_is_refused() -> None:
    hook = make_generate(lambda policy, problem: None, profile="token_chunk")  # type: ignore[arg-type,return-value]
    with pytest.raises(ConfigError, match="NoneType, not a Collector"):
        await hook(slime_args(), prompt(4), PARAMS)


@pytest.mark.parametrize("index", [None, True, "4"])
async def test_a_sample_without_a_number_is_refused(index: Any) -> None:
    hook = make_generate(Walks(), profile="token_chunk")
    with pytest.raises(ProblemError, match="index"):
        await hook(slime_args(), prompt(index), PARAMS)


@pytest.mark.parametrize("text", ["", [], [{"role": "user"}], [3], 7])
async def test_a_prompt_that_is_none_is_refused(text: Any) -> None:
    source = prompt(1)
    source.prompt = text
    with pytest.raises(ProblemError, match="problem 1"):
        await make_generate(Walks(), profile="token_chunk")(slime_args(), source, PARAMS)


async def test_messages_are_prompts_too() -> None:
    walks = Walks()
    source = prompt(1)
    source.prompt = [{"role": "system", "content": "Walk."}, {"role": "user", "content": "Go."}]
    await make_generate(walks, profile="token_chunk")(slime_args(), source, PARAMS)
    assert [m.role for m in walks.given[0][1].messages] == ["system", "user"]


class FailsAtNinth(ScriptedPolicy):
    async def generate(self, *args: Any, **options: Any) -> Any:
        reply = await super().generate(*args, **options)
        if self.requests == 9:
            raise KeyError("boom")
        return reply


async def test_a_failed_expansion_raises_and_leaves_nothing(tmp_path: Path) -> None:
    sink = JsonlDirectory(tmp_path / "targets")
    walks = Walks(policy=lambda: FailsAtNinth(walk_script(STEPS)))
    with pytest.raises(CollectionFailed, match=r"problem 4.*request="):
        await make_generate(walks, profile="token_chunk", critic_sink=sink)(
            slime_args(), prompt(4), PARAMS
        )
    assert not sink.path.exists()


async def test_allow_partial_trains_on_the_rest(tmp_path: Path) -> None:
    walks = Walks(policy=lambda: FailsAtNinth(walk_script(STEPS)))
    hook = make_generate(walks, profile="token_chunk", allow_partial=True)
    assert len(await hook(slime_args(), prompt(4), PARAMS)) > 5


@pytest.mark.parametrize("turns", [0, 1, 2, 5, 17, 60, 250])
async def test_cancelling_leaves_no_task_and_no_half_file(turns: int, tmp_path: Path) -> None:
    sink = JsonlDirectory(tmp_path / "targets")
    hook = make_generate(Walks(), profile="token_chunk", critic_sink=sink)
    before = asyncio.all_tasks()
    task = asyncio.ensure_future(hook(slime_args(), prompt(0), PARAMS))
    for _ in range(turns):
        await asyncio.sleep(0)
    came_in_time = task.cancel()
    await asyncio.wait([task])
    # A thread writes the file, so how many turns the whole hook takes is not fixed; the
    # longest wait may find it done, and then everything it promised is there.
    assert task.cancelled() or turns >= 60
    if not task.cancelled():
        assert not came_in_time
        assert task.result()
        assert {r.source.problem for r in read_critic_records(sink.path)} == {0}
    assert asyncio.all_tasks() == before
    if sink.path.exists():
        assert {r.source.problem for r in read_critic_records(sink.path)} <= {0}
        assert not [f for f in sink.path.iterdir() if f.name.endswith(".tmp")]
    assert await hook(slime_args(), prompt(1), PARAMS)


async def test_prompts_are_collected_side_by_side() -> None:
    hook = make_generate(Walks(), profile="token_chunk")
    found: dict[int, list[Sample]] = {}

    async def one(index: int) -> None:
        found[index] = await hook(slime_args(), prompt(index), PARAMS)

    async with anyio.create_task_group() as group:
        for index in range(4):
            group.start_soon(one, index)
    alone = await make_generate(Walks(), profile="token_chunk")(slime_args(), prompt(2), PARAMS)
    assert found[2] == alone


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"packing": "tree"}, "packing"),
        ({"critic": "focus"}, "critic"),
        ({"critic": "slime", "packing": "path"}, "segment"),
    ],
)
async def test_a_wrong_option_fails_when_the_module_is_imported(options: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make_generate(Walks(), profile="token_chunk", **options)


async def test_an_unknown_profile_is_named() -> None:
    with pytest.raises(ConfigError, match="profile"):
        await make_generate(Walks(), profile="token_chunks")(slime_args(), prompt(0), PARAMS)


async def test_a_group_of_independent_rollouts_works_too() -> None:
    walks = Walks(search=Search.flat(6), credit=Grpo())
    made = await make_generate(walks, profile="token_chunk")(slime_args(), prompt(0), PARAMS)
    mean = made[0].metadata["raw_reward"]
    assert 0 < mean < 1
    assert mean * 6 == pytest.approx(round(mean * 6))


def record(**changes: Any) -> ActorRecord:
    key = RecordKey(identity=Identity(), problem=1, key="k", policy_version="7", critic_version="c")
    fields: dict[str, Any] = {
        "source": key,
        "nodes": (1,),
        "prefix": tuple(range(5000)),
        "response": (7, 8, 9),
        "loss_mask": (1, 0, 1),
        "log_probs": (-0.5, 0.0, -0.25),
        "weights": (0.75, 0.0, 0.75),
        "outcome": 1.0,
        "truncated": False,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": None,
    }
    return ActorRecord(**{**fields, **changes})


def test_a_long_prefix_is_kept_whole() -> None:
    sample = to_sample(record(), prompt(1))
    assert sample.tokens == [*range(5000), 7, 8, 9]
    assert sample.response_length == 3
    assert sample.loss_mask == [1, 0, 1]
    assert sample.rollout_log_probs == [-0.5, 0.0, -0.25]
    assert sample.reward == 0.75


@pytest.mark.parametrize(
    "changes",
    [
        {"loss_mask": (1, 0)},
        {"log_probs": (-0.5,)},
        {"weights": ()},
        {"prefix": ()},
        {"response": (), "loss_mask": (), "log_probs": (), "weights": ()},
    ],
)
def test_columns_that_do_not_align_never_become_a_sample(changes: Any) -> None:
    with pytest.raises(RecordError, match="problem 1"):
        to_sample(record(**changes), prompt(1))


def test_any_class_of_sample_is_made_anew() -> None:
    source = SimpleNamespace(
        index=3, group_index=3, rollout_id=None, prompt="p", label="l", metadata={"a": [1]}
    )
    made = to_sample(record(), source)
    assert type(made) is SimpleNamespace
    assert made.status == "completed"
    made.metadata["a"].append(2)
    assert source.metadata == {"a": [1]}
