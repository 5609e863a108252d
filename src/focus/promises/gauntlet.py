"""Collects trees from a server that fails, and exports them for the outside checker."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from focus.agent import Agent, Segments
from focus.checkpoint import Allowance
from focus.collect import Collection, Collector
from focus.errors import CollectionFailed, CriticError, EnvError, FocusError, RequestError
from focus.execution import AdmissionPool, Execution, ExecutionServices, RetryPolicy
from focus.policies.sglang import SGLangPolicy
from focus.problem import Problem
from focus.records.codec import encode_critic
from focus.records.packed_codec import encode_sample
from focus.records.tree_codec import encode_tree
from focus.sampling import Sampling
from focus.search import Search
from focus.testing.chaos import ChaosEngine, ChaosServer, NonceTokenizer, Plan
from focus.testing.chaos.parts import FaultyEnv, faulty_critic
from focus.tree import Identity

__all__ = (
    "Books",
    "Gauntlet",
    "checked",
    "run",
)

_SEGMENT = 5
_PAUSE_S = 0.004
_CONCURRENCY = 4
_OUTSIDE = Path(__file__).with_name("outside")


@dataclass(frozen=True, kw_only=True)
class Gauntlet:
    """Trees to collect under faults.

    Attributes:
        plan: faults of the server.
        trees: how many are started; `expansions` may end the run earlier.
        expansions: enough of them; None collects all trees.
        seed: of replies and of faults in this process.
        tokens: budget of one tree.
        attempts: tries of a request.
        deadline_s: for a try, a prediction and a call of the environment.
        part_faults: share of calls of critic and environment that go wrong.
        at_once: trees in flight.
        first: number of the first tree, so that no two of a folder share a name.
    """

    plan: Plan
    trees: int
    expansions: int | None = None
    seed: int = 0
    tokens: int = 120
    attempts: int = 5
    deadline_s: float = 0.4
    part_faults: float = 0.0
    at_once: int = 6
    first: int = 0

    @property
    def allowance(self) -> int:
        """Tokens of one solution; three full replies and a little."""
        return 3 * _SEGMENT + 2


@dataclass
class Books:
    """What a run did, as far as it can be told before anything is checked.

    Attributes:
        trees: that have books; `unrooted` ones failed before any token was spent.
        complete: of them, those without any failure.
        expansions, requests, accepted: started, sent, and replies accepted.
        opened, released: states of environments.
        permits_left: still in use when a collection was over.
    """

    trees: int = 0
    unrooted: int = 0
    complete: int = 0
    expansions: int = 0
    requests: int = 0
    accepted: int = 0
    opened: int = 0
    released: int = 0
    permits_left: int = 0


async def run(
    gauntlet: Gauntlet, folder: Path, *, progress: Callable[[int, int], None] | None = None
) -> Books:
    """Collect, and append to the folder's ``trees.jsonl`` and ``server.jsonl``."""
    books = Books()
    engine = ChaosEngine(seed=gauntlet.seed)
    async with ChaosServer(gauntlet.plan, engine=engine) as server:
        async with SGLangPolicy(server.url, tokenizer=NonceTokenizer()) as policy:
            trees = _Trees(gauntlet, policy, books, folder, progress)
            async with anyio.create_task_group() as group:
                for _ in range(gauntlet.at_once):
                    group.start_soon(trees.collect_some)
        with (folder / "server.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(entry.to_dict()) + "\n" for entry in server.ledger.entries)
    return books


class _Trees:
    """Takes one tree after the other until there are enough."""

    def __init__(
        self,
        gauntlet: Gauntlet,
        policy: SGLangPolicy,
        books: Books,
        folder: Path,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._gauntlet = gauntlet
        self._policy = policy
        self._books = books
        self._file = folder / "trees.jsonl"
        self._progress = progress
        self._critic = faulty_critic(
            share=gauntlet.part_faults, seed=gauntlet.seed, deadline_s=gauntlet.deadline_s
        )
        self._next = 0

    async def collect_some(self) -> None:
        enough = self._gauntlet.expansions
        while self._next < self._gauntlet.trees:
            if enough is not None and self._books.expansions >= enough:
                return
            number = self._gauntlet.first + self._next
            self._next += 1
            await self._collect(number)
            if self._progress is not None:
                of = self._gauntlet.trees if enough is None else enough
                self._progress(self._next if enough is None else self._books.expansions, of)

    async def _collect(self, number: int) -> None:
        problem = Problem(id=f"walk-{number}", prompt="Walk.", label=number)
        env = FaultyEnv(share=self._gauntlet.part_faults, seed=number)
        services = ExecutionServices(AdmissionPool(_CONCURRENCY))
        async with self._collector(env, services) as collector:
            try:
                found: Collection | None = await collector.collect(
                    problem, allow_partial=True, identity=Identity(run="gauntlet")
                )
                accepted = True
            except CollectionFailed as error:
                found, accepted = error.collection, False
            except (CriticError, EnvError, RequestError):
                self._books.unrooted += 1
                return
            finally:
                self._books.permits_left += services.pool.statistics.in_use
        if found is None:
            raise FocusError(f"problem {problem.id}: the collection left no books")
        self._note(found, accepted, env)
        self._export(found, accepted, problem)

    def _collector(self, env: FaultyEnv, services: ExecutionServices) -> Collector:
        """With permits of its own: a server that says it is full slows down one tree only."""
        chosen = self._gauntlet
        execution = Execution(
            services=services,
            deadline_s=chosen.deadline_s,
            env_deadline_s=chosen.deadline_s,
            retry=RetryPolicy(attempts=chosen.attempts, base_s=_PAUSE_S),
        )
        agent = Agent(
            self._policy,
            parser=Segments(_SEGMENT),
            sampling=Sampling(seed=chosen.seed),
            allowance=Allowance(tokens=chosen.allowance),
            execution=execution,
        )
        search = Search.two_phase(tokens=chosen.tokens, concurrency=_CONCURRENCY)
        return Collector(agent=agent, env=env, search=search, critic=self._critic)

    def _note(self, found: Collection, accepted: bool, env: FaultyEnv) -> None:
        books, ledger = self._books, found.ledger
        books.trees += 1
        books.complete += accepted and not found.failures
        books.expansions += ledger.expansions_started
        books.requests += ledger.requests_sent
        books.accepted += ledger.requests_accepted
        books.opened += env.opened
        books.released += env.released

    def _export(self, found: Collection, accepted: bool, problem: Problem) -> None:
        line = {
            "tree": encode_tree(found.tree),
            "actor": [encode_sample(record) for record in found.actor] if accepted else [],
            "critic": [encode_critic(record) for record in found.critic] if accepted else [],
            "books": found.ledger.to_dict(),
            "failures": [
                {
                    "stage": f.stage,
                    "expansion": f.expansion,
                    "node": f.node,
                    "kind": f.kind,
                    "message": f.message,
                }
                for f in found.failures
            ],
            "accepted": accepted,
            "settings": {
                "allowance": self._gauntlet.allowance,
                "most_reward": 1.0,
                "trainer_law": {"temperature": 1.0, "top_p": 1.0, "top_k": None},
                "key": problem.key,
            },
        }
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, allow_nan=False) + "\n")


def checked(folder: Path) -> dict[str, Any]:
    """What the outside checker finds, in a process that has no FOCUS to import."""
    code = (
        f"import runpy, sys; sys.path.append({str(_OUTSIDE.parent)!r}); "
        f"sys.argv = ['outside', {str(folder)!r}]; "
        f"runpy.run_module({_OUTSIDE.name!r}, run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise FocusError(f"the outside checker broke: {done.stderr.strip()[-500:]}")
    verdict: dict[str, Any] = json.loads(done.stdout)
    return verdict
