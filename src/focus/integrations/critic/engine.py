"""Forward, backward and state of a critic on one process or many, by accelerate.

Imported on first use only. Plain, data-parallel and sharded (FSDP) modules go the same
way: `accelerate launch` decides which it is.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)

from focus._extras import require
from focus.critic.modules import to_range
from focus.critic.scoring import ScoreBatch, TrainableValue
from focus.errors import ConfigError, CriticError
from focus.integrations.critic.loss import regression_errors
from focus.integrations.critic.material import Example
from focus.integrations.critic.settings import CriticTraining
from focus.models.weights import stored_weights
from focus.records.records import CriticContext

__all__ = ("Engine", "StepFacts", "load_module", "read_state", "save_state")

T = TypeVar("T")

_MODULE = "module.safetensors"
_OPTIMIZER = "optimizer.safetensors"
_GROUPS = "groups"
_FULL = StateDictOptions(full_state_dict=True, cpu_offload=True)


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What one optimizer step did, over all processes.

    Attributes:
        loss: weighted mean error before the step.
        tokens: ids read.
        grad_norm: before clipping.
    """

    loss: float
    tokens: int
    grad_norm: float


class Engine:
    """A value model and its AdamW under accelerate.

    Args:
        settings: how to train.
        device: ``"cpu"`` keeps it off an accelerator; None takes what there is.

    Raises:
        MissingExtra: accelerate is not installed.
        ConfigError: it cannot give this device or precision, or gave this process another.
    """

    def __init__(self, settings: CriticTraining, *, device: str | None = None) -> None:
        accelerate = require("accelerate", extra="critic")
        self.settings = settings
        precision = _precision(settings, device)
        try:
            self._accelerator = accelerate.Accelerator(
                mixed_precision=precision, cpu=device == "cpu"
            )
        except ValueError as error:
            # accelerate keeps one state per process and refuses a second, different one.
            raise ConfigError(f"no training on {device or 'this device'}: {error}") from error

    def take(self, model: TrainableValue) -> None:
        """Train this model from now on, in place; a call of every process."""
        self.model = model
        # Whether it reads trees is found out on the bare module, once: a sharded one cannot say.
        model.score_batches([], batch_tokens=self.settings.batch_tokens)
        self.parameters = sum(parameter.numel() for parameter in model.module.parameters())
        self.peak_rate = self.settings.peak_rate(self.parameters)
        optimizer = torch.optim.AdamW(
            model.module.parameters(), lr=self.peak_rate, weight_decay=self.settings.weight_decay
        )
        self._module, self._optimizer = self._accelerator.prepare(model.module, optimizer)

    def schedule(self, steps: int) -> Callable[[int], float]:
        """Learning rate by step (from 0): a rise, then a cosine that ends near 0."""
        transformers = require("transformers", extra="critic")
        rise = round(self.settings.warmup * steps)
        # A scheduler leaves marks on its optimizer, so it gets one that nobody steps.
        stand_in = torch.optim.SGD([torch.zeros(1)], lr=1.0)
        scheduler = transformers.get_cosine_schedule_with_warmup(stand_in, rise, steps + 1)
        share: Callable[[int], float] = scheduler.lr_lambdas[0]
        return lambda step: self.peak_rate * share(step + 1)

    @property
    def device(self) -> Any:
        """Where this process computes."""
        return self._accelerator.device

    def wait(self) -> None:
        """Until every process is here."""
        self._accelerator.wait_for_everyone()

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes."""
        return bool(self._accelerator.is_main_process)

    def shared(self, value: T) -> T:
        """The main process's value, in every process."""
        box = [value]
        require("accelerate.utils", extra="critic").broadcast_object_list(box)
        return box[0]

    def step(self, prompts: Sequence[Sequence[Example]], *, rate: float) -> StepFacts:
        """One optimizer step on whole prompts: loss Σ w·error / Σ w over all of them.

        Every process is given the same prompts and takes its share.

        Raises:
            CriticError: the gradient is not finite; no step was taken.
        """
        total = math.fsum(example.weight for prompt in prompts for example in prompt)
        if not total:
            return StepFacts(0.0, 0, 0.0)
        mine = self._share([example for prompt in prompts for example in prompt], prompts)
        batches = self._passes([example.context for example in mine])
        processes = self._accelerator.num_processes
        loss, tokens = 0.0, 0.0
        for number, (batch, counts) in enumerate(batches):
            last = number == len(batches) - 1
            with contextlib.nullcontext() if last else self._accelerator.no_sync(self._module):
                logits = self._module(**batch.inputs)
                members = [mine[member] for member in batch.members]
                errors = self._errors(logits, members).sum() / total
                self._accelerator.backward(errors * processes * counts)
            loss += float(errors.detach()) * counts
            tokens += batch.tokens * counts
        norm = self._clip_and_step(rate)
        loss, tokens = self._summed(loss, tokens)
        return StepFacts(loss, int(tokens), norm)

    def _errors(self, logits: Any, examples: Sequence[Example]) -> Any:
        return regression_errors(logits, examples, self.settings, self.model.reading)

    def _share(
        self, examples: Sequence[Example], prompts: Sequence[Sequence[Example]]
    ) -> list[Example]:
        """This process's prompts, whole; one example of no consequence where it has none."""
        rank, processes = self._accelerator.process_index, self._accelerator.num_processes
        mine = [example for prompt in prompts[rank::processes] for example in prompt]
        return mine or [_weightless(examples[0])]

    def _passes(self, contexts: Sequence[CriticContext]) -> list[tuple[ScoreBatch, bool]]:
        """Forward passes, as many in every process: some are repeated and do not count."""
        batches = self.model.score_batches(contexts, batch_tokens=self.settings.batch_tokens)
        count = torch.tensor([len(batches)], device=self._accelerator.device)
        most = int(self._accelerator.gather(count).max())
        own = [(batch, True) for batch in batches]
        return [*((batches[0], False) for _ in range(most - len(own))), *own]

    def _clip_and_step(self, rate: float) -> float:
        norm = float(
            self._accelerator.clip_grad_norm_(self._module.parameters(), self.settings.grad_norm)
        )
        if not math.isfinite(norm):
            self._optimizer.zero_grad(set_to_none=True)
            raise CriticError(f"the critic's gradient is {norm}; lower the learning rate")
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return norm

    def _summed(self, *numbers: float) -> list[float]:
        """Sums over processes."""
        here = torch.tensor(numbers, dtype=torch.float32, device=self._accelerator.device)
        summed: list[float] = self._accelerator.reduce(here, reduction="sum").tolist()
        return summed

    def values(self, contexts: Sequence[CriticContext]) -> list[float]:
        """Values of the weights as they are, each process scoring its share."""
        if not contexts:
            return []
        rank, processes = self._accelerator.process_index, self._accelerator.num_processes
        places = list(range(len(contexts)))[rank::processes] or [0]
        found: dict[int, float] = {}
        with torch.inference_mode():
            for batch, counts in self._passes([contexts[place] for place in places]):
                logits = self._module(**batch.inputs)
                values = to_range(logits.float(), self.model.reading).tolist()
                if counts:
                    found.update(zip((places[m] for m in batch.members), values, strict=True))
        gathered = require("accelerate.utils", extra="critic").gather_object([found])
        whole = {place: value for part in gathered for place, value in part.items()}
        return [whole[place] for place in range(len(contexts))]

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Whole module and optimizer state on the CPU; a call of every process."""
        return get_state_dict(self._module, self._optimizer.optimizer, options=_FULL)

    def load(self, folder: Path) -> None:
        """Restore what `save_state` wrote; a call of every process.

        Raises:
            StoreError: it is damaged, or of another model.
        """
        module, optimizer = read_state(folder)
        with stored_weights(folder):
            set_state_dict(
                self._module,
                self._optimizer.optimizer,
                model_state_dict=module,
                optim_state_dict=optimizer,
                options=_FULL,
            )


def save_state(state: tuple[dict[str, Any], dict[str, Any]], folder: Path) -> None:
    """Write `Engine.state` as safetensors: tensors by name, the rest as JSON."""
    safetensors = require("safetensors.torch", extra="critic")
    module, optimizer = state
    safetensors.save_file(_apart(module), folder / _MODULE)
    moments = {
        f"{name}|{key}": torch.as_tensor(value)
        for name, entry in optimizer["state"].items()
        for key, value in entry.items()
    }
    groups = json.dumps(optimizer["param_groups"], allow_nan=False)
    safetensors.save_file(_apart(moments), folder / _OPTIMIZER, metadata={_GROUPS: groups})


def read_state(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inverse of `save_state`.

    Raises:
        StoreError: a file is missing or damaged.
    """
    safetensors = require("safetensors", extra="critic")
    with stored_weights(folder):
        module = require("safetensors.torch", extra="critic").load_file(folder / _MODULE)
        with safetensors.safe_open(folder / _OPTIMIZER, framework="pt") as stored:
            groups = json.loads((stored.metadata() or {})[_GROUPS])
            entries: dict[str, dict[str, Any]] = {}
            for full in stored.keys():  # noqa: SIM118
                name, _, key = full.partition("|")
                entries.setdefault(name, {})[key] = stored.get_tensor(full)
    return module, {"state": entries, "param_groups": groups}


def load_module(model: TrainableValue, folder: Path) -> None:
    """The weights of a checkpoint, into a model that nobody trains.

    Raises:
        StoreError: they are damaged, or of another model.
    """
    module, _ = read_state(folder)
    with stored_weights(folder):
        model.module.load_state_dict(module)


def _apart(tensors: dict[str, Any]) -> dict[str, Any]:
    """Each tensor in memory of its own, as safetensors wants it."""
    return {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}


def _weightless(example: Example) -> Example:
    return Example(example.record, example.context, example.target, 0.0, example.prior)


def _precision(settings: CriticTraining, device: str | None) -> str:
    if settings.precision == "auto":
        on_cuda = device != "cpu" and torch.cuda.is_available()
        return "bf16" if on_cuda and torch.cuda.is_bf16_supported() else "no"
    return "no" if settings.precision == "fp32" else "bf16"
