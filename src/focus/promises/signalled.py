"""A program to be stopped by signals: it collects, grades and writes until then.

``python -c CHILD FOLDER`` with `CHILD`; says "ready" once it collects.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import anyio

from focus.agent import Agent, Segments, StepResult
from focus.checkpoint import Allowance
from focus.collect import Collector
from focus.problem import Problem
from focus.records import JsonlDirectory
from focus.search import Search
from focus.tasks import Grader
from focus.testing.envs import Handle, LiveEnv, walk_script
from focus.testing.policies import ScriptedPolicy
from focus.tree import Identity

__all__ = ("CHILD", "collect_for_ever")

CHILD = """
import signal, sys
from pathlib import Path
import typer
from rich.console import Console
from focus.cli.interrupt import run_until_interrupted
from focus.promises.signalled import collect_for_ever
signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent may have it ignored
try:
    run_until_interrupted(
        lambda progress: collect_for_ever(Path(sys.argv[1])),
        console=Console(stderr=True),
        last_words="go on",
    )
except typer.Exit as end:
    sys.exit(end.exit_code)
"""


class _GradedEnv(LiveEnv):
    """The walk, with a grade of a worker process at each ending; counts what it opened."""

    def __init__(self, grader: Grader) -> None:
        super().__init__()
        self._grader = grader
        self._answers = itertools.count()

    async def step(self, state: Handle, action: Any, workspace: object) -> StepResult:
        result = await super().step(state, action, workspace)
        if result.done:
            await self._grader.grade(rf"\boxed{{{next(self._answers)}}}", "2")
        return result


async def collect_for_ever(folder: Path) -> None:
    """Collect tree after tree into `folder`; at the end write what was opened and released."""
    grader = Grader()
    env = _GradedEnv(grader)
    sink = JsonlDirectory(folder / "records")
    try:
        async with grader:
            await grader.grade(r"\boxed{1}", "2")
            print("ready", flush=True)
            async with anyio.create_task_group() as group:
                for worker in range(4):
                    group.start_soon(_collect, env, sink, worker)
    finally:
        books = {"opened": env.opened, "released": env.released}
        (folder / "books.json").write_text(json.dumps(books))


async def _collect(env: LiveEnv, sink: JsonlDirectory, worker: int) -> None:
    for number in itertools.count():
        agent = Agent(
            ScriptedPolicy(walk_script(9)), parser=Segments(3), allowance=Allowance(tokens=12)
        )
        problem = Problem(id=f"{worker}/{number}", prompt="Walk.")
        async with Collector(agent=agent, env=env, search=Search.two_phase(tokens=60)) as one:
            found = await one.collect(problem, identity=Identity(run="signals"))
        sink.write(found.critic)
