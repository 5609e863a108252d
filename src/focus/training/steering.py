"""Which critic, prior and estimator a round uses: warm-up until the gate opens."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from focus.collect import Collection
from focus.credit import DirectBranchTd, LambdaTd, RefinedTd
from focus.credit.base import Estimator, target_returns
from focus.critic import Critic
from focus.training.gate import BaseRates, GateReport
from focus.tree import SuffixMeans

__all__ = ("OutcomeWindow", "Steering", "constant_like")


class OutcomeWindow:
    """What critic targets were made of in the last rounds, per depth; the source of the fitted
    constants.

    Attributes:
        first_guess: the constant before any round; a pilot's mean outcome.
    """

    def __init__(self, rounds: int, *, first_guess: float = 0.5) -> None:
        self.first_guess = first_guess
        self._rounds: deque[dict[int, tuple[int, float]]] = deque(maxlen=rounds)

    def add(self, collections: Iterable[Collection]) -> None:
        """Take in one round's trees."""
        sums: dict[int, tuple[int, float]] = {}
        for collection in collections:
            tree = collection.tree
            seen = SuffixMeans.of(tree, target_returns(tree, tree.header.returns))
            for node, count in enumerate(seen.counts):
                if count:
                    before, total = sums.get(tree[node].depth, (0, 0.0))
                    sums[tree[node].depth] = (before + count, total + count * seen.means[node])
        self._rounds.append(sums)

    def rates(self) -> BaseRates:
        """Best constants on the window."""
        totals: dict[int, tuple[int, float]] = {}
        for sums in self._rounds:
            for depth, (count, total) in sums.items():
                before = totals.get(depth, (0, 0.0))
                totals[depth] = (before[0] + count, before[1] + total)
        seen = sum(count for count, _ in totals.values())
        if not seen:
            return BaseRates(self.first_guess)
        constant = sum(total for _, total in totals.values()) / seen
        return BaseRates(constant, {depth: t / n for depth, (n, t) in sorted(totals.items())})

    def to_list(self) -> list[dict[str, list[float]]]:
        return [{str(d): [n, t] for d, (n, t) in sums.items()} for sums in self._rounds]

    def restore(self, stored: Iterable[Mapping[str, list[float]]]) -> None:
        self._rounds.clear()
        for sums in stored:
            self._rounds.append({int(d): (int(n), float(t)) for d, (n, t) in sums.items()})


def constant_like(learned: Critic, rates: BaseRates) -> Critic:
    """The fitted constant in place of a critic: in its range, reading what it reads.

    >>> constant_like(Critic.constant(0.9), BaseRates(-0.004)).version
    'constant-0'
    """
    low, high = learned.value_range
    value = min(high, max(low, round(rates.constant, 6)))
    return Critic.constant(value, value_range=(low, high), renderer=learned.renderer)


@dataclass
class Steering:
    """Warm-up and afterwards (docs/concepts/critic.md).

    Until the critic has passed its gate: search and credit use the fitted constant,
    actor credit and critic targets are RefinedTd's (mean suffix outcomes). After: the
    learned critic, DirectBranchTd and Ḡ. A critic that fails a later judgement loses the
    wheel again.

    Attributes:
        window: outcomes the constants are fitted to.
        decay: λ of LambdaTd, which then takes the place of both estimators, with λ = 1 while
            the gate is shut; None for RefinedTd and DirectBranchTd.
        report: last judgement.
        opened_round: first round after which the gate was open; None if never.
    """

    window: OutcomeWindow
    decay: float | None = None
    report: GateReport | None = None
    opened_round: int | None = None

    @property
    def is_open(self) -> bool:
        return self.report is not None and self.report.passed

    def critic(self, learned: Critic) -> Critic:
        """The critic that collects the next round."""
        if self.is_open:
            return learned
        return constant_like(learned, self.window.rates())

    def credit(self) -> Estimator:
        """The estimator of the next round."""
        if self.decay is not None:
            return LambdaTd(decay=self.decay if self.is_open else 1.0)
        return DirectBranchTd() if self.is_open else RefinedTd()

    def judged(self, report: GateReport, *, round_index: int) -> None:
        """Take a new judgement."""
        self.report = report
        if report.passed and self.opened_round is None:
            self.opened_round = round_index

    def to_dict(self) -> dict[str, Any]:
        return {
            "window": self.window.to_list(),
            "report": None if self.report is None else self.report.to_dict(),
            "opened_round": self.opened_round,
        }

    def restore(self, stored: Mapping[str, Any]) -> None:
        self.window.restore(stored["window"])
        report = stored["report"]
        self.report = None if report is None else GateReport(**report)
        self.opened_round = stored["opened_round"]
