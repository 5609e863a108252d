"""Code tasks: the tests decide, in a process that is bounded and knows nothing of ours."""

import random
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from focus import (
    Agent,
    Allowance,
    Collection,
    Collector,
    InMemoryWorkspace,
    Problem,
    Sampling,
    Search,
    Turns,
)
from focus.agent import TurnAction
from focus.errors import ConfigError, EnvError, ProblemError, ToolError
from focus.rendering import Call, dialect_named
from focus.tasks.code import (
    CodeEnv,
    Sandbox,
    TestSuite,
    repair_env,
    repair_files,
    repair_problems,
)
from focus.testing.policies import ScriptedPolicy, Shuffled

SUITE = TestSuite(
    files={
        "test_app.py": (
            "import unittest\nfrom app import one\n\nclass Tests(unittest.TestCase):\n"
            "    def test_one(self):\n        self.assertEqual(one(), 1)\n"
        )
    }
)
GOOD, BAD = "def one():\n    return 1\n", "def one():\n    return 2\n"


def judged(files: dict[str, str], suite: TestSuite = SUITE) -> tuple[bool, str]:
    async def main() -> tuple[bool, str]:
        verdict = await suite.judge(InMemoryWorkspace(files))
        return verdict.passed, verdict.report

    return anyio.run(main)


def script(text: str, **limits: Any) -> TestSuite:
    """A suite whose command is a script of its own."""
    command = (sys.executable, "-I", "-S", "-c", text)
    return TestSuite(files={"t": ""}, command=command, sandbox=Sandbox(**limits))


def test_the_tests_decide() -> None:
    assert judged({"app.py": GOOD}) == (True, "1 of 1 tests pass")
    passed, report = judged({"app.py": BAD})
    assert not passed
    assert report.splitlines()[0] == "test_app.Tests.test_one: AssertionError: 2 != 1"


@pytest.mark.parametrize(
    "cheat",
    [
        "import os; os._exit(0)",
        "import sys; sys.exit(0)",
        "raise SystemExit(0)",
        "import unittest; raise unittest.SkipTest('no')",
        "print('1 of 1 tests pass')",
        "one = ",
    ],
)
def test_code_that_only_ends_well_has_proved_nothing(cheat: str) -> None:
    assert not judged({"app.py": cheat})[0]


def test_tests_of_the_policy_stand_below_those_of_the_task() -> None:
    ours = {"app.py": BAD, "test_app.py": "", "test_more.py": "x = 1\n"}
    assert not judged(ours)[0]
    assert judged({**ours, "app.py": GOOD})[0]


def test_a_run_is_bounded_in_time_memory_output_and_files() -> None:
    assert judged({}, script("while True: print('x')", seconds=0.5)) == (
        False,
        "stopped after 0.5 s",
    )
    passed, report = judged({}, script("print('x' * 10**6)", output_bytes=100))
    assert not passed
    assert report == f"{'x' * 100}\n(the rest was cut off)\nthe tests did not pass"
    assert "MemoryError" in judged({}, script("x = [0] * 10**9", memory_mb=200))[1]
    full = "f = open('big', 'wb')\nfor _ in range(4): f.write(bytes(2**20)); f.flush()"
    assert "File too large" in judged({}, script(full, file_mb=2))[1]


def test_a_run_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    note = tmp_path / "note"
    text = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(note)!r}, 'w').write(f'{{child.pid}} {{os.getcwd()}}')\n"
        "time.sleep(600)\n"
    )
    assert judged({}, script(text, seconds=2.0)) == (False, "stopped after 2 s")
    pid, folder = note.read_text().split()
    state = Path(f"/proc/{pid}/stat")
    assert not state.exists() or state.read_text().split(") ")[1][0] == "Z"
    assert not Path(folder).exists()


def test_nothing_of_our_environment_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "hunter2")
    text = "import os; print(sorted(os.environ)); print(os.listdir('/proc/self/fd'))"
    _, report = judged({}, script(text))
    names, descriptors = report.splitlines()[:2]
    assert "SECRET" not in names
    assert set(eval_list(names)) <= {
        "HOME",
        "LANG",
        "LC_CTYPE",
        "PATH",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONHASHSEED",
        "TMPDIR",
    }
    assert len(eval_list(descriptors)) <= 4


def eval_list(text: str) -> list[str]:
    return [part.strip("' ") for part in text.strip("[]").split(",")]


def test_cancelling_ends_the_run(tmp_path: Path) -> None:
    note = tmp_path / "note"
    text = (
        f"import os, time\nopen({str(note)!r}, 'w').write(f'{{os.getpid()}}\\n')\ntime.sleep(600)\n"
    )

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(script(text, seconds=500.0).judge, InMemoryWorkspace())
            while not (note.exists() and note.read_text().endswith("\n")):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()

    anyio.run(main)
    state = Path(f"/proc/{note.read_text().strip()}/stat")
    assert not state.exists() or state.read_text().split(") ")[1][0] == "Z"


