"""A comparison: which methods on which task, tuned on one seed, run on fresh ones."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.learning.books import PRICES
from bench.learning.methods import METHODS
from bench.learning.report import Curve, best_rates
from bench.learning.tasks import FAMILIES
from bench.learning.trial import TrialSpec

from focus.errors import ConfigError

__all__ = ("REGISTERED", "Comparison", "Grid", "Registration", "read_registration")

REGISTERED = Path(__file__).with_name("preregistered.toml")
BATCH = ("prompts", "minibatches", "tokens_per_prompt")
"""What a cell of the grid says besides the rate; the last may be left out."""
STEPS = ("beta2", "warmup", "step_kl")
"""What a whole grid may say of the actor's steps."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Cells that a method is tuned on.

    Attributes:
        rates: learning rates.
        batches: (prompts, optimizer steps), or those and tokens per prompt.
        beta2, warmup, step_kl: see `TrialSpec`.
    """

    rates: tuple[float, ...]
    batches: tuple[tuple[int, ...], ...]
    beta2: float = 0.95
    warmup: int = 0
    step_kl: float = 0.0

    @property
    def cells(self) -> list[tuple[float, tuple[int, ...]]]:
        return [(rate, batch) for rate in self.rates for batch in self.batches]

    @property
    def steps(self) -> dict[str, Any]:
        """What it says of the actor's steps, by the names that `TrialSpec` has for it."""
        return {name: getattr(self, name) for name in STEPS}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What is run, before any of it is.

    Attributes:
        name: of the comparison, e.g. ``"A-chain-20"``.
        task, model: where every trial starts; "" is the task's own model.
        methods: rows.
        grid: of the methods that have none of their own.
        grids: of those that have.
        tuning_seed, tuning_share: the grid's seed, and its part of the budget.
        seeds: fresh ones: 0, 1, …
        budget: generated tokens of a final trial.
        tokens_per_prompt, evaluations, eval_problems, batch_tokens, grad_norm: see
            `TrialSpec`.

    Raises:
        ConfigError: an unknown task or method, or an empty grid.
    """

    name: str
    task: str
    model: str = ""
    methods: tuple[str, ...]
    grid: Grid
    grids: Mapping[str, Grid] = field(default_factory=dict)
    tuning_seed: int = 1000
    tuning_share: float = 0.4
    seeds: int = 5
    budget: int
    tokens_per_prompt: int
    evaluations: int = 16
    eval_problems: int = 256
    batch_tokens: int = 65536
    grad_norm: float = 1.0

    def __post_init__(self) -> None:
        if self.task not in FAMILIES:
            raise ConfigError(f"unknown task {self.task!r}; known: {', '.join(FAMILIES)}")
        if unknown := [name for name in self.methods if name not in METHODS]:
            known = ", ".join(METHODS)
            raise ConfigError(f"unknown method {', '.join(unknown)}; known: {known}")
        if strangers := [name for name in self.grids if name not in self.methods]:
            raise ConfigError(f"comparison {self.name!r}: grid of {strangers[0]}, which is no row")
        grids = [self.grid, *self.grids.values()]
        batches = [batch for grid in grids for batch in grid.batches]
        if wrong := [batch for batch in batches if len(batch) not in (2, 3)]:
            raise ConfigError(f"comparison {self.name!r}: batch {wrong[0]} has not 2 or 3 numbers")
        if not (all(grid.cells for grid in grids) and self.seeds >= 1):
            raise ConfigError(f"comparison {self.name!r} has no rate, no batch or no seed")

    def grid_of(self, method: str) -> Grid:
        """What the method is tuned on."""
        return self.grids.get(method, self.grid)

    def cells(self, method: str) -> list[tuple[float, tuple[int, ...]]]:
        """Rates and batches that the method is tuned on."""
        return self.grid_of(method).cells

    def own(self, curves: Sequence[Curve]) -> list[Curve]:
        """The curves of this comparison's task, starting model, budgets and optimizers."""
        budgets = (self.budget, self._tuning_budget)

        def is_own(spec: Mapping[str, Any]) -> bool:
            steps = self.grid_of(spec["method"]).steps
            return (
                (spec["task"], spec["model"]) == (self.task, self.model)
                and spec["budget"] in budgets
                and {name: spec.get(name, getattr(Grid, name)) for name in STEPS} == steps
            )

        return [curve for curve in curves if is_own(curve["spec"])]

    @property
    def _tuning_budget(self) -> int:
        return round(self.tuning_share * self.budget)

    def tuning(self) -> list[TrialSpec]:
        """Every cell of every method's grid; of a grid of one cell nothing."""
        return [
            self._spec(
                method,
                learning_rate=rate,
                batch=batch,
                seed=self.tuning_seed,
                budget=self._tuning_budget,
                # As far apart as in the final trials.
                evaluations=max(2, round(self.tuning_share * self.evaluations)),
            )
            for method in self.methods
            for rate, batch in self.cells(method)
            if len(self.cells(method)) > 1
        ]

    def finals(self, tuned: Sequence[Curve]) -> list[TrialSpec]:
        """Fresh seeds at each method's best cell.

        Raises:
            ConfigError: a method has no tuning trial.
        """
        chosen = {
            method: (spec["learning_rate"], tuple(spec[name] for name in BATCH))
            for method, spec in best_rates(tuned).items()
        }
        chosen |= {m: self.cells(m)[0] for m in self.methods if len(self.cells(m)) == 1}
        if missing := [method for method in self.methods if method not in chosen]:
            raise ConfigError(f"{self.name}: no tuning trial of {', '.join(missing)} is there")
        # Seed by seed, so that a sweep which time ends has all methods equally often.
        return [
            self._spec(
                method,
                learning_rate=chosen[method][0],
                batch=chosen[method][1],
                seed=seed,
                budget=self.budget,
                evaluations=self.evaluations,
            )
            for seed in range(self.seeds)
            for method in self.methods
        ]

    def _spec(self, method: str, *, batch: tuple[int, ...], **settings: Any) -> TrialSpec:
        shape = {
            "tokens_per_prompt": self.tokens_per_prompt,
            **dict(zip(BATCH, batch, strict=False)),
        }
        return TrialSpec(
            task=self.task,
            model=self.model,
            method=method,
            eval_problems=self.eval_problems,
            batch_tokens=self.batch_tokens,
            grad_norm=self.grad_norm,
            **self.grid_of(method).steps,
            **shape,
            **settings,
        )


