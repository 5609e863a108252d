"""The only loop that awaits: asks the scheduler, runs expansions, settles them in order."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from focus._cancellation import Crew
from focus.agent import Agent, Env, RequestPlace, Step
from focus.agent.env import Held
from focus.agent.step import request_name
from focus.checkpoint import Checkpoint
from focus.collect.ledger import ExpansionCounts
from focus.collect.valuing import Valuer
from focus.critic import Critic
from focus.errors import EnvError, Failure, FatalError, FocusError, RequestError
from focus.execution import RequestCounts, Together
from focus.sampling import derive_seed
from focus.search import Done, Launch, PhaseReport, Scheduler, Search
from focus.tree import NodeId, Tree, TreeHeader

__all__ = ("Driver", "Expansion")


@dataclass(slots=True, kw_only=True)
class Expansion:
    """One purchase while it runs and until it settles.

    Attributes:
        launch: as it was launched, or last resumed.
        steps: its accepted edges.
        accepted_tokens: sampled on them.
        values: the critic's estimate per step; None: terminal, or the prediction failed.
        error: why it failed, if it did; a failed prediction leaves `error` alone.
        is_cut: stopped by ``extent``, a hard cap or an early stop.
        is_paused: it stands at its last step until it is resumed.
        settled_steps, settled_tokens: what the tree and the scheduler have of it.
        requests: its request books.
        together: carries the next request, with those of siblings.
        unvalued: steps whose value is on its way.
        is_misvalued: a prediction failed.
        is_sampled: no more steps will come.
    """

    launch: Launch
    steps: list[Step] = field(default_factory=list)
    values: list[float | None] = field(default_factory=list)
    accepted_tokens: int = 0
    error: FocusError | None = None
    is_cut: bool = False
    is_paused: bool = False
    settled_steps: int = 0
    settled_tokens: int = 0
    requests: RequestCounts = field(default_factory=RequestCounts)
    together: Together | None = None
    unvalued: int = 0
    is_misvalued: bool = False
    is_sampled: bool = False

    @property
    def is_ready(self) -> bool:
        """Nothing of it will change."""
        return self.is_sampled and not self.unvalued

    def resume(self, launch: Launch) -> None:
        """Go on from where it stands."""
        self.launch = launch
        self.is_paused = self.is_sampled = False

    @property
    def new_steps(self) -> list[Step]:
        """Those that are not in the tree."""
        return self.steps[self.settled_steps :]

    @property
    def tokens(self) -> int:
        """Generated for it, replies that were refused included."""
        return self.accepted_tokens + self.requests.discarded_tokens

    def take(self, step: Step, value: float | None) -> None:
        """Add an accepted edge, and what is known of its value."""
        self.steps.append(step)
        self.values.append(value)
        self.accepted_tokens += step.edge.sampled_tokens


class Driver:
    """Grows one tree until its search is done.

    Results are attached and settled in launch order, so node ids and every later decision
    depend on replies only, never on their timing.
    """

    def __init__(
        self,
        agent: Agent,
        env: Env,
        search: Search,
        critic: Critic,
        *,
        name: str,
        strict: bool,
    ) -> None:
        self._agent = agent
        self._env = env
        self._search = search
        self.valuer: Valuer = Valuer(critic, agent.policy)
        self._name = name
        self._strict = strict
        self.requests: RequestCounts = RequestCounts()
        self.expansions: ExpansionCounts = ExpansionCounts()
        self.failures: list[Failure] = []
        self.first_error: FocusError | None = None
        self.phases: tuple[PhaseReport, ...] = ()
        self.opening: int = 0
        self._running: dict[int, Expansion] = {}
        self._held = Held()
        self._scope = Crew()
        self._awaited: Expansion | None = None

    async def grow(self, header: TreeHeader, root: Checkpoint) -> Tree[Checkpoint]:
        """Collect the tree below `root`, and let go of every environment state.

        With `strict`, the first failure cancels what is in flight and ends the growth; the
        tree so far is returned and `first_error` says why.

        Raises:
            CriticError: the root could not be valued; no token was spent.
        """
        self._held.add(root)
        try:
            value = await self.valuer.value(root)
            tree: Tree[Checkpoint] = Tree(header, root, value=value)
            scheduler = Scheduler(
                self._search,
                tree,
                remaining_tokens=lambda node: self._agent.remaining(tree[node].payload),
            )
            await self._run(tree, scheduler)
        finally:
            self._abandon()
            await self._release()
        return tree

    async def _run(self, tree: Tree[Checkpoint], scheduler: Scheduler) -> None:
        started = time.monotonic()
        bought: dict[NodeId, list[Launch]] = {}
        try:
            async with self._scope:
                while not self._scope.is_cancelled:
                    decision = scheduler.next(elapsed_s=time.monotonic() - started)
                    if isinstance(decision, Launch):
                        bought.setdefault(decision.node, []).append(decision)
                        continue
                    self._start_all(tree, bought)
                    if isinstance(decision, Done):
                        break
                    await self._settle(tree, scheduler, decision.expansion)
        finally:
            self.phases = tuple(scheduler.reports)
            self.opening = scheduler.opening

    def _start_all(self, tree: Tree[Checkpoint], bought: dict[NodeId, list[Launch]]) -> None:
        """Start what was decided between two results; siblings ask together at first."""
        for launches in bought.values():
            together = self._together(launches)
            for launch in launches:
                expansion = self._opened(launch)
                expansion.together = together
                self._scope.start(self._expand(tree, expansion))
        bought.clear()

    def _opened(self, launch: Launch) -> Expansion:
        if launch.resumes:
            expansion = self._running[launch.expansion]
            expansion.resume(launch)
        else:
            expansion = self._running[launch.expansion] = Expansion(launch=launch)
            self.expansions.started += 1
        return expansion

    def _together(self, launches: Sequence[Launch]) -> Together | None:
        if len(launches) < 2:
            return None
        return Together(
            request_name(self._name, launch.expansion, self._steps_of(launch))
            for launch in launches
        )

    def _steps_of(self, launch: Launch) -> int:
        return len(self._running[launch.expansion].steps) if launch.resumes else 0

    async def _expand(self, tree: Tree[Checkpoint], expansion: Expansion) -> None:
        """Run one expansion; errors become data."""
        try:
            await self._sample(tree, expansion)
        except Exception as error:
            expansion.error = _typed(error, expansion, tree)
            self._fail("expansion", expansion.launch, expansion.error)
        expansion.is_sampled = True
        self._tell(expansion)

    async def _sample(self, tree: Tree[Checkpoint], expansion: Expansion) -> None:
        launch = expansion.launch
        checkpoint = tree[launch.node].payload
        while True:
            place = self._place(tree, expansion)
            try:
                step = await self._agent.advance(
                    checkpoint,
                    self._env,
                    place=place,
                    sampling=launch.sampling,
                    most_tokens=None if launch.quota is None else launch.quota - expansion.tokens,
                )
            finally:
                if place.together is not None:
                    place.together.leave(place.name)
                    expansion.together = None
            expansion.take(step, None if step.is_terminal else self.valuer.fixed_value)
            checkpoint = step.checkpoint
            self._held.add(checkpoint)
            if step.is_terminal:
                return
            self._ask_value(tree, expansion)
            spent = launch.quota is not None and expansion.tokens >= launch.quota
            ended = spent or len(expansion.steps) == launch.extent
            if ended or (
                launch.early_stop is not None and await self._gives_up(expansion, checkpoint)
            ):
                expansion.is_cut = True
                return
            if launch.pauses:
                expansion.is_paused = True
                return

    async def _gives_up(self, expansion: Expansion, checkpoint: Checkpoint) -> bool:
        """Value a checkpoint at once, where its phase may stop there."""
        stop = expansion.launch.early_stop
        if stop is None:
            return False
        value = await self.valuer.value(checkpoint)
        place = (self._name, expansion.launch.expansion, len(expansion.steps), "early stop")
        coin = derive_seed(0, *place) / 2**31
        return not stop.goes_on(value, coin=coin)

    def _place(self, tree: Tree[Checkpoint], expansion: Expansion) -> RequestPlace:
        launch = expansion.launch
        return RequestPlace(
            tree=self._name,
            version=tree.header.policy_version,
            expansion=launch.expansion,
            index=len(expansion.steps),
            phase=launch.phase,
            counts=expansion.requests,
            together=expansion.together,
        )

    def _ask_value(self, tree: Tree[Checkpoint], expansion: Expansion) -> None:
        """Value the last checkpoint while the expansion goes on."""
        if self.valuer.fixed_value is None:
            expansion.unvalued += 1
            self._scope.start(self._value(tree, expansion, len(expansion.steps) - 1))

    async def _value(self, tree: Tree[Checkpoint], expansion: Expansion, index: int) -> None:
        """Value one step; a failed prediction is noted once per expansion."""
        try:
            expansion.values[index] = await self.valuer.value(expansion.steps[index].checkpoint)
        except Exception as error:
            if not expansion.is_misvalued:
                expansion.is_misvalued = True
                self._fail("prediction", expansion.launch, _typed(error, expansion, tree))
        expansion.unvalued -= 1
        self._tell(expansion)

    def _tell(self, expansion: Expansion) -> None:
        """Something of it is done: whoever awaits just that may go on."""
        if expansion is self._awaited and expansion.is_ready:
            self._scope.tell()

    async def _settle(
        self, tree: Tree[Checkpoint], scheduler: Scheduler, expansion_id: int
    ) -> None:
        expansion = self._awaited = self._running[expansion_id]
        while not (expansion.is_ready or self._scope.is_cancelled):
            await self._scope.news()
        if self._scope.is_cancelled:
            return
        tokens = expansion.tokens - expansion.settled_tokens
        turns = sum(step.edge.duration for step in expansion.new_steps)
        chain = self._attach(tree, expansion)
        if not expansion.is_paused:
            del self._running[expansion_id]
            self._count(expansion)
        scheduler.settle(
            expansion_id,
            chain=chain,
            tokens=tokens,
            turns=turns,
            failed=expansion.error is not None,
            cut=expansion.is_cut,
            paused=expansion.is_paused,
        )

    def _attach(self, tree: Tree[Checkpoint], expansion: Expansion) -> list[NodeId]:
        """Put its new steps into the tree."""
        chain: list[NodeId] = []
        parent = expansion.launch.node
        values = expansion.values[expansion.settled_steps :]
        for step, value in zip(expansion.new_steps, values, strict=True):
            parent = tree.attach(
                parent,
                step.edge,
                step.checkpoint,
                value=value,
                is_terminal=step.is_terminal,
                is_truncated=step.is_truncated,
                rebased=step.rebased,
            )
            chain.append(parent)
        expansion.settled_steps = len(expansion.steps)
        expansion.settled_tokens = expansion.tokens
        return chain

    def _count(self, expansion: Expansion) -> None:
        self.requests.add(expansion.requests)
        if expansion.error is not None:
            self.expansions.failed += 1
        elif expansion.is_cut:
            self.expansions.cut += 1
        else:
            self.expansions.completed += 1

    def _fail(self, stage: str, launch: Launch, error: FocusError) -> None:
        """Record a failure; a strict collection, or a fault that is fatal, ends here."""
        self._note(stage, launch.expansion, launch.node, error)
        if self.first_error is None and (self._strict or isinstance(error, FatalError)):
            self.first_error = error
            self._scope.cancel()

    def _note(self, stage: str, expansion: int, node: NodeId, error: FocusError) -> None:
        message = str(error)
        if not isinstance(error, RequestError):
            message += f" [tree={self._name}, expansion={expansion}, node={node}]"
        self.failures.append(Failure(stage, expansion, node, type(error).__name__, message))

    def _abandon(self) -> None:
        """Close the books of expansions that never settled."""
        for expansion in self._running.values():
            self.requests.add(expansion.requests)
            if expansion.error is not None:
                self.expansions.failed += 1
            else:
                self.expansions.cancelled += 1
            self.expansions.lost_tokens += sum(
                step.edge.sampled_tokens for step in expansion.new_steps
            )
        self._running.clear()

    async def _release(self) -> None:
        """Release what was opened; the tree is grown, so trouble here is one more failure."""
        try:
            await self._held.release(self._env)
        except EnvError as error:
            self._note("release", -1, 0, error)
            if self.first_error is None and self._strict:
                self.first_error = error


def _typed(error: Exception, expansion: Expansion, tree: Tree[Checkpoint]) -> FocusError:
    """A FocusError as it is; anything else named by its expansion, with the cause kept."""
    launch = expansion.launch
    if isinstance(error, RequestError):
        return error.located(problem=repr(tree.header.problem.id), node=launch.node)
    if isinstance(error, FocusError):
        return error
    typed = FocusError(f"expansion {launch.expansion} from node {launch.node}: {error!r}")
    typed.__cause__ = error
    return typed
