"""A value model in this process: a causal backbone of its own and a scalar head.

V(context) = sigmoid(w · h + b), h the last hidden state at the context's final token. Causal
attention makes V of a prefix readable from any longer context, so contexts that are
prefixes of one another share one forward pass, in scoring and in training alike.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from focus._extras import require
from focus.errors import CriticError, StoreError
from focus.models.tree_attention import TreeBatch, tree_batches
from focus.models.weights import load_pretrained, stored_weights
from focus.records.records import CriticContext
from focus.tokens import TokenIds

__all__ = ("ValueModel",)

_HEAD = "value_head.safetensors"
_MANIFEST = "focus_critic.json"
_SCHEMA = "focus.value_model/1"


class ValueModel:
    """Backbone and head; scores contexts, and is trained by focus.integrations.local.

    Args:
        backbone: a Hugging Face base model (no language-model head).
        head: ``torch.nn.Linear(hidden, 1)``.
        version: names the snapshot.
        tokenizer_hash: contexts of another tokenizer are refused.
    """

    renderer = "token_chunk/1"

    def __init__(self, backbone: Any, head: Any, *, version: str, tokenizer_hash: str) -> None:
        self.backbone = backbone
        self.head = head
        self.version = version
        self.tokenizer_hash = tokenizer_hash

    @classmethod
    def from_pretrained(
        cls, folder: str | Path, *, version: str, tokenizer_hash: str
    ) -> ValueModel:
        """A fresh critic on the backbone of a causal language model: V starts at 0.5.

        Raises:
            StoreError: the folder's weights cannot be read.
        """
        torch = require("torch", extra="local")
        backbone = load_pretrained("AutoModel", folder, dtype=torch.float32)
        head = torch.nn.Linear(backbone.config.hidden_size, 1)
        torch.nn.init.zeros_(head.weight)
        torch.nn.init.zeros_(head.bias)
        return cls(backbone, head, version=version, tokenizer_hash=tokenizer_hash)

    def to(self, device: Any) -> None:
        """Move backbone and head."""
        self.backbone.to(device)
        self.head.to(device)

    def save(self, folder: str | Path) -> None:
        """Write backbone, head and manifest; weights as safetensors."""
        safetensors = require("safetensors.torch", extra="local")
        folder = Path(folder)
        self.backbone.save_pretrained(folder)
        safetensors.save_file(self.head.state_dict(), folder / _HEAD)
        manifest = {
            "schema": _SCHEMA,
            "version": self.version,
            "renderer": self.renderer,
            "tokenizer_hash": self.tokenizer_hash,
        }
        (folder / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")

    @classmethod
    def load(cls, folder: str | Path) -> ValueModel:
        """Read what `save` wrote.

        Raises:
            StoreError: no value model in that folder, damaged, or of another schema.
        """
        folder = Path(folder)
        manifest = _read_manifest(folder)
        safetensors = require("safetensors.torch", extra="local")
        with stored_weights(folder):
            head = safetensors.load_file(folder / _HEAD)
            model = cls.from_pretrained(
                folder, version=manifest["version"], tokenizer_hash=manifest["tokenizer_hash"]
            )
            model.head.load_state_dict(head)
        return model

    def ids(self, context: CriticContext) -> TokenIds:
        """The tokens that scoring and training both read.

        Raises:
            CriticError: no ids, another renderer, or another tokenizer.
        """
        if context.renderer != self.renderer or not context.ids:
            raise CriticError(
                f"critic {self.version} reads token ids of {self.renderer!r}, "
                f"got {context.renderer!r}"
            )
        if self.tokenizer_hash and context.tokenizer_hash != self.tokenizer_hash:
            raise CriticError(
                f"critic {self.version}: context of tokenizer {context.tokenizer_hash!r}, "
                f"trained on {self.tokenizer_hash!r}"
            )
        return context.ids

    def batches(self, contexts: Sequence[CriticContext], *, batch_tokens: int) -> list[TreeBatch]:
        """Forward passes that cover `contexts`, each distinct token once."""
        ids = [self.ids(context) for context in contexts]
        return tree_batches(self.backbone, ids, batch_tokens=batch_tokens)

    def values(self, batch: TreeBatch) -> tuple[Any, list[int]]:
        """Values of one batch's contexts, with gradient.

        Returns:
            A 1-d tensor of values in (0, 1) and the context index of each.
        """
        torch = require("torch", extra="local")
        reads = [
            (row, path[-1], member)
            for row, tree in enumerate(batch.trees)
            for member, path in zip(tree.members, tree.paths, strict=True)
        ]
        rows, places, members = (list(column) for column in zip(*reads, strict=True))
        output = self.backbone(**batch.inputs, use_cache=False)
        hidden = output.last_hidden_state[rows, places]
        return torch.sigmoid(self.head(hidden.float())).squeeze(-1), members

    def predict(
        self, contexts: Sequence[CriticContext], *, batch_tokens: int = 8192
    ) -> list[float]:
        """One value per context, without gradient."""
        torch = require("torch", extra="local")
        results = [0.0] * len(contexts)
        with torch.inference_mode():
            for batch in self.batches(contexts, batch_tokens=batch_tokens):
                values, members = self.values(batch)
                for member, value in zip(members, values.tolist(), strict=True):
                    results[member] = value
        return results


def _read_manifest(folder: Path) -> dict[str, str]:
    manifest: Any
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreError(f"{folder}: no readable {_MANIFEST}: {error}") from error
    schema = manifest.get("schema") if isinstance(manifest, dict) else None
    if schema != _SCHEMA:
        raise StoreError(f"{folder}: schema {schema!r}, expected {_SCHEMA!r}")
    for name in ("version", "renderer", "tokenizer_hash"):
        if not isinstance(manifest.get(name), str):
            raise StoreError(f"{folder}: {_MANIFEST} has no text {name!r}")
    if manifest["renderer"] != ValueModel.renderer:
        raise StoreError(
            f"{folder}: reads {manifest['renderer']!r}, this version {ValueModel.renderer!r}"
        )
    return {name: manifest[name] for name in ("version", "renderer", "tokenizer_hash")}
