"""Which checkpoint next? A value that is asked and told; it never waits and owns no clock."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from focus._values import filled
from focus.errors import LifecycleError
from focus.sampling import Sampling
from focus.search.allocators.base import View
from focus.search.budget import PhaseEnd, PhaseReport, Reservation
from focus.search.costs import Costs, Rooms
from focus.search.early_stop import EarlyStop
from focus.search.frontier import Choice
from focus.search.running_phase import RunningPhase
from focus.search.search import Search
from focus.tree import Evidence, NodeId, Selection, Tree

__all__ = ("Done", "Launch", "Scheduler", "Wait")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Start this expansion now.

    Attributes:
        expansion: launch number within the tree, from 0.
        node: checkpoint to continue from.
        phase: index of the phase that buys it.
        sampling: the phase's override of max_tokens, stop or seed.
        extent: most edges to buy; None runs to the end of the episode.
        quota: most tokens to sample, discarded replies included; None is no limit.
        early_stop: when to give it up; None never does.
        pauses: it stops at its next checkpoint, to be settled as paused.
        resumes: it was paused at `node` and goes on; no new expansion.
    """

    expansion: int
    node: NodeId
    phase: int
    sampling: Sampling | None = None
    extent: int | None = None
    quota: int | None = None
    early_stop: EarlyStop | None = None
    pauses: bool = False
    resumes: bool = False


