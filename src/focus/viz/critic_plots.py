"""The critics of a store as one HTML page: plots as inline SVG, nothing fetched."""

from __future__ import annotations

import html
import io
from collections.abc import Callable, Sequence
from typing import Any

from focus._extras import require
from focus.training.judgement import Estimate, Judgement
from focus.viz.critics import Shown
from focus.viz.numbers import count, fraction, signed

__all__ = ("critics_html",)

_CRITIC, _CONSTANT, _DEPTH, _GREY = "#1b6ca8", "#b3541e", "#6b8e23", "#888888"
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem;
       color: #1d2329; background: #ffffff; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.verdict { padding: .6rem .9rem; border-left: 5px solid #b3541e; background: #fbf3ee; }
.verdict.yes { border-color: #2e7d32; background: #eef7ee; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid #e2e5e9; }
th:first-child, th:last-child, td:first-child, td:last-child { text-align: left; }
td:first-child { white-space: nowrap; }
tr.current { font-weight: 600; }
.plots { display: grid; gap: 1.5rem;
         grid-template-columns: repeat(auto-fit, minmax(min(24rem, 100%), 1fr)); }
.wide { overflow-x: auto; }
figure { margin: 0; } figcaption { color: #4a5560; font-size: .9rem; }
svg { width: 100%; height: auto; }
"""


def critics_html(critics: Sequence[Shown], *, current: str | None, chosen: str) -> str:
    """A page about every version, and about the chosen one in depth.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    shown = next(one for one in critics if one.snapshot.version == chosen)
    title = f"Critics: {chosen}"
    body = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p>{_about(shown)}</p>",
        _verdict(shown),
        '<div class="plots">',
        *_figures(critics, shown),
        "</div>",
        "<h2>All versions</h2>",
        _table(critics, current),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(body)}</body></html>\n"
    )


def _about(shown: Shown) -> str:
    facts = shown.snapshot.facts
    words = [f"Published {html.escape(shown.snapshot.created[:16].replace('T', ' '))} UTC"]
    words.append(f"trained on {count(facts.records.count)} records")
    if facts.parent:
        words.append(f"from {html.escape(facts.parent)}")
    if shown.judgement is not None:
        gate = shown.judgement.gate
        words.append(f"judged on {gate.samples} fresh outcomes of {gate.problems} problems")
    return ", ".join(words) + "."


def _verdict(shown: Shown) -> str:
    verdict = shown.snapshot.verdict
    kind = "verdict yes" if verdict.steering else "verdict"
    return f'<p class="{kind}">{html.escape(str(verdict))}</p>'


def _figures(critics: Sequence[Shown], shown: Shown) -> list[str]:
    figures = []
    judged = [(one.snapshot.version, one.judgement) for one in critics if one.judgement is not None]
    if shown.judgement is not None:
        judgement = shown.judgement
        figures.append(
            _figure(
                lambda axes: _reliability(axes, judgement),
                "Reliability: what came true where the critic said so. On the diagonal it is "
                "calibrated; flatter than it is over-confident. Bars: 95 %, problems resampled.",
            )
        )
        figures.append(
            _figure(
                lambda axes: _parts(axes, judgement),
                "Gain over the fitted constant in squared error, at roots and below them. "
                "Right of the line the critic is better.",
            )
        )
    if judged:
        figures.append(
            _figure(
                lambda axes: _history(axes, judged),
                "Squared error on fresh outcomes by version; the critic against constants.",
            )
        )
    errors = shown.snapshot.facts.metrics.get("held_out_by_pass")
    if isinstance(errors, list) and len(errors) > 1 and all(e is not None for e in errors):
        figures.append(
            _figure(
                lambda axes: _passes(axes, errors),
                "Error on held-out problems after each pass over the records; the pass with "
                "the lowest is published.",
            )
        )
    return figures


def _figure(draw: Callable[[Any], None], caption: str) -> str:
    """One plot as an inline SVG; text stays text."""
    matplotlib = require("matplotlib", extra="critic")
    figure_type = require("matplotlib.figure", extra="critic").Figure
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "focus", "font.size": 11}):
        figure = figure_type(figsize=(5.4, 3.8), layout="constrained")
        axes = figure.subplots()
        axes.spines[["top", "right"]].set_visible(False)
        draw(axes)
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata=_NO_METADATA, transparent=True)
    drawing = stream.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    label = html.escape(caption, quote=True)
    drawing = drawing.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
    return f"<figure>{drawing}<figcaption>{html.escape(caption)}</figcaption></figure>"


