"""The books of one collection: what was spent, on what, and how close to the limit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from focus.credit.base import Credit
from focus.execution import RequestCounts
from focus.records.packed_tree import PackedTree, PolicyRecord
from focus.tokens import TokenIds
from focus.tree import Tree

__all__ = ("ExpansionCounts", "Ledger", "total")


@dataclass(slots=True)
class ExpansionCounts:
    """Books of expansions: started = completed + failed + cancelled + cut.

    `cut` ones were stopped by ``extent`` or a hard cap; `lost_tokens` were sampled by edges
    that no node holds.
    """

    started: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    cut: int = 0
    lost_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Token, request and critic books of one or more trees.

    Attributes:
        tokens_generated: sampled ids, discarded and lost ones included.
        tokens_wasted: of these, ids that no edge of a tree holds.
        tokens_used: ids of edges that are trained or give a critic target its value.
        tokens_trained: ids with loss mask 1.
        tokens_submitted: prompt ids sent with requests that were answered.
        tokens_cached: of these, ids the server had cached; None if it does not tell.
        tokens_needed: prompt and observation ids that any collector must prefill once.
        tokens_distinct: prompt plus edge ids of the tree, each once.
        tokens_learner: ids of the actor records: prefix and response of each, or a packed tree's
            row; what a learner reads that computes records as they are.
        requests_*: books of requests; `requests_needed` = checkpoints that were continued.
        policy_calls: calls that carried them; siblings asked for together share one.
        expansions_*: books of expansions.
        critic_calls, critic_needed: predictions made; open checkpoints, those behind equal
            ids counted once.
    """

    trees: int = 1
    tokens_generated: int = 0
    tokens_wasted: int = 0
    tokens_used: int = 0
    tokens_trained: int = 0
    tokens_submitted: int = 0
    tokens_cached: int | None = 0
    tokens_needed: int = 0
    tokens_distinct: int = 0
    tokens_learner: int = 0
    requests_sent: int = 0
    requests_accepted: int = 0
    requests_failed: int = 0
    requests_cancelled: int = 0
    requests_late: int = 0
    requests_needed: int = 0
    policy_calls: int = 0
    expansions_started: int = 0
    expansions_completed: int = 0
    expansions_failed: int = 0
    expansions_cancelled: int = 0
    expansions_cut: int = 0
    critic_calls: int = 0
    critic_needed: int = 0

    @classmethod
    def of(
        cls,
        tree: Tree[Any],
        credit: Credit,
        actor: tuple[PolicyRecord, ...],
        *,
        requests: RequestCounts,
        expansions: ExpansionCounts,
        critic_calls: int,
    ) -> Ledger:
        """The books of one settled tree."""
        held = tree.sampled_tokens()
        wasted = requests.discarded_tokens + expansions.lost_tokens
        prompt = len(tree.header.prompt_ids)
        edge_ids = sum(len(span.ids) for node in tree.edges() for span in node.incoming.spans)
        continued = [node.id for node in tree if tree.children(node.id)]
        return cls(
            tokens_generated=held + wasted,
            tokens_wasted=wasted,
            tokens_used=sum(
                node.incoming.sampled_tokens
                for node in tree.edges()
                if node.id in credit.advantages or node.parent in credit.targets
            ),
            tokens_trained=sum(map(_trained, actor)),
            tokens_submitted=requests.prompt_tokens,
            tokens_cached=requests.cached_tokens,
            tokens_needed=prompt + edge_ids - held,
            tokens_distinct=prompt + edge_ids,
            tokens_learner=sum(map(_read, actor)),
            requests_sent=requests.sent,
            requests_accepted=requests.accepted,
            requests_failed=requests.failed,
            requests_cancelled=requests.cancelled,
            requests_late=requests.late,
            requests_needed=len(continued),
            policy_calls=requests.calls,
            expansions_started=expansions.started,
            expansions_completed=expansions.completed,
            expansions_failed=expansions.failed,
            expansions_cancelled=expansions.cancelled,
            expansions_cut=expansions.cut,
            critic_calls=critic_calls,
            critic_needed=_distinct_open(tree),
        )

    @property
    def balances(self) -> bool:
        """Both books close: nothing sent or started is unaccounted for."""
        return (
            self.requests_sent
            == self.requests_accepted
            + self.requests_failed
            + self.requests_cancelled
            + self.requests_late
            and self.expansions_started
            == self.expansions_completed
            + self.expansions_failed
            + self.expansions_cancelled
            + self.expansions_cut
        )

    def ratios(self) -> dict[str, float | None]:
        """Efficiency against the physical limit, 1 is best; None where nothing was counted.

        eta_gen = used / generated; eta_prefill = needed / uncached prefill; eta_req = needed
        requests / calls of the policy (1 only if siblings are asked for together);
        eta_critic = needed / calls; eta_learn = distinct / learner tokens.
        """
        uncached = (
            None if self.tokens_cached is None else self.tokens_submitted - self.tokens_cached
        )
        return {
            "eta_gen": _ratio(self.tokens_used, self.tokens_generated),
            "eta_prefill": None if uncached is None else _ratio(self.tokens_needed, uncached),
            "eta_req": _ratio(self.requests_needed, self.policy_calls),
            "eta_critic": _ratio(self.critic_needed, self.critic_calls),
            "eta_learn": _ratio(self.tokens_distinct, self.tokens_learner),
        }

    def to_dict(self) -> dict[str, Any]:
        """Counts and ratios as plain numbers."""
        return {**asdict(self), **self.ratios()}


def _trained(record: PolicyRecord) -> int:
    return record.trained_tokens if isinstance(record, PackedTree) else sum(record.loss_mask)


def _read(record: PolicyRecord) -> int:
    if isinstance(record, PackedTree):
        return record.size
    return len(record.prefix) + len(record.response)


def _distinct_open(tree: Tree[Any]) -> int:
    """Open checkpoints whose contexts differ."""
    numbers: dict[tuple[int, TokenIds], int] = {}
    number_of: list[int] = []
    for node in tree:
        above = -1 if node.parent is None or node.rebased is not None else number_of[node.parent]
        ids = (
            node.rebased if node.rebased is not None else () if node.edge is None else node.edge.ids
        )
        number_of.append(numbers.setdefault((above, ids), len(numbers)))
    return len({number_of[node.id] for node in tree if not node.is_terminal})


def _ratio(limit: int, spent: int) -> float | None:
    return limit / spent if spent else None


def total(ledgers: list[Ledger]) -> Ledger:
    """The sum of several books; cached tokens are unknown as soon as one is.

    >>> total([Ledger(tokens_generated=3), Ledger(tokens_generated=4)]).tokens_generated
    7
    """
    sums: dict[str, Any] = {name: 0 for name in Ledger.__dataclass_fields__}
    for ledger in ledgers:
        for name in sums:
            value = getattr(ledger, name)
            sums[name] = None if value is None or sums[name] is None else sums[name] + value
    return Ledger(**sums)
