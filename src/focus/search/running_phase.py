"""One phase while it buys: its ranking, its gate and its books."""

from __future__ import annotations

from collections.abc import Sequence

from focus.search.allocators.base import Session, View
from focus.search.budget import PhaseEnd, PhaseLedger, PhaseReport, Reservation
from focus.search.costs import Costs, Rooms
from focus.search.frontier import Choice, Frontier
from focus.search.search import Phase
from focus.tree import NodeId

__all__ = ("RunningPhase",)

_FIRST_OF = 3.0
"""A wave at the root takes one part in three, so that two are left for branches."""


class RunningPhase:
    """Decides purchases of one phase; knows nothing of the order in which they settle."""

    def __init__(
        self,
        phase: Phase,
        session: Session,
        *,
        view: View,
        rooms: Rooms,
        costs: Costs,
        started_s: float,
    ) -> None:
        self.phase = phase
        self.extent: int | None = None if phase.extent is None else phase.extent.limit
        self._session = session
        self._view = view
        self._rooms = rooms
        self._costs = costs
        self._ledger = PhaseLedger(phase.budget, costs, extent=self.extent, started_s=started_s)
        self._outcomes = {view.tree.outcome(leaf) for leaf in view.tree.terminals()}
        self._door = _Door(phase, view, rooms)
        self._floor = (0.0, 0.0)
        self._walked = 0
        # Neither knows this phase: in a ring its tree would wait for the garbage collector.
        self._frontier = Frontier(
            session, is_open=self._door.is_open, band_of=lambda node: costs.band(rooms[node])
        )
        self._frontier.refresh(node.id for node in view.tree)

    @property
    def free_tokens(self) -> int | None:
        return self._ledger.free_tokens

    def choose(self, *, elapsed_s: float, again: NodeId | None = None) -> Choice | None:
        """The best checkpoint that the gate, the score and the budget admit now.

        Args:
            again: a checkpoint to buy once more, if they admit it, whatever is best.
        """
        if self._ledger.stopped(elapsed_s=elapsed_s) or self._is_settled:
            return None
        if again is not None:
            return self._frontier.again(again, affords=self._ledger.affords)
        return self._frontier.best(affords=self._ledger.affords)

    def begin_wave(self, *, slots: int, standing: int) -> None:
        """In lockstep: every rollout stands still, and some may be bought before all go on.

        A wave takes its even part of the tokens and slots that are free: one in L, where the
        rollouts under way are expected to need L more edges as long as their last ones. A
        wave that begins at the root takes a third.

        Args:
            slots: expansions that may be added to those in flight.
            standing: rollouts under way; without any, the root is bought.
        """
        waves = _FIRST_OF
        if standing and self._walked and self._ledger.held_tokens:
            waves = max(1.0, self._ledger.held_tokens / self._walked)
        self._walked = 0
        self._door.may_begin = not standing
        kept = 1 - 1 / waves
        self._floor = (kept * (self.free_tokens or 0), kept * slots)
        self._frontier.refresh([0])

    def choose_in_wave(self, *, slots: int, elapsed_s: float) -> Choice | None:
        """The best checkpoint, until the wave has taken its part."""
        tokens = self.free_tokens
        least_tokens, least_slots = self._floor
        if slots <= least_slots or (tokens is not None and tokens <= least_tokens):
            return None
        return self.choose(elapsed_s=elapsed_s)

    def reserve(self, node_id: NodeId) -> Reservation:
        """Charge a purchase of `node_id`, which the view already counts as pending."""
        reservation = self._ledger.reserve(self._band_of(node_id), room=self._rooms[node_id])
        self._frontier.refresh([node_id])
        return reservation

    def pause(
        self, reservation: Reservation, path: Sequence[NodeId], *, tokens: int, turns: int
    ) -> Reservation:
        """Charge a purchase for the way along `path`, and hold what it will need to end."""
        held = self._ledger.pause(
            reservation, self._band_of(path[-1]), tokens=tokens, turns=turns, nodes=len(path) - 1
        )
        self._walked += tokens
        self._frontier.refresh(path)
        return held

    def settle(
        self,
        node_id: NodeId,
        chain: Sequence[NodeId],
        reservation: Reservation,
        *,
        tokens: int,
        turns: int,
        nodes: int,
        failed: bool,
        cut: bool,
    ) -> None:
        """Close a purchase that the view no longer counts as pending.

        Args:
            node_id: where it was launched.
            chain: all its checkpoints.
            reservation: what it holds.
            tokens, turns, nodes: since it was launched or last paused.
            failed, cut: how it ended.
        """
        self._ledger.settle(
            reservation, tokens=tokens, turns=turns, nodes=nodes, failed=failed, cut=cut
        )
        self._learn_cost(node_id, chain)
        if chain and self._view.tree[chain[-1]].is_terminal:
            self._outcomes.add(self._view.tree.outcome(chain[-1]))
        also_changed = self._session.settled(node_id, chain)
        self._frontier.refresh([*chain, *also_changed, node_id])

    def report(self, index: int, *, elapsed_s: float) -> PhaseReport:
        """The closed books; call it once nothing is in flight."""
        end = self._ledger.stopped(elapsed_s=elapsed_s)
        if end is None and self._is_settled:
            end = PhaseEnd.MIXED
        if end is None:
            end = PhaseEnd.TOKENS if len(self._frontier) else PhaseEnd.EXHAUSTED
        return self._ledger.report(index, end)

    @property
    def _is_settled(self) -> bool:
        """The phase was to end at different outcomes, and they are there."""
        return self.phase.until_mixed and len(self._outcomes) > 1

    def _learn_cost(self, node_id: NodeId, chain: Sequence[NodeId]) -> None:
        if not chain:
            return
        tree = self._view.tree
        self._costs.learn(
            [self._rooms[start] for start in (node_id, *chain[:-1])],
            [tree[head].incoming.sampled_tokens for head in chain],
            extent=self.extent,
            reached_end=tree[chain[-1]].is_terminal,
        )

    def _band_of(self, node_id: NodeId) -> int:
        return self._costs.band(self._rooms[node_id])


class _Door:
    """Says whether a phase may buy a checkpoint now.

    Attributes:
        may_begin: in lockstep, whether rollouts may begin anew.
    """

    def __init__(self, phase: Phase, view: View, rooms: Rooms) -> None:
        self._phase = phase
        self._view = view
        self._rooms = rooms
        self.may_begin = True

    def is_open(self, node_id: NodeId) -> bool:
        if not self._rooms.is_forkable(node_id):
            return False
        pending = self._view.pending_at(node_id)
        # In lockstep branches join a rollout that is about to go on, or begin anew.
        begins = node_id == 0 and self.may_begin
        if self._phase.lockstep and not (begins or pending):
            return False
        children = len(self._view.tree.children(node_id))
        return self._phase.gate.admits(children=children, pending=pending)