@dataclass(frozen=True, kw_only=True)
class Registration:
    """What a pre-registration file says.

    Attributes:
        date: when it was decided.
        prices: of a token, by kind.
        recipes: options of `bench.learning.warm`, by the name of the starting model.
        comparisons: by name.
    """

    date: str
    prices: Mapping[str, float]
    recipes: Mapping[str, Mapping[str, str | float]]
    comparisons: Mapping[str, Comparison]


def read_registration(path: Path = REGISTERED, *, models: Path = Path("models")) -> Registration:
    """Read a pre-registration.

    Args:
        path: the file.
        models: folder of the starting models that it names.

    Raises:
        ConfigError: a value that the bench does not know.
    """
    stored = tomllib.loads(path.read_text(encoding="utf-8"))
    comparisons = {}
    for name, table in stored["comparison"].items():
        model = str(models / table.pop("model")) if "model" in table else ""
        try:
            grids = {method: _grid(grid) for method, grid in table.pop("grids", {}).items()}
            methods, grid = tuple(table.pop("methods")), _grid(table)
            comparisons[name] = Comparison(
                name=name, model=model, methods=methods, grid=grid, grids=grids, **table
            )
        except (KeyError, TypeError) as error:
            raise ConfigError(f"{path.name}: comparison {name!r}: {error}") from error
    prices = {**PRICES, **stored.get("prices", {})}
    return Registration(
        date=str(stored["date"]),
        prices=prices,
        recipes=stored.get("model", {}),
        comparisons=comparisons,
    )


def _grid(table: dict[str, Any]) -> Grid:
    """Take a grid's values out of a table."""
    rates, batches = table.pop("rates"), table.pop("batches")
    others = {name: table.pop(name) for name in STEPS if name in table}
    return Grid(rates=tuple(rates), batches=tuple(map(tuple, batches)), **others)
