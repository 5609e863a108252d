"""`focus critic publish`: a critic that was trained elsewhere, under the same checks."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

__all__ = ("Squash", "publish")


class Squash(StrEnum):
    """How a model's logit becomes a value."""

    SIGMOID = "sigmoid"
    CLAMP = "clamp"


def publish(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Hugging Face folder: one label, or a head.")
    ],
    store: Annotated[Path, typer.Option(help="Where it is published.")],
    records: Annotated[
        list[Path],
        typer.Option(metavar="FOLDER", help="Critic records it was trained on; may be repeated."),
    ],
    outcomes: Annotated[
        list[Path] | None,
        typer.Option(metavar="FOLDER", help="Fresh outcomes to judge on; may be repeated."),
    ] = None,
    outcome_rounds: Annotated[
        int, typer.Option(min=1, help="How many of their latest rounds count.")
    ] = 1,
    scores: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Contexts with its trainer's values, to compare with."),
    ] = None,
    squash: Annotated[
        Squash, typer.Option(help="sigmoid of the logit, or the logit itself kept in the range.")
    ] = Squash.SIGMOID,
    value_range: Annotated[
        tuple[float, float], typer.Option("--range", help="Lowest and highest value.")
    ] = (0.0, 1.0),
) -> None:
    """Publish a critic that was trained elsewhere, e.g. in Slime and converted.

    MODEL holds a sequence-classification model with one label, or a backbone with
    value_head.safetensors (weight [1, hidden], bias [1]) beside it. It is judged like one
    of focus critic train; without fresh outcomes it is published as not steering. --scores
    is a JSON-lines file of focus.critic.snapshot.encode_probes: a model that was converted
    wrongly is refused.

    \b
    Example:
      focus critic publish critic-hf --store runs/critics --records records --outcomes outcomes
    """
    from focus.cli.terminal import next_step, result_console, typed
    from focus.critic.snapshot import read_probes
    from focus.critic.store import SnapshotStore
    from focus.integrations.critic.foreign import publish_foreign

    snapshot = publish_foreign(
        model,
        SnapshotStore(store),
        records=records,
        outcomes=tuple(outcomes or ()),
        outcome_rounds=outcome_rounds,
        scores=None if scores is None else read_probes(scores),
        squash=squash.value,
        value_range=value_range,
    )
    console = result_console()
    console.print(f"{snapshot.version} {snapshot.verdict}", markup=False, soft_wrap=True)
    next_step(console, f"focus critic report {typed(store.resolve())}")
