"""A value model in this process: a causal backbone of its own and a scalar head.

V(context) = sigmoid(w · h + b), stretched to the value range; h is the last hidden state at
the context's final token. Causal attention makes V of a prefix readable from any longer
context, so contexts that are prefixes of one another share one forward pass, in scoring and
in training alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from focus._extras import require
from focus.critic.reading import ModelKind, Reading, read_facts, write_facts
from focus.critic.scoring import ScoreBatch, predicted
from focus.errors import StoreError
from focus.models.tree_attention import TreeBatch, tree_batches
from focus.models.weights import load_pretrained, stored_weights
from focus.records.records import CriticContext
from focus.tokens import TokenIds

__all__ = ("ValueModel",)

HEAD = "value_head.safetensors"


class ValueModel:
    """Backbone and head; scores contexts, and is trained by focus.integrations.local.

    Args:
        backbone: a Hugging Face base model (no language-model head).
        head: ``torch.nn.Linear(hidden, 1)``.
        version: names the snapshot.
        tokenizer_hash: contexts of another tokenizer are refused.
        reading: more about what it reads; its own hash is replaced by `tokenizer_hash`.
    """

    kind: ModelKind = "backbone"

    def __init__(
        self,
        backbone: Any,
        head: Any,
        *,
        version: str,
        tokenizer_hash: str = "",
        reading: Reading | None = None,
    ) -> None:
        modules = require("focus.critic.modules", extra="local")
        self.backbone = backbone
        self.head = head
        self.module = modules.ScalarHead(backbone, head)
        self.version = version
        self.reading = reading or Reading(tokenizer_hash=tokenizer_hash)

    @property
    def renderer(self) -> str:
        return self.reading.renderer

    @property
    def tokenizer_hash(self) -> str:
        return self.reading.tokenizer_hash

    @property
    def value_range(self) -> tuple[float, float]:
        return self.reading.value_range

    @classmethod
    def from_pretrained(
        cls,
        folder: str | Path,
        *,
        version: str,
        tokenizer_hash: str = "",
        reading: Reading | None = None,
    ) -> ValueModel:
        """A fresh critic on the backbone of a causal language model: V starts at the middle.

        Raises:
            StoreError: the folder's weights cannot be read.
        """
        torch = require("torch", extra="local")
        backbone = load_pretrained("AutoModel", folder, dtype=torch.float32)
        head = torch.nn.Linear(backbone.config.hidden_size, 1)
        torch.nn.init.zeros_(head.weight)
        torch.nn.init.zeros_(head.bias)
        return cls(backbone, head, version=version, tokenizer_hash=tokenizer_hash, reading=reading)

    def to(self, device: Any) -> None:
        """Move backbone and head."""
        self.module.to(device)

    def save(self, folder: str | Path) -> None:
        """Write backbone, head and facts; weights as safetensors."""
        safetensors = require("safetensors.torch", extra="local")
        folder = Path(folder)
        self.backbone.save_pretrained(folder)
        safetensors.save_file(self.head.state_dict(), folder / HEAD)
        write_facts(folder, self.reading, kind=self.kind, version=self.version)

    @classmethod
    def load(cls, folder: str | Path) -> ValueModel:
        """Read what `save` wrote.

        Raises:
            StoreError: no value model in that folder, damaged, or of another schema.
        """
        folder = Path(folder)
        kind, version, reading = read_facts(folder)
        if kind != cls.kind:
            raise StoreError(f"{folder}: holds a {kind!r} value model, not a {cls.kind!r} one")
        model = cls.from_pretrained(folder, version=version, reading=reading)
        model.load_head(folder)
        return model

    def load_head(self, folder: Path) -> None:
        """Take the head of a folder: ``weight`` [1, hidden] and ``bias`` [1].

        Raises:
            StoreError: it is missing, damaged, or of another width.
        """
        safetensors = require("safetensors.torch", extra="local")
        with stored_weights(folder):
            self.head.load_state_dict(safetensors.load_file(folder / HEAD))

    def ids(self, context: CriticContext) -> TokenIds:
        """The tokens that scoring and training both read.

        Raises:
            CriticError: no ids, another renderer, or another tokenizer.
        """
        return self.reading.ids(context, version=self.version)

    def batches(self, contexts: Sequence[CriticContext], *, batch_tokens: int) -> list[TreeBatch]:
        """Forward passes that cover `contexts`, each distinct token once."""
        ids = [self.ids(context) for context in contexts]
        return tree_batches(self.backbone, ids, batch_tokens=batch_tokens)

    def score_batches(
        self, contexts: Sequence[CriticContext], *, batch_tokens: int
    ) -> list[ScoreBatch]:
        """The same as inputs of `module`."""
        return [_scoring(batch) for batch in self.batches(contexts, batch_tokens=batch_tokens)]

    def values(self, batch: TreeBatch) -> tuple[Any, list[int]]:
        """Values of one batch's contexts, with gradient.

        Returns:
            A 1-d tensor of values and the context index of each.
        """
        modules = require("focus.critic.modules", extra="local")
        scoring = _scoring(batch)
        logits = self.module(**scoring.inputs)
        return modules.to_range(logits, self.reading), list(scoring.members)

    def predict(
        self, contexts: Sequence[CriticContext], *, batch_tokens: int = 8192
    ) -> list[float]:
        """One value per context, without gradient."""
        return predicted(self, contexts, batch_tokens=batch_tokens)


def _scoring(batch: TreeBatch) -> ScoreBatch:
    """Read each context's state at its last token."""
    reads = [
        (row, path[-1], member)
        for row, tree in enumerate(batch.trees)
        for member, path in zip(tree.members, tree.paths, strict=True)
    ]
    rows, places, members = (list(column) for column in zip(*reads, strict=True))
    return ScoreBatch(
        inputs={**batch.inputs, "rows": rows, "places": places},
        members=tuple(members),
        tokens=sum(len(tree.ids) for tree in batch.trees),
    )