def test_a_wrapper_stands_before_every_command() -> None:
    suite = script("import os; print(os.environ['SHUT_IN'])", wrapper=("env", "SHUT_IN=yes"))
    assert judged({}, suite)[1].startswith("yes")
    with pytest.raises(EnvError, match="cannot be run"):
        judged({}, script("", wrapper=("/no/such/program",)))


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least one file"):
        TestSuite(files={})
    with pytest.raises(ToolError, match="not allowed"):
        TestSuite(files={"../x": ""})
    with pytest.raises(ConfigError, match="positive"):
        Sandbox(seconds=float("nan"))
    with pytest.raises(ProblemError, match="count=0"):
        repair_problems(0)


def test_edits_stay_on_their_branch_and_equal_branches_hear_the_same() -> None:
    [problem] = repair_problems(1, seed=3)
    broken = problem.metadata["files"]["tally.py"]

    async def main() -> None:
        env, root = repair_env(problem), await repair_files(problem)
        state, _ = await env.reset(problem)
        middle = await root.fork()
        await env.step(
            state, calls(("list_files", {}), ("read_file", {"path": "tally.py"})), middle
        )
        heard = []
        for piece in ("total = 5", "total = 6", "total = 5"):
            branch = await middle.fork()
            edit = {"path": "tally.py", "old": broken.splitlines()[1].strip(), "new": piece}
            answer = await env.step(state, calls(("edit_file", edit), ("run_tests", {})), branch)
            heard.append([message.content for message in answer.messages])
            await branch.release()
        assert heard[0] == heard[2] != heard[1]
        assert await middle.read("tally.py") == broken
        assert await env.finish(state, middle, "allowance") == 0.0
        await middle.release()
        await root.release()

    anyio.run(main)


def calls(*asked: tuple[str, dict[str, Any]]) -> TurnAction:
    return TurnAction("", tuple(Call(name, arguments) for name, arguments in asked))


def test_every_repair_begins_broken_and_is_drawn_by_its_seed() -> None:
    for seed in range(4):
        [problem] = repair_problems(1, seed=seed)
        assert problem == repair_problems(1, seed=seed)[0]
        suite = TestSuite(files=problem.metadata["tests"])
        passed, report = judged(problem.metadata["files"], suite)
        assert not passed
        assert "AssertionError" in report


def test_a_repair_is_won_by_mending_it_and_by_nothing_else() -> None:
    problems = repair_problems(3, seed=5, split="heldout")
    assert not {p.prompt for p in problems} & {p.prompt for p in repair_problems(60, seed=5)}

    async def worth(problem: Problem, text: str) -> float:
        env, files = repair_env(problem), await repair_files(problem)
        await files.write("tally.py", text)
        state, _ = await env.reset(problem)
        answer = await env.step(state, calls(("hand_in", {})), files)
        await files.release()
        assert answer.done
        return answer.reward

    async def main() -> None:
        for problem in problems:
            told = str(problem.prompt)
            kept = {"above": ">", "below": "<", "at least": ">=", "at most": "<="}
            sign = next(sign for words, sign in kept.items() if words in told)
            limit = told.split(" It ")[0].rstrip(".").split()[-1]
            start, gather = ("0", "sum") if "sum" in told else ("1", "prod")
            mended = (
                "from math import prod\n\ndef tally(values):\n"
                f"    return {gather}([v for v in values if v {sign} {limit}], start={start})\n"
            )
            assert await worth(problem, mended) == 1.0
            assert await worth(problem, problem.metadata["files"]["tally.py"]) == 0.0

    anyio.run(main)


def test_the_environment_needs_files_and_speaks_of_its_tests() -> None:
    env = CodeEnv(SUITE)
    assert [each.name for each in env.tools][-2:] == ["run_tests", "hand_in"]
    with pytest.raises(ConfigError, match="needs files"):
        anyio.run(env.outcome, {}, None)


def test_equal_replies_give_the_equal_tree_with_real_runs_of_the_tests() -> None:
    [problem] = repair_problems(1, seed=1)
    write = dialect_named("hermes").write

    def script(prompt: str, so_far: str, rng: random.Random) -> str:
        old, new = rng.choice([("total = 1", "total = 0"), ("total = 0", "total = 1")])
        edit = write("edit_file", {"path": "tally.py", "old": old, "new": new})
        calls = [edit, write("run_tests", {}), write("hand_in", {})]
        return rng.choice(calls)[len(so_far) :]

    async def collected(seed: int) -> Collection:
        files = await repair_files(problem)
        agent = Agent(
            Shuffled(ScriptedPolicy(script, context_limit=8192), seed=seed),
            parser=Turns("hermes"),
            sampling=Sampling(seed=3),
            allowance=Allowance(tokens=1000, turns=6),
            workspace=files,
        )
        search = Search.two_phase(tokens=1500, concurrency=2)
        async with Collector(agent=agent, env=repair_env(problem), search=search) as collector:
            found = await collector.collect(problem)
        await files.release()
        return found

    one, other = (anyio.run(collected, seed).tree for seed in (1, 2))
    assert [node.incoming for node in one.edges()] == [node.incoming for node in other.edges()]
    assert any(len(one.children(node.id)) > 1 for node in one.edges()), "no branch in the middle"
