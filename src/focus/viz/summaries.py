"""Results as a person wants to read them: of a training run and of a collection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from focus.viz.glyphs import Glyphs
from focus.viz.numbers import count, duration, fraction, interval, signed

__all__ = ("books_rows", "collection_rows", "training_rows")

Rows = Iterable[tuple[str, str]]

_RATIOS = (
    ("eta_gen", "used of generated tokens"),
    ("eta_prefill", "needed of computed prefill tokens"),
    ("eta_req", "needed of calls to the policy"),
    ("eta_critic", "needed of critic calls"),
    ("eta_learn", "distinct of learner tokens"),
)


def training_rows(summary: Mapping[str, Any], *, glyphs: Glyphs) -> Rows:
    """Accuracy, critic and cost of a finished run."""
    before, after = summary["accuracy_before"], summary["accuracy_after"]
    ends = summary["accuracy_ci95"]
    yield (
        "accuracy",
        f"{fraction(before)} {interval(ends['before'])} {glyphs.arrow} "
        f"{fraction(after)} {interval(ends['after'])}  ({signed(after - before)})",
    )
    yield (
        "measured on",
        f"{summary['eval_problems']} held-out problems, solved once each; intervals of 95 %",
    )
    if summary.get("critic_brier") is not None:
        yield (
            "critic",
            f"Brier {summary['critic_brier']:.4f} against {summary['constant_brier']:.4f} "
            f"of the best constant; {_gate(summary)}",
        )
    yield (
        "spent",
        f"{count(summary['tokens_generated'])} tokens in {summary['rounds']} rounds, "
        f"{summary['optimizer_steps']} actor steps, {duration(summary['train_wall_s'])}",
    )
    if summary.get("learner_tokens"):
        yield (
            "learner",
            f"{count(summary['learner_tokens'])} tokens computed, {summary['eta_learn']:.1%} of "
            "them distinct (eta_learn)",
        )


def _gate(summary: Mapping[str, Any]) -> str:
    opened = summary.get("critic_gate_round")
    if opened is None:
        report = summary.get("critic_gate_last") or {}
        return f"it never steered ({report.get('reason', 'not judged')})"
    return f"it passed its gate after round {opened}"


def collection_rows(summary: Mapping[str, Any], *, glyphs: Glyphs) -> Rows:
    """Rows, outcomes and cost of a collection."""
    left = {name: summary[name] for name in ("bad", "failed", "left") if summary[name]}
    others = "".join(f", {number} {name}" for name, number in left.items())
    yield "rows", f"{summary['collected']} of {summary['rows']} collected{others}"
    if summary["collected"]:
        yield (
            "outcomes",
            f"{fraction(summary['success'])} of rollouts from the root succeed; "
            f"{summary['mixed']} trees hold both {glyphs.right} and {glyphs.wrong}",
        )
        yield (
            "records",
            f"{summary['actor_records']} for the actor, {summary['critic_records']} for the critic",
        )


def books_rows(ledger: Mapping[str, Any]) -> Rows:
    """Tokens, requests and how close each came to what any collector must spend."""
    yield (
        "tokens",
        f"{count(ledger['tokens_generated'])} generated, {count(ledger['tokens_wasted'])} wasted, "
        f"{count(ledger['tokens_trained'])} trained",
    )
    yield (
        "requests",
        f"{ledger['requests_sent']} sent, {ledger['requests_accepted']} accepted, "
        f"{ledger['requests_failed']} failed, {ledger['requests_cancelled']} cancelled, "
        f"{ledger.get('requests_late', 0)} late",
    )
    yield (
        "expansions",
        f"{ledger['expansions_started']} started, {ledger['expansions_completed']} completed, "
        f"{ledger['expansions_cut']} cut, {ledger['expansions_failed']} failed",
    )
    for name, meaning in _RATIOS:
        if ledger.get(name) is not None:
            yield name, f"{ledger[name]:.3f}  {meaning} (1 is best)"
