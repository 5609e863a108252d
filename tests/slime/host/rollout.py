"""Slime's rollout loop: prompts in groups, one task each, on a loop of its own thread."""

from __future__ import annotations

import asyncio
import copy
import importlib
import inspect
import json
import threading
import uuid
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, ClassVar

from .sample import Sample

__all__ = (
    "DataSource",
    "GenerateState",
    "SlimeLoop",
    "check_rollout_ids",
    "evaluate_dataset",
    "generate_rollout",
    "load_function",
)


def load_function(path: str) -> Any:
    """The attribute behind the last dot of a module path."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


class SlimeLoop:
    """One background thread with one event loop, as the rollout manager has."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class GenerateState:
    """One per process; later arguments are ignored."""

    _only: ClassVar[GenerateState | None] = None

    def __new__(cls, args: Any) -> GenerateState:
        if cls._only is None:
            cls._only = super().__new__(cls)
            cls._only.aborted = False
            cls._only.sampling_params = {
                "temperature": args.rollout_temperature,
                "top_p": args.rollout_top_p,
                "top_k": args.rollout_top_k,
                "max_new_tokens": args.rollout_max_response_len,
                "stop": args.rollout_stop,
                "stop_token_ids": args.rollout_stop_token_ids,
                "skip_special_tokens": True,
                "no_stop_trim": True,
                "spaces_between_special_tokens": False,
            }
        return cls._only

    aborted: bool
    sampling_params: dict[str, Any]

    @classmethod
    def forget(cls) -> None:
        cls._only = None


class DataSource:
    """Prompts in order, again from the start when they run out; its position is saved."""

    def __init__(self, args: Any, rows: Sequence[dict[str, Any]]) -> None:
        self._args = args
        self._rows = rows
        self.state = {"offset": 0, "index": 0, "group": 0}

    def get(self, count: int) -> list[list[Sample]]:
        groups = []
        for _ in range(count):
            row = self._rows[self.state["offset"] % len(self._rows)]
            self.state["offset"] += 1
            prompt = Sample(
                prompt=row["problem"],
                label=row.get("solution"),
                metadata=dict(row.get("metadata", {})),
            )
            group = []
            for _ in range(self._args.n_samples_per_prompt):
                sample = copy.deepcopy(prompt)
                sample.group_index, sample.index = self.state["group"], self.state["index"]
                self.state["index"] += 1
                group.append(sample)
            self.state["group"] += 1
            groups.append(group)
        return groups

    def save(self, rollout_id: int) -> None:
        path = self._path(self._args.save, rollout_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.state))

    def load(self, rollout_id: int) -> None:
        """A missing file is logged by Slime and otherwise passed over."""
        path = self._path(self._args.load, rollout_id)
        if path.exists():
            self.state = json.loads(path.read_text())

    @staticmethod
    def _path(folder: str, rollout_id: int) -> Path:
        return Path(folder) / "rollout" / f"global_dataset_state_dict_{rollout_id}.pt"


async def generate_rollout(args: Any, source: DataSource) -> list[list[Any]]:
    """One training round: `rollout_batch_size` groups, sorted by their first index."""
    state = GenerateState(args)
    pending = {
        asyncio.create_task(_group(args, group, dict(state.sampling_params)))
        for group in source.get(args.over_sampling_batch_size)
    }
    data: list[list[Any]] = []
    while len(data) < args.rollout_batch_size:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            group = task.result()
            assert len(group) == args.n_samples_per_prompt
            first = _first(group)
            str(first.prompt) + first.response
            data.append(group)
    assert len(data) == args.rollout_batch_size
    data.sort(key=lambda group: _first(group).index)
    return data


def _first(group: list[Any]) -> Sample:
    return group[0][0] if isinstance(group[0], list) else group[0]


async def _group(args: Any, group: list[Sample], params: dict[str, Any]) -> list[Any]:
    if GenerateState(args).aborted:
        return group
    for sample in group:
        sample.session_id = sample.session_id or str(uuid.uuid4())
    return await asyncio.gather(*(_one(args, sample, dict(params)) for sample in group))


async def _one(
    args: Any, sample: Sample, params: dict[str, Any], *, evaluation: bool = False
) -> Any:
    function = load_function(sample.generate_function_path or args.custom_generate_function_path)
    if "evaluation" in inspect.signature(function).parameters:
        made = await function(args, sample, params, evaluation=evaluation)
    else:
        made = await function(args, sample, params)
    several = made if isinstance(made, list) else [made]
    assert all(type(one) is Sample for one in several), "neither a Sample nor a list of them"
    if any(one.status is Sample.Status.ABORTED for one in several):
        return made
    for one in several:
        if one.reward is None:
            raise NotImplementedError("a reward is missing and there is no reward model")
    return made


async def evaluate_dataset(
    args: Any, rows: Sequence[dict[str, Any]], *, path: str | None, copies: int = 1, **params: Any
) -> dict[str, list[Any]]:
    """One evaluation data set: all prompts share one params dict; lists are flattened."""
    shared = {**GenerateState(args).sampling_params, **params}
    before = dict(shared)
    tasks = []
    for number in range(len(rows) * copies):
        row = rows[number // copies]
        sample = Sample(index=number, prompt=row["problem"], label=row.get("solution"))
        sample.generate_function_path = path
        tasks.append(asyncio.create_task(_one(args, sample, shared, evaluation=True)))
    data: list[Sample] = []
    for task in asyncio.as_completed(tasks):
        made = await task
        data += made if isinstance(made, list) else [made]
    assert shared == before, "the params that all prompts share were changed"
    data.sort(key=lambda sample: sample.index)
    for sample in data:
        str(sample.prompt) + sample.response
    return {
        "rewards": [sample.reward for sample in data],
        "truncated": [sample.status is Sample.Status.TRUNCATED for sample in data],
        "samples": data,
    }


def check_rollout_ids(node: Any, depth: int = 0) -> None:
    """Samples that came from one prompt as a list must share a rollout_id."""
    if isinstance(node, Sample):
        return
    assert isinstance(node, list), f"a {type(node).__name__} among the samples"
    if node and isinstance(node[0], Sample):
        if depth >= 2 and len(node) > 1:
            identities = {sample.rollout_id for sample in node}
            assert None not in identities, "a sibling has no rollout_id"
            assert len(identities) == 1, f"siblings with rollout_ids {identities}"
        return
    for item in node:
        check_rollout_ids(item, depth + 1)