_launch, _selection = filled(Launch), filled(Selection)


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing more is decided before `expansion`, the oldest one in flight, is settled."""

    expansion: int


@dataclass(frozen=True, slots=True)
class Done:
    """The search is over and nothing is in flight."""


@dataclass(slots=True)
class _Purchase:
    """One in flight: where it was launched, where it stands and what it made on the way."""

    launch: Launch
    node: NodeId
    reservation: Reservation
    chain: list[NodeId] = field(default_factory=list)


class Scheduler:
    """Runs the phases of a search over one fresh tree.

        while not isinstance(step := scheduler.next(), Done):
            match step:
                case Launch(): start it
                case Wait(expansion): await its result, attach its nodes, then
                    scheduler.settle(expansion, chain=..., tokens=...)

    Law: launch k is decided on exactly the results of launches 0…k−c, c being the search's
    concurrency; s siblings that are bought at once, from launch k on, on exactly those of
    0…k+s−1−c. Where those leave nothing to buy, the oldest expansion in flight is awaited
    and the question asked again. Results are settled when asked for, in launch order, so
    completion order changes time only. (A `wall_s` cap is the one exception: it depends on
    the `elapsed_s` that it is told.)

    A phase in lockstep launches and resumes only while every expansion stands still, so on
    exactly all results so far; each then runs to its next checkpoint and is settled as paused.

    A phase ends when it can buy nothing and nothing is in flight; the next one starts with
    a fresh session, gate and budget. Every launch leaves a `Selection` on the tree.

    Args:
        search: the phases.
        tree: holds its root, with the root's value, and nothing else.
        remaining_tokens: tokens that a continuation of a checkpoint may still sample, None
            without limit, 0 where tokens, turns or context leave no room; asked once per
            node.

    Raises:
        LifecycleError: the tree was grown before.
        ConfigError: an allocator refuses the tree's header.
    """

    def __init__(
        self,
        search: Search,
        tree: Tree[Any],
        *,
        remaining_tokens: Callable[[NodeId], int | None],
    ) -> None:
        if len(tree) > 1 or tree.selections:
            raise LifecycleError(f"a search grows a fresh tree, not {tree!r}")
        for phase in search.phases:
            phase.allocator.check(tree.header)
        self.evidence: Evidence = Evidence(tree.header.returns)
        self._search = search
        self._tree = tree
        self._pending: Counter[NodeId] = Counter()
        self._view = View(tree, self.evidence, self._pending)
        self._rooms = Rooms(tree, remaining_tokens)
        self._costs = Costs(root_room=self._rooms[0], total_tokens=search.tokens)
        self._in_flight: deque[_Purchase] = deque()
        self._paused: deque[_Purchase] = deque()
        self._wave_is_open = False
        self._awaited: Wait | None = None
        self._running: RunningPhase | None = None
        self._reports: list[PhaseReport] = []
        self._settled_nodes = len(tree)
        self._owed: tuple[NodeId, int] | None = None
        self._unmoved = 0

    @property
    def in_flight(self) -> int:
        """Expansions launched and not settled, those that stand still included."""
        return len(self._in_flight) + len(self._paused)

    @property
    def opening(self) -> int:
        """Launches, from the first, that no result has moved; complete once one was settled."""
        return max(self._search.opening, self._unmoved)

    @property
    def reports(self) -> tuple[PhaseReport, ...]:
        """The books of the phases that have ended."""
        return tuple(self._reports)

    def next(self, *, elapsed_s: float = 0.0) -> Launch | Wait | Done:
        """What to do now; asked again before a `Wait` is settled, it says the same.

        Args:
            elapsed_s: seconds since the search began; only `wall_s` caps read it.
        """
        while self._awaited is None:
            phase = self._running or self._open_phase(elapsed_s)
            if phase is None:
                return Done()
            decide = self._step_together if phase.phase.lockstep else self._step_freely
            if (launch := decide(phase, elapsed_s)) is not None:
                return launch
            if self._in_flight:
                self._awaited = Wait(self._in_flight[0].launch.expansion)
            else:
                self._close_phase(phase, elapsed_s)
        return self._awaited

    def settle(
        self,
        expansion: int,
        *,
        chain: Sequence[NodeId],
        tokens: int,
        turns: int = 0,
        failed: bool = False,
        cut: bool = False,
        paused: bool = False,
    ) -> None:
        """Take in the result of the awaited expansion.

        Args:
            expansion: the one that `next` said to wait for.
            chain: its checkpoints, just attached, in order; a failed one keeps its good ones.
            tokens: tokens it sampled since it was launched or resumed, those of discarded
                replies and of a failure included.
            turns: env turns it took meanwhile.
            failed: it ended in an error.
            cut: its quota, its extent or an early stop ended it.
            paused: it stands at the last of `chain` and will be resumed.

        Raises:
            LifecycleError: another expansion is due, or `chain` and `tokens` do not fit
                the tree.
        """
        if self._awaited is None or self._awaited.expansion != expansion:
            raise LifecycleError(f"expansion {expansion} is not due; next() said {self._awaited}")
        assert self._running is not None
        purchase = self._in_flight[0]
        self._check_result(purchase, chain, tokens, may_be_empty=failed or cut)
        self._in_flight.popleft()
        self._awaited = None
        self._unmoved = self._unmoved or len(self._tree.selections)
        self._settled_nodes = len(self._tree)
        self._pending[purchase.node] -= 1
        purchase.chain += chain
        if paused:
            self._pause(purchase, chain, tokens=tokens, turns=turns)
            return
        self.evidence.record(self._tree, purchase.chain)
        self._running.settle(
            purchase.launch.node,
            purchase.chain,
            purchase.reservation,
            tokens=tokens,
            turns=turns,
            nodes=len(chain),
            failed=failed,
            cut=cut,
        )

    def _pause(
        self, purchase: _Purchase, chain: Sequence[NodeId], *, tokens: int, turns: int
    ) -> None:
        assert self._running is not None
        path = [purchase.node, *chain]
        purchase.node = chain[-1]
        self._pending[purchase.node] += 1
        purchase.reservation = self._running.pause(
            purchase.reservation, path, tokens=tokens, turns=turns
        )
        self._paused.append(purchase)

    def _step_freely(self, phase: RunningPhase, elapsed_s: float) -> Launch | None:
        choice = self._sibling(phase, elapsed_s)
        free = self._search.concurrency - len(self._in_flight)
        if choice is None and free >= phase.phase.siblings:
            choice = phase.choose(elapsed_s=elapsed_s)
            if choice is not None and phase.phase.siblings > 1:
                self._owed = (choice.node, phase.phase.siblings - 1)
        return None if choice is None else self._launch(phase, choice)

    def _step_together(self, phase: RunningPhase, elapsed_s: float) -> Launch | None:
        """Once all stand still, resume them and launch the branches that join them."""
        slots = self._search.concurrency - self.in_flight
        if not self._in_flight:
            self._wave_is_open = True
            phase.begin_wave(slots=slots, standing=len(self._paused))
        if not self._wave_is_open:
            return None
        if self._paused:
            purchase = self._paused.popleft()
            self._in_flight.append(purchase)
            return replace(purchase.launch, node=purchase.node, resumes=True)
        choice = phase.choose_in_wave(slots=slots, elapsed_s=elapsed_s)
        self._wave_is_open = choice is not None
        return None if choice is None else self._launch(phase, choice)

    def _sibling(self, phase: RunningPhase, elapsed_s: float) -> Choice | None:
        """The next sibling of a purchase under way; None where it is complete or denied."""
        if self._owed is None:
            return None
        node, more = self._owed
        choice = phase.choose(elapsed_s=elapsed_s, again=node)
        self._owed = (node, more - 1) if choice is not None and more > 1 else None
        return choice

    def _open_phase(self, elapsed_s: float) -> RunningPhase | None:
        while len(self._reports) < len(self._search.phases):
            phase = self._search.phases[len(self._reports)]
            session = phase.allocator.session(self._view)
            if session is not None:
                self._running = RunningPhase(
                    phase,
                    session,
                    view=self._view,
                    rooms=self._rooms,
                    costs=self._costs,
                    started_s=elapsed_s,
                )
                return self._running
            self._reports.append(PhaseReport(phase=len(self._reports), end=PhaseEnd.DECLINED))
        return None

    def _close_phase(self, phase: RunningPhase, elapsed_s: float) -> None:
        self._reports.append(phase.report(len(self._reports), elapsed_s=elapsed_s))
        self._running = None

    def _launch(self, phase: RunningPhase, choice: Choice) -> Launch:
        launch_number = len(self._tree.selections)
        selection = _selection(
            expansion=launch_number,
            node=choice.node,
            phase=len(self._reports),
            score=choice.score,
            rivals=choice.rivals,
            free_tokens=phase.free_tokens,
        )
        self._tree.selections.append(selection)
        self._pending[choice.node] += 1
        reservation = phase.reserve(choice.node)
        launch = _launch(
            expansion=launch_number,
            node=choice.node,
            phase=selection.phase,
            sampling=phase.phase.sampling,
            extent=phase.extent,
            quota=reservation.quota,
            early_stop=phase.phase.early_stop,
            pauses=phase.phase.lockstep,
        )
        self._in_flight.append(_Purchase(launch, choice.node, reservation))
        return launch

    def _check_result(
        self, purchase: _Purchase, chain: Sequence[NodeId], tokens: int, *, may_be_empty: bool
    ) -> None:
        where = f"expansion {purchase.launch.expansion} from node {purchase.node}"
        attached = list(range(self._settled_nodes, len(self._tree)))
        if list(chain) != attached:
            raise LifecycleError(
                f"{where}: chain {list(chain)} is not what was attached since the last one, "
                f"{attached}"
            )
        if not chain and not may_be_empty:
            raise LifecycleError(f"{where}: no progress and no failure either")
        parent, sampled = purchase.node, 0
        for node_id in chain:
            node = self._tree[node_id]
            if node.parent != parent:
                raise LifecycleError(f"{where}: chain {list(chain)} does not hang below it")
            parent = node_id
            sampled += node.incoming.sampled_tokens
        if tokens < sampled:
            raise LifecycleError(f"{where}: {tokens} tokens reported, {sampled} attached")
