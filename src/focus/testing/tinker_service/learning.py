"""A model under training: accumulates gradients, steps, is saved and restored whole."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from focus.models.tree_attention import tree_batches
from focus.models.weights import load_pretrained
from focus.testing.tinker_service.losses import checked, summed_loss
from focus.testing.tinker_service.wire import BadRequest, Batch, Row, write_outputs

__all__ = ("SavedState", "StepCrash", "Trainee")

_BATCH_TOKENS = 4096


class StepCrash(RuntimeError):
    """An exception in the middle of a step, asked for by a fault."""


@dataclass(frozen=True, slots=True)
class SavedState:
    """What `save_weights` keeps: it outlives the service process.

    Attributes:
        base_model, rank: as the model was made.
        weights, optimizer: tensors.
        history: one digest per optimizer step that made these weights.
    """

    base_model: str
    rank: int
    weights: Mapping[str, Any]
    optimizer: Mapping[str, Any]
    history: tuple[str, ...]


class Trainee:
    """One training client's model.

    Args:
        base_model: name that clients use.
        folder: where its weights are.
        rank: noted.

    All weights are trained, in float32: where the service has a low-rank update, this one
    has the whole matrix, so that its gradients are those of a local trainer.

    Attributes:
        history: one digest per optimizer step, of the batches that it applied.
    """

    def __init__(self, base_model: str, folder: Path, *, rank: int) -> None:
        self.base_model = base_model
        self.rank = rank
        self.module = load_pretrained("AutoModelForCausalLM", folder, dtype=torch.float32)
        self.optimizer = torch.optim.AdamW(self.module.parameters(), weight_decay=0.0)
        self.history: tuple[str, ...] = ()
        self._batches: list[str] = []

    @classmethod
    def restored(cls, state: SavedState, folder: Path, *, with_optimizer: bool) -> Trainee:
        """A model that goes on from a saved state."""
        trainee = cls(state.base_model, folder, rank=state.rank)
        trainee.module.load_state_dict(state.weights)
        if with_optimizer:
            trainee.optimizer.load_state_dict(copy.deepcopy(dict(state.optimizer)))
        trainee.history = state.history
        return trainee

    def state(self) -> SavedState:
        """A copy of everything."""
        return SavedState(
            base_model=self.base_model,
            rank=self.rank,
            weights=self.weights(),
            optimizer=copy.deepcopy(self.optimizer.state_dict()),
            history=self.history,
        )

    def weights(self) -> dict[str, Any]:
        """A copy of the weights."""
        return {name: value.clone() for name, value in self.module.state_dict().items()}

    def gradients(self) -> dict[str, Any]:
        """What has been accumulated since the last step, by parameter."""
        return {
            name: parameter.grad.clone()
            for name, parameter in self.module.named_parameters()
            if parameter.grad is not None
        }

    def forward_backward(self, batch: Batch, *, crash: bool = False) -> bytes:
        """Add the batch's gradient, unless it asks for the forward pass only.

        Args:
            batch: as it came in.
            crash: fail when half of the gradient is in.

        Raises:
            BadRequest: nothing was added.
            StepCrash: as asked for.
        """
        for row in batch.rows:
            checked(batch.loss_fn, batch.config, row)
            self._check_ids(row)
        log_probs: list[Any] = [None] * len(batch.rows)
        total, done = 0.0, 0
        sequences = [row.tokens for row in batch.rows]
        for trees in tree_batches(self.module, sequences, batch_tokens=_BATCH_TOKENS):
            if crash and 2 * done >= len(batch.rows):
                raise StepCrash("an exception in the middle of a step")
            loss: Any = torch.zeros(())
            logits = self.module(**trees.inputs, use_cache=False).logits
            for place, tree in enumerate(trees.trees):
                table = torch.log_softmax(logits[place], dim=-1)
                for member, path in zip(tree.members, tree.paths, strict=True):
                    row = batch.rows[member]
                    found = _named(table[list(path)], row)
                    log_probs[member] = found.detach().numpy()
                    loss = loss + summed_loss(batch.loss_fn, batch.config, found, row)
                    done += 1
            if not batch.forward_only:
                loss.backward()
            total += float(loss.detach())
        if crash:
            raise StepCrash("an exception in the middle of a step")
        if not batch.forward_only:
            self._batches.append(batch.digest)
        return write_outputs(log_probs, loss=total)

    def _check_ids(self, row: Row) -> None:
        size = self.module.config.vocab_size
        targets = row.inputs["target_tokens"]
        if not (0 <= min(row.tokens) <= max(row.tokens) < size):
            raise BadRequest(f"an input id outside [0, {size})")
        if not (0 <= int(targets.min()) <= int(targets.max()) < size):
            raise BadRequest(f"a target id outside [0, {size})")

    def optim_step(self, adam: Mapping[str, float], *, crash: bool = False) -> dict[str, float]:
        """Take one Adam step on what has been accumulated.

        Args:
            adam: fields of AdamParams.
            crash: fail when half of the parameters have moved.

        Raises:
            StepCrash: as asked for.
        """
        [group] = self.optimizer.param_groups
        group["lr"] = adam["learning_rate"]
        group["betas"] = (adam["beta1"], adam["beta2"])
        group["eps"] = adam["eps"]
        group["weight_decay"] = adam["weight_decay"]
        most = adam["grad_clip_norm"] or float("inf")
        norm = torch.nn.utils.clip_grad_norm_(self.module.parameters(), most)
        if crash:
            self._half_a_step()
            raise StepCrash("an exception in the middle of a step")
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.history = (*self.history, "+".join(self._batches))
        self._batches = []
        return {"unclipped_grad_l2:mean": float(norm)}

    def _half_a_step(self) -> None:
        parameters = list(self.module.parameters())
        with torch.no_grad():
            for parameter in parameters[: len(parameters) // 2]:
                parameter.add_(torch.randn_like(parameter))


def _named(table: Any, row: Row) -> Any:
    """Log-probs of the ids that a datum names, in the shape of its targets."""
    targets = torch.tensor(row.inputs["target_tokens"])
    chosen = targets if targets.ndim == 2 else targets[:, None]
    found = table.gather(1, chosen)
    return found if targets.ndim == 2 else found.squeeze(1)
