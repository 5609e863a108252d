"""What a phase may spend, and the books of what it did spend."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from focus.errors import ConfigError
from focus.search.costs import Costs

__all__ = ("Budget", "PhaseEnd", "PhaseLedger", "PhaseReport", "Reservation")


_LEAST_SHARE = 32


class PhaseEnd(StrEnum):
    """Why a phase stopped buying."""

    TOKENS = "tokens"
    ATTEMPTS = "attempts"
    TURNS = "turns"
    NODES = "nodes"
    WALL = "wall"
    MIXED = "mixed"
    """Two finished leaves have different outcomes, and the phase was to end there."""
    EXHAUSTED = "exhausted"
    """No checkpoint was eligible; what was left of the budget stays unspent."""
    DECLINED = "declined"
    """The allocator had nothing to rank by; the phase was skipped."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The caps of one phase; ``None`` is no cap, and at least one is needed.

    Attributes:
        tokens: sampled tokens, those of discarded replies and failed expansions included.
        least_tokens: with fewer than so many free, nothing is bought any more: what so little
            buys begins where a solution was about to end and says nothing. None is a 32nd of
            `tokens`.
        attempts: expansions, failed ones included; exact.
        turns: env turns; a stop condition. An expansion without one counts as one.
        nodes: checkpoints attached; a stop condition. An expansion without one counts as one.
        wall_s: seconds since the phase began; a stop condition, and the only cap that
            makes a search depend on time.
        cap: ``"mean"`` buys while the expected cost fits and lets purchases finish;
            ``"hard"`` gives each purchase a quota, so `tokens` is never exceeded.

    Raises:
        ConfigError: a cap is not positive or not whole, there is none, a hard cap has no
            tokens, or `least_tokens` has none or lies outside 1…`tokens`.
    """

    tokens: int | None = None
    attempts: int | None = None
    turns: int | None = None
    nodes: int | None = None
    wall_s: float | None = None
    cap: Literal["mean", "hard"] = "mean"
    least_tokens: int | None = None

    def __post_init__(self) -> None:
        caps = {
            name: getattr(self, name) for name in ("tokens", "attempts", "turns", "nodes", "wall_s")
        }
        if all(value is None for value in caps.values()):
            raise ConfigError(f"a phase without any cap never ends; set one of {', '.join(caps)}")
        for name, value in caps.items():
            if value is None:
                continue
            if not value > 0:
                raise ConfigError(f"{name}: budget {value} buys nothing; it must be > 0")
            if name != "wall_s" and not isinstance(value, int):
                raise ConfigError(f"{name}: budget {value!r} must be a whole number")
        if self.cap not in ("mean", "hard"):
            raise ConfigError(f"cap must be 'mean' or 'hard', got {self.cap!r}")
        if self.cap == "hard" and self.tokens is None:
            raise ConfigError("cap='hard' cuts at a token budget; set tokens")
        if self.least_tokens is not None and not 1 <= self.least_tokens <= (self.tokens or 0):
            raise ConfigError(
                f"least_tokens must lie in 1..{self.tokens}, the phase's tokens, "
                f"got {self.least_tokens}"
            )

    @property
    def least(self) -> int:
        """Fewest free tokens that still buy an expansion.

        >>> Budget(tokens=8192).least, Budget(tokens=20).least, Budget(attempts=3).least
        (256, 1, 0)
        """
        if self.tokens is None:
            return 0
        return self.least_tokens or max(1, self.tokens // _LEAST_SHARE)


@dataclass(frozen=True, slots=True)
class Reservation:
    """What one purchase holds of a token budget until it settles.

    Attributes:
        expected: tokens it was expected to cost when it was launched.
        quota: most tokens it may sample; None under a mean cap.
    """

    expected: int
    quota: int | None = None

    @property
    def held(self) -> int:
        return self.expected if self.quota is None else self.quota

    def charge(self, tokens: int, *, failed: bool) -> int:
        """Budget used up by a purchase that sampled `tokens`.

        A failed purchase forfeits what it was expected to cost, and any other costs one
        token at least: a backend that fails at once, for free, drains the budget too.

        >>> Reservation(100).charge(0, failed=True), Reservation(100).charge(7, failed=False)
        (100, 7)
        """
        return max(tokens, min(self.expected, self.held) if failed else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseReport:
    """The closed books of one phase.

    Attributes:
        phase: its index in the search.
        end: why it stopped buying.
        launched: expansions, = completed + `failed` + `cut`.
        tokens: sampled tokens, those of discarded replies and failed expansions included.
        forfeited: budget used up beyond those tokens, by failures.
        overshoot: tokens beyond the budget.
    """

    phase: int
    end: PhaseEnd
    launched: int = 0
    failed: int = 0
    cut: int = 0
    tokens: int = 0
    forfeited: int = 0
    overshoot: int = 0


class PhaseLedger:
    """Counts what one phase spent and holds, and says when it must stop."""

    def __init__(
        self, budget: Budget, costs: Costs, *, extent: int | None = None, started_s: float = 0.0
    ) -> None:
        self._budget = budget
        self._costs = costs
        self._extent = extent
        self._started_s = started_s
        self._stopped: PhaseEnd | None = None
        self._held = self._charged = self._tokens = 0
        self._launched = self._failed = self._cut = self._turns = self._nodes = 0

    @property
    def free_tokens(self) -> int | None:
        """Budget neither used up nor held by a purchase in flight; None without a token cap."""
        if self._budget.tokens is None:
            return None
        return self._budget.tokens - self._charged - self._held

    @property
    def held_tokens(self) -> int:
        """Expected by the purchases in flight."""
        return self._held

    def stopped(self, *, elapsed_s: float) -> PhaseEnd | None:
        """The cap that was reached first; once one is, the answer never changes."""
        if self._stopped is None:
            self._stopped = self._reached(elapsed_s - self._started_s)
        return self._stopped

    def _reached(self, seconds: float) -> PhaseEnd | None:
        caps = self._budget
        if caps.tokens is not None and self._charged >= caps.tokens:
            return PhaseEnd.TOKENS
        if caps.attempts is not None and self._launched >= caps.attempts:
            return PhaseEnd.ATTEMPTS
        if caps.turns is not None and self._turns >= caps.turns:
            return PhaseEnd.TURNS
        if caps.nodes is not None and self._nodes >= caps.nodes:
            return PhaseEnd.NODES
        if caps.wall_s is not None and seconds >= caps.wall_s:
            return PhaseEnd.WALL
        return None

    def affords(self, band: int) -> bool:
        """A launch from `band` is expected to fit into what is free, which is worth a launch."""
        free = self.free_tokens
        return free is None or free >= max(self._expected(band), self._budget.least)

    def reserve(self, band: int, *, room: int | None) -> Reservation:
        """Open one purchase; under a hard cap its quota is min(room, free)."""
        quota = self.free_tokens if self._budget.cap == "hard" else None
        if quota is not None and room is not None:
            quota = min(quota, room)
        reservation = Reservation(self._expected(band), quota)
        self._held += reservation.held
        self._launched += 1
        return reservation

    def pause(
        self, reservation: Reservation, band: int, *, tokens: int, turns: int, nodes: int
    ) -> Reservation:
        """Charge what a purchase used so far, and hold what the rest from `band` is expected to."""
        going_on = Reservation(self._expected(band))
        self._held += going_on.held - reservation.held
        self._charged += tokens
        self._tokens += tokens
        self._turns += turns
        self._nodes += nodes
        return going_on

    def settle(
        self,
        reservation: Reservation,
        *,
        tokens: int,
        turns: int = 0,
        nodes: int = 0,
        failed: bool = False,
        cut: bool = False,
    ) -> None:
        """Close one purchase with what it really used."""
        self._held -= reservation.held
        self._charged += reservation.charge(tokens, failed=failed)
        self._tokens += tokens
        self._turns += max(turns, 1)
        self._nodes += max(nodes, 1)
        self._failed += failed
        self._cut += cut and not failed

    def report(self, phase: int, end: PhaseEnd) -> PhaseReport:
        """The books, as a value."""
        over = 0 if self._budget.tokens is None else self._tokens - self._budget.tokens
        return PhaseReport(
            phase=phase,
            end=end,
            launched=self._launched,
            failed=self._failed,
            cut=self._cut,
            tokens=self._tokens,
            forfeited=self._charged - self._tokens,
            overshoot=max(0, over),
        )

    def _expected(self, band: int) -> int:
        budget = self._budget.tokens
        return (
            0 if budget is None else self._costs.expected(band, budget=budget, extent=self._extent)
        )
