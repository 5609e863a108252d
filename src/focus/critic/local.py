"""A value model in this process: a causal backbone of its own and a scalar head.

V(context) = sigmoid(w · h + b), h the last hidden state at the context's final token. Causal
attention makes V of a prefix readable from any longer context, so contexts that are
prefixes of one another share one forward pass, in scoring and in training alike.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from focus._extras import require
from focus.errors import CriticError, StoreError
from focus.models.weights import load_pretrained, stored_weights
from focus.records.records import CriticContext
from focus.tokens import TokenIds

__all__ = ("PrefixGroup", "ValueModel", "batches", "prefix_groups")

_HEAD = "value_head.safetensors"
_MANIFEST = "focus_critic.json"
_SCHEMA = "focus.value_model/1"


@dataclass(frozen=True, slots=True)
class PrefixGroup:
    """One sequence to run, and where the values of its prefixes are read.

    Attributes:
        ids: the longest context of the group.
        reads: (index of a context, position of its last token) pairs.
    """

    ids: TokenIds
    reads: tuple[tuple[int, int], ...]


def prefix_groups(contexts: Sequence[TokenIds]) -> list[PrefixGroup]:
    """Group contexts so that each one that is a prefix of another shares its sequence.

    Every index appears in exactly one group. In sorted order an extension follows its
    prefix, so each group is a run in which every context extends the one before.

    >>> [group.ids for group in prefix_groups([(1, 2), (1, 2, 3), (1,), (7,)])]
    [(1, 2, 3), (7,)]
    """
    order = sorted(range(len(contexts)), key=lambda index: contexts[index])
    groups: list[PrefixGroup] = []
    chain: list[int] = []
    for place, index in enumerate(order):
        chain.append(index)
        ids = contexts[index]
        follower = contexts[order[place + 1]] if place + 1 < len(order) else None
        if follower is None or follower[: len(ids)] != ids:
            reads = tuple((member, len(contexts[member]) - 1) for member in chain)
            groups.append(PrefixGroup(ids, reads))
            chain = []
    return groups


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

    def values(self, groups: Sequence[PrefixGroup]) -> tuple[Any, list[int]]:
        """Values of a few groups in one padded forward pass, with gradient.

        Returns:
            A 1-d tensor of values in (0, 1) and the context index of each.
        """
        torch = require("torch", extra="local")
        longest = max(len(group.ids) for group in groups)
        ids = torch.zeros((len(groups), longest), dtype=torch.long)
        mask = torch.zeros_like(ids)
        rows, columns, indices = [], [], []
        for row, group in enumerate(groups):
            ids[row, : len(group.ids)] = torch.tensor(group.ids)
            mask[row, : len(group.ids)] = 1
            for index, position in group.reads:
                rows.append(row)
                columns.append(position)
                indices.append(index)
        device = self.head.weight.device
        output = self.backbone(input_ids=ids.to(device), attention_mask=mask.to(device))
        hidden = output.last_hidden_state[rows, columns]
        return torch.sigmoid(self.head(hidden.float())).squeeze(-1), indices

    def predict(
        self, contexts: Sequence[CriticContext], *, batch_tokens: int = 8192
    ) -> list[float]:
        """One value per context, without gradient."""
        torch = require("torch", extra="local")
        groups = prefix_groups([self.ids(context) for context in contexts])
        results = [0.0] * len(contexts)
        with torch.inference_mode():
            for batch in batches(groups, batch_tokens=batch_tokens):
                values, indices = self.values(batch)
                for index, value in zip(indices, values.tolist(), strict=True):
                    results[index] = value
        return results


def batches(groups: Sequence[PrefixGroup], *, batch_tokens: int) -> list[list[PrefixGroup]]:
    """Cut into batches of at most `batch_tokens` padded tokens, similar lengths together."""
    result: list[list[PrefixGroup]] = []
    for group in sorted(groups, key=lambda g: len(g.ids)):
        if result and (len(result[-1]) + 1) * len(group.ids) <= batch_tokens:
            result[-1].append(group)
        else:
            result.append([group])
    return result


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
