"""Killed anywhere and started again: nothing applied twice, nothing dead read as accepted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest

from focus import Search
from focus.errors import ConfigError, StoreError
from focus.integrations import JsonlDirectory
from focus.integrations.slime import accept_saved, make_generate
from focus.records import CriticRecord, read_critic_records
from focus.records.jsonl import accepted_attempts
from focus.testing.envs import walk_script
from focus.testing.policies import ScriptedPolicy

from .forest import ToyModel
from .host.arguments import slime_args
from .host.job import Job, Killed, last_saved
from .walks import STEPS, Walks, hook_module, prompt

ROUNDS, PROMPTS = 3, 2
ROWS = [{"problem": f"Walk {index}.", "solution": "x"} for index in range(5)]


class Mortal(JsonlDirectory):
    """Dies right after the n-th file was written."""

    def __init__(self, path: Path, *, dies_after: int | None = None) -> None:
        super().__init__(path)
        self._left = dies_after

    def write(self, records: Any) -> Any:
        written = super().write(records)
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                raise Killed
        return written


class Drill:
    """One job in one folder, run by one process after another."""

    def __init__(self, folder: Path, *, save_every: int = 1, eval_interval: int | None = None):
        self.sink = folder / "targets"
        self.save_every = save_every
        self.args = slime_args(
            rollout_batch_size=PROMPTS,
            over_sampling_batch_size=PROMPTS,
            global_batch_size=PROMPTS,
            num_rollout=ROUNDS,
            eval_interval=eval_interval,
            save=str(folder / "checkpoints"),
        )
        self.processes = 0

    def process(
        self,
        *,
        at: tuple[str, int] | None = None,
        after_requests: int | None = None,
        after_files: int | None = None,
    ) -> Job | None:
        """Run until done or killed; None when it was killed."""
        left = [after_requests]

        class Counting(ScriptedPolicy):
            async def generate(self, *args: Any, **options: Any) -> Any:
                if left[0] is not None:
                    left[0] -= 1
                    if left[0] < 0:
                        raise Killed
                return await super().generate(*args, **options)

        walks = Walks(
            policy=lambda: Counting(walk_script(STEPS)), search=Search.two_phase(tokens=60)
        )
        sink = Mortal(self.sink, dies_after=after_files)

        def point(name: str, round: int) -> None:
            if (name, round) == at:
                raise Killed

        generate = make_generate(walks, profile="token_chunk", critic_sink=sink)
        with hook_module(generate=generate) as module:
            self.args.custom_generate_function_path = f"{module}.generate"
            job = Job(
                self.args,
                ROWS,
                ToyModel(vocabulary=257),
                process=self.processes,
                save_every=self.save_every,
                at=point,
            )
            self.processes += 1
            self.args.load = self.args.save
            try:
                job.run()
            except BaseException as error:
                if not _was_killed(error):
                    raise
                return None
        return job

    def accepted(self) -> list[CriticRecord]:
        return list(read_critic_records(self.sink))

    def check_end(self, job: Job | None) -> None:
        """Every round is in the model once, and its records are those of the batch applied."""
        assert job is not None
        accept_saved(self.sink, self.args.save)
        wanted = [list(range(r * PROMPTS, (r + 1) * PROMPTS)) for r in range(ROUNDS)]
        assert [step["prompts"] for step in job.applied] == wanted
        found = Counter(
            (r.source.identity.round, r.source.identity.attempt, r.source.problem)
            for r in self.accepted()
        )
        attempts = {round: attempt for round, attempt, _ in found}
        assert {(round, problem) for round, _, problem in found} == {
            (round, problem) for round, prompts in enumerate(wanted) for problem in prompts
        }
        assert len(attempts) == len({(round, attempt) for round, attempt, _ in found}) == ROUNDS


def _was_killed(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(map(_was_killed, error.exceptions))
    return isinstance(error, Killed)


def check_between(drill: Drill) -> None:
    """What a dead process collected beyond its last checkpoint does not count."""
    marks = accepted_attempts(drill.sink) if drill.sink.exists() else {}
    counted = {round for round, attempt in marks.items() if attempt is not None}
    assert counted <= set(range(last_saved(drill.args) + 1))


def test_a_run_without_trouble(tmp_path: Path) -> None:
    drill = Drill(tmp_path)
    drill.check_end(drill.process())


@pytest.mark.parametrize("eval_interval", [None, 1])
@pytest.mark.parametrize("save_every", [1, 2])
@pytest.mark.parametrize("round", range(ROUNDS))
@pytest.mark.parametrize("point", ["start", "collected", "stepped", "saved"])
def test_killed_between_the_stages_of_a_round(
    point: str, round: int, save_every: int, eval_interval: int | None, tmp_path: Path
) -> None:
    drill = Drill(tmp_path, save_every=save_every, eval_interval=eval_interval)
    assert drill.process(at=(point, round)) is None
    check_between(drill)
    drill.check_end(drill.process())


@pytest.mark.parametrize("after", [0, 1, 7, 19, 40, 71])
def test_killed_while_collecting(after: int, tmp_path: Path) -> None:
    drill = Drill(tmp_path)
    assert drill.process(after_requests=after) is None
    check_between(drill)
    drill.check_end(drill.process())


@pytest.mark.parametrize("after", range(1, ROUNDS * PROMPTS + 1))
def test_killed_between_the_sink_and_the_return(after: int, tmp_path: Path) -> None:
    drill = Drill(tmp_path)
    assert drill.process(after_files=after) is None
    check_between(drill)
    drill.check_end(drill.process())


def test_killed_again_and_again(tmp_path: Path) -> None:
    drill = Drill(tmp_path, save_every=2)
    for kill in (
        {"after_files": 1},
        {"at": ("stepped", 0)},
        {"after_requests": 30},
        {"at": ("stepped", 1)},
        {"at": ("saved", 1)},
        {"after_files": 2},
        {"at": ("collected", 2)},
    ):
        assert drill.process(**kill) is None  # type: ignore[arg-type]
        check_between(drill)
    drill.check_end(drill.process())


def test_a_lost_data_position_is_found_out(tmp_path: Path) -> None:
    drill = Drill(tmp_path)
    drill.process(at=("start", 2))
    (tmp_path / "checkpoints" / "rollout" / "global_dataset_state_dict_1.pt").unlink()
    with pytest.raises(ConfigError, match=r"--load: .*round 2, the prompts with round 0"):
        drill.process()


def test_from_scratch_into_the_same_folders_is_a_new_attempt(tmp_path: Path) -> None:
    drill = Drill(tmp_path)
    drill.process()
    drill.args.load = None
    job = drill.process()
    drill.check_end(job)
    assert {r.source.identity.attempt for r in drill.accepted()} == {1}


def test_evaluation_accepts_the_last_round_too(tmp_path: Path) -> None:
    drill = Drill(tmp_path, eval_interval=1)
    drill.process()
    assert accepted_attempts(drill.sink) == dict.fromkeys(range(ROUNDS), 0)


def test_without_evaluation_the_launch_script_accepts_the_last_round(tmp_path: Path) -> None:
    drill = Drill(tmp_path)
    drill.process()
    assert accepted_attempts(drill.sink) == {0: 0, 1: 0}
    assert accept_saved(drill.sink, drill.args.save) == (2,)
    assert accept_saved(drill.sink, drill.args.save) == ()
    with pytest.raises(StoreError, match="no directory of FOCUS records"):
        accept_saved(tmp_path / "checkpoints", drill.args.save)


def test_without_checkpoints_a_round_counts_when_it_is_handed_over(tmp_path: Path) -> None:
    sink = JsonlDirectory(tmp_path / "targets")
    hook = make_generate(Walks(), profile="token_chunk", critic_sink=sink)
    for index in range(6):
        anyio.run(hook, slime_args(), prompt(index), {})
    assert accepted_attempts(sink.path) == {0: 0}
