"""What is wrong with a launch: unknown flags, missing hooks, values at odds with FOCUS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import focus.integrations.slime as hooks
from focus.integrations.slime._check.launch import Given, Launch
from focus.integrations.slime._check.table import FlagTable, ReadFlag
from focus.integrations.slime._refusals import Finding, findings, wrong_scales

__all__ = ("Report", "judge")

_HOOKS = f"{hooks.__name__}."
_HOOK_OF = {
    "--custom-reward-post-process-path": "preserve_advantages",
    "--custom-advantage-function-path": "advantages",
    "--custom-pg-loss-reducer-function-path": "sum_policy_tokens",
}


@dataclass(frozen=True, slots=True)
class Report:
    """The verdict on one launch.

    Attributes:
        findings: what must change.
        notes: what to know.
    """

    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...]


def judge(launch: Launch, table: FlagTable) -> Report:
    """Check one launch; values that only a running shell knows are not judged."""
    args = _namespace(launch, table)
    found = [
        *_unreadable(launch, table),
        *_missing_hook(args),
        *(finding for given in launch.flags for finding in _wrong_hook(given)),
        *findings(args),
        *_batches(args),
        *_evaluation(args),
        *_machines(args),
    ]
    return Report(tuple(dict.fromkeys(found)), tuple(_notes(launch, args, table)))


def _namespace(launch: Launch, table: FlagTable) -> SimpleNamespace:
    """Slime's namespace as far as FOCUS reads it; what cannot be known is left out."""
    values: dict[str, Any] = {flag.name: flag.default for flag in table.read.values()}
    for given in launch.flags:
        read = table.read.get(given.flag)
        if read is None:
            continue
        if any("$" in word or "`" in word for word in given.values):
            values.pop(read.name, None)
        else:
            values |= _read(read, given, table.values[given.flag])
    steps, prompts = values.get("num_steps_per_rollout"), values.get("rollout_batch_size")
    if steps and prompts and values.get("global_batch_size", 0) is None:
        values["global_batch_size"] = prompts * values.get("n_samples_per_prompt", 1) // steps
    return SimpleNamespace(**values)


def _read(read: ReadFlag, given: Given, count: str) -> Mapping[str, Any]:
    """The flag's value as Slime's parser reads it; nothing where it cannot."""
    if count == "0":
        return {read.name: read.set}
    reader = {"int": int, "float": float}.get(read.type, str)
    try:
        found = [reader(word) for word in given.values]
    except ValueError:
        return {}
    if count == "1":
        return {read.name: found[0]} if len(found) == 1 else {}
    return {read.name: found}


def _unreadable(launch: Launch, table: FlagTable) -> Iterator[Finding]:
    if launch.stray:
        yield Finding(launch.program, f"{' '.join(launch.stray)!r} belongs to no flag")
    for given in launch.flags:
        if not table.knows(given.flag):
            near = table.nearest(given.flag)
            yield Finding(
                given.flag,
                "unknown to Slime, which ignores it without a word"
                + (f"; did you mean {near}?" if near else ""),
            )
        elif given.flag in table.values:
            yield from _count(given, table)


def _count(given: Given, table: FlagTable) -> Iterator[Finding]:
    wanted, found = table.values[given.flag], len(given.values)
    if wanted == "0" and found:
        yield Finding(given.flag, f"takes no value, got {' '.join(given.values)!r}")
    elif wanted in ("1", "+") and not found:
        yield Finding(given.flag, "its value is missing")
    elif wanted == "1" and found > 1:
        yield Finding(given.flag, f"takes one value, got {' '.join(given.values)!r}")
    elif _is_no_number(given, table.read.get(given.flag)):
        yield Finding(given.flag, f"{' '.join(given.values)!r} is not a number")


def _is_no_number(given: Given, read: ReadFlag | None) -> bool:
    if read is None or read.type not in ("int", "float"):
        return False
    if any("$" in word or "`" in word for word in given.values):
        return False
    return not _read(read, given, "+")