def _reliability(axes: Any, judgement: Judgement) -> None:
    bars = judgement.reliability
    most = max(bar.samples for bar in bars)
    axes.plot([0, 1], [0, 1], color=_GREY, linestyle="--", linewidth=1, zorder=1)
    axes.errorbar(
        [bar.prediction for bar in bars],
        [bar.outcome.mean for bar in bars],
        yerr=_spans([bar.outcome for bar in bars]),
        fmt="none",
        ecolor=_CRITIC,
        capsize=3,
        zorder=2,
    )
    axes.scatter(
        [bar.prediction for bar in bars],
        [bar.outcome.mean for bar in bars],
        s=[20 + 80 * bar.samples / most for bar in bars],
        color=_CRITIC,
        zorder=3,
    )
    axes.set(xlabel="predicted value", ylabel="mean outcome")


def _parts(axes: Any, judgement: Judgement) -> None:
    names = list(judgement.parts)
    gains = [judgement.parts[name].gain for name in names]
    rows = range(len(names))
    axes.axvline(0, color=_GREY, linestyle="--", linewidth=1)
    axes.errorbar(
        [gain.mean for gain in gains],
        rows,
        xerr=_spans(gains),
        fmt="o",
        color=_CRITIC,
        capsize=4,
    )
    axes.set_yticks(rows, names)
    axes.invert_yaxis()
    axes.margins(y=0.3)
    axes.set_xlabel("constant's error − critic's error")


def _history(axes: Any, judged: Sequence[tuple[str, Judgement]]) -> None:
    places = range(len(judged))
    whole = [judgement.parts["all"] for _, judgement in judged]
    for name, color, style, estimates in (
        ("critic", _CRITIC, "o-", [part.brier for part in whole]),
        ("constant", _CONSTANT, "s--", [part.constant_brier for part in whole]),
        ("best per depth", _DEPTH, "^:", [part.depth_brier for part in whole]),
    ):
        means = [estimate.mean for estimate in estimates]
        spans = _spans(estimates)
        axes.errorbar(places, means, yerr=spans, fmt=style, color=color, capsize=3, label=name)
    labels = [version.removeprefix("critic-").lstrip("0") or "0" for version, _ in judged]
    axes.set_xticks(places, labels)
    axes.set(xlabel="version", ylabel="mean squared error", ylim=(0, None))
    axes.legend(frameon=False)


def _passes(axes: Any, errors: Sequence[float]) -> None:
    passes = range(1, len(errors) + 1)
    axes.plot(passes, errors, "o-", color=_CRITIC)
    axes.set_xticks(passes)
    axes.set(xlabel="pass", ylabel="held-out error")


def _spans(estimates: Sequence[Estimate]) -> list[list[float]]:
    """Lengths below and above each mean."""
    return [
        [max(0.0, estimate.mean - estimate.low) for estimate in estimates],
        [max(0.0, estimate.high - estimate.mean) for estimate in estimates],
    ]


def _table(critics: Sequence[Shown], current: str | None) -> str:
    names = ("version", "records", "Brier", "constant", "gain", "root bias", "verdict")
    head = "".join(f"<th>{name}</th>" for name in names)
    rows = []
    for shown in critics:
        version = shown.snapshot.version
        whole = None if shown.judgement is None else shown.judgement.parts["all"]
        root = None if shown.judgement is None else shown.judgement.parts.get("root")
        cells = [
            f"{html.escape(version)}{' (current)' * (version == current)}",
            count(shown.snapshot.facts.records.count),
            fraction(None if whole is None else whole.brier.mean, digits=4),
            fraction(None if whole is None else whole.constant_brier.mean, digits=4),
            signed(None if whole is None else whole.gain.mean, digits=4),
            signed(None if root is None else root.bias.mean),
        ]
        line = "".join(f"<td>{cell}</td>" for cell in cells)
        words = html.escape(str(shown.snapshot.verdict))
        kind = ' class="current"' * (version == current)
        rows.append(f"<tr{kind}>{line}<td>{words}</td></tr>")
    body = "".join(rows)
    return (
        f'<div class="wide" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