def _missing_hook(args: Any) -> Iterator[Finding]:
    if getattr(args, "custom_generate_function_path", "") is None:
        yield Finding(
            "--custom-generate-function-path",
            "not set, so Slime samples by itself; name your module's generate",
        )


def _wrong_hook(given: Given) -> Iterator[Finding]:
    """A path that Slime would fail to import, or would import as the wrong function."""
    is_hook = given.flag in _HOOK_OF or given.flag == "--custom-generate-function-path"
    if not is_hook or len(given.values) != 1 or "$" in given.values[0]:
        return
    path, wanted = given.values[0], _HOOK_OF.get(given.flag)
    if ":" in path or "/" in path or "." not in path:
        yield Finding(given.flag, f"{path!r} is no dotted path such as train_slime.generate")
    elif path.startswith(_HOOKS) and path != f"{_HOOKS}{wanted}":
        yield Finding(
            given.flag,
            f"{path} is not the hook for this; use {_HOOKS}{wanted}"
            if wanted
            else f"{path} builds hooks and is none; name your module's generate",
        )


def _batches(args: Any) -> Iterator[Finding]:
    if getattr(args, "global_batch_size", 0) is None:
        yield Finding(
            "--global-batch-size", "not set; give --rollout-batch-size x --n-samples-per-prompt"
        )
    if getattr(args, "n_samples_per_prompt", 1) > 1:
        yield Finding(
            "--n-samples-per-prompt",
            f"{args.n_samples_per_prompt} separate trees of one prompt, which share no evidence; "
            "use 1 and a larger token budget",
        )
    if getattr(args, "max_tokens_per_gpu", 0) is None:
        yield Finding("--max-tokens-per-gpu", "not set, and dynamic batches need it")


def _evaluation(args: Any) -> Iterator[Finding]:
    if getattr(args, "eval_interval", 0) is None:
        yield Finding(
            "--eval-interval",
            "not set, so nothing is ever evaluated; add it with --eval-config, whose data sets "
            "name your module's evaluate",
        )
    elif getattr(args, "eval_config", "") is None and getattr(args, "eval_prompt_data", "") is None:
        yield Finding("--eval-config", "not set, and --eval-interval needs data sets")
    agent = {"temperature": getattr(args, "rollout_temperature", None), "top_p": 1.0, "top_k": -1}
    for name, used in agent.items():
        asked = getattr(args, f"eval_{name}", None)
        if asked is not None and used is not None and asked != used:
            yield Finding(
                f"--eval-{name.replace('_', '-')}",
                f"{asked} is not used: evaluation samples as the agent does, with {used}",
            )


def _machines(args: Any) -> Iterator[Finding]:
    """Together on fewer GPUs than Slime assumes a node to have."""
    node, actor = (getattr(args, n, None) for n in ("num_gpus_per_node", "actor_num_gpus_per_node"))
    if getattr(args, "colocate", False) and node and actor and actor < node:
        yield Finding(
            "--num-gpus-per-node",
            f"{node}, but --colocate shares {actor} GPUs per node; set it to {actor}",
        )


def _notes(launch: Launch, args: Any, table: FlagTable) -> Iterator[Finding]:
    given = {flag.flag for flag in launch.flags}
    for flag in sorted(given & table.newer.keys()):
        yield Finding(flag, table.newer[flag])
    yield from wrong_scales(args)
    if "--clip-grad" not in given:
        yield Finding(
            "--clip-grad",
            "not set, so it is 1.0: a sum over tokens has a larger norm and is cut at every step",
        )
    if getattr(args, "eval_prompt_data", None) and getattr(args, "eval_config", "") is None:
        yield Finding("--eval-prompt-data", "evaluates through the training hook, unbranched")
    if getattr(args, "save", "") is None:
        yield Finding("--save", "not set, so a run that stops starts over")
    if getattr(args, "advantage_estimator", "") == "ppo":
        yield Finding("--advantage-estimator", 'ppo needs make_generate(..., critic="slime")')
    if launch.program == "train_async.py":
        yield Finding(
            "train_async.py",
            "collects a round before the last one is trained; a tree whose weights change "
            "midway is refused",
        )
