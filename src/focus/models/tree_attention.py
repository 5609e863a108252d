"""Run a causal model over prefix trees: each distinct token once, each path as if alone."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from focus._extras import require
from focus.errors import ConfigError
from focus.models.flex import block_mask, can_flex, switched_to_flex
from focus.records.packed_tree import PackedTree
from focus.records.prefix_tree import PrefixTree, distinct_tokens, prefix_trees
from focus.tokens import TokenIds

__all__ = ("TreeBatch", "packed_inputs", "tree_batches")

TREE_TOKENS = 768
"""Distinct tokens that one tree may have in any case: attention costs their square.

With 1024 a 0.9M model, whose own limit this is, took a seventh longer to learn chains of 20 steps.
"""

MOST_REPEATED = 1 / 20
"""Above this share of tokens that cuts repeat, flex attention is tried, which needs no cuts."""

MOST_PADDING = 1 / 32
"""Largest share of padding in a pass."""

_TOLERANCE = 1e-3
_checked: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
_flexes: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class TreeBatch:
    """A few trees as one padded forward pass.

    Attributes:
        trees: row r of the batch holds tree r.
        inputs: keyword arguments of the model: ``input_ids`` [rows, n], ``position_ids``
            [rows, n], ``attention_mask``: additive [rows, 1, n, n], or a block mask.
    """

    trees: tuple[PrefixTree, ...]
    inputs: dict[str, Any]

    @property
    def computed(self) -> int:
        """Tokens that the pass computes, padding included."""
        return int(self.inputs["input_ids"].numel())


def tree_batches(
    model: Any, sequences: Sequence[TokenIds], *, batch_tokens: int, may_flex: bool = False
) -> list[TreeBatch]:
    """Forward passes that cover `sequences`, at most `batch_tokens` padded tokens each.

    Trees of about equal size share a pass, so that at most 1/32 of its tokens is padding.
    A model that does not honour a tree mask (checked once per model, against plain
    passes) gets every sequence by itself: slower, the same numbers.

    Args:
        model: of transformers, or any module that takes the same inputs.
        sequences: token ids, from the first one on.
        batch_tokens: of one pass.
        may_flex: on CUDA, trees that would have to be cut are computed whole, by flex
            attention, if the model can; it is then switched to that for good.
    """
    limit = min(batch_tokens, _tree_tokens(model))
    is_flex = False
    if not _honours_trees(model):
        trees = [tree for index in range(len(sequences)) for tree in _alone(sequences, index)]
    else:
        trees = prefix_trees(sequences, most_tokens=limit)
        held, needed = sum(len(tree.ids) for tree in trees), distinct_tokens(sequences)
        if may_flex and held > (1 + MOST_REPEATED) * needed and _flexes_trees(model):
            trees = prefix_trees(sequences, most_tokens=batch_tokens)
            is_flex = True
    rows: list[list[PrefixTree]] = []
    for tree in sorted(trees, key=lambda tree: len(tree.ids)):
        if rows and _fits(rows[-1], tree, batch_tokens):
            rows[-1].append(tree)
        else:
            rows.append([tree])
    return [_batch(model, row, is_flex=is_flex) for row in rows]


def _tree_tokens(model: Any) -> int:
    """Tokens at which attention costs what the rest of the model does: 4n²d against 24nd²."""
    hidden = getattr(getattr(model, "config", None), "hidden_size", 0) or 0
    return max(TREE_TOKENS, 6 * int(hidden))


def _fits(row: Sequence[PrefixTree], tree: PrefixTree, batch_tokens: int) -> bool:
    """Whether a pass has room for one more tree, which is no smaller than those it holds."""
    padded = (len(row) + 1) * len(tree.ids)
    held = sum(len(other.ids) for other in row) + len(tree.ids)
    return padded <= batch_tokens and padded - held <= padded * MOST_PADDING


def packed_inputs(model: Any, packed: Sequence[PackedTree]) -> dict[str, Any]:
    """Packed trees as they are, as one padded pass: token i of tree r stands at [r, i].

    For a trainer of your own; the logits that a token was drawn from are its parent's
    (docs/how-to/tree-packing.md).

    Returns:
        Keyword arguments of the model, as `TreeBatch.inputs`.

    Raises:
        ConfigError: the model does not honour a tree mask; give it rows (`path_records`).
    """
    if not _honours_trees(model):
        raise ConfigError(
            f"{type(model).__name__} does not honour a tree mask; train it on rows: "
            "focus.records.path_records(packed)"
        )
    arrays = require("focus.models.packed_arrays", extra="local")
    rows = [arrays.token_arrays(tree) for tree in packed]
    return _inputs(model, [(row.ids, row.positions, row.ends) for row in rows])


def _alone(sequences: Sequence[TokenIds], index: int) -> list[PrefixTree]:
    ids = sequences[index]
    span = tuple(range(len(ids)))
    return [PrefixTree(ids, span, (len(ids),) * len(ids), (span,), (index,))]


def _batch(model: Any, trees: Sequence[PrefixTree], *, is_flex: bool = False) -> TreeBatch:
    rows = [(tree.ids, tree.positions, tree.ends) for tree in trees]
    return TreeBatch(tuple(trees), _inputs(model, rows, is_flex=is_flex))


def _inputs(
    model: Any, rows: Sequence[tuple[Any, Any, Any]], *, is_flex: bool = False
) -> dict[str, Any]:
    """Ids, positions and ends of each row, padded, with the mask that they amount to."""
    torch = require("torch", extra="local")
    width = max(len(ids) for ids, _, _ in rows)
    ids = torch.zeros((len(rows), width), dtype=torch.long)
    positions = torch.zeros_like(ids)
    ends = torch.arange(1, width + 1).repeat(len(rows), 1)
    for row, columns in enumerate(rows):
        for padded, column in zip((ids, positions, ends), columns, strict=True):
            padded[row, : len(column)] = torch.as_tensor(column)
    # The mask is by far the largest input, so it is made where it is used.
    ends = ends.to(model.device)
    return {
        "input_ids": ids.to(model.device),
        "position_ids": positions.to(model.device),
        "attention_mask": block_mask(ends) if is_flex else _additive_mask(ends, model.dtype),
    }


def _additive_mask(ends: Any, dtype: Any) -> Any:
    """[rows, 1, n, n]: 0 where a token sees another, else as low as the type goes."""
    torch = require("torch", extra="local")
    place = torch.arange(ends.shape[1], device=ends.device)
    seen = (place[None, None, :] <= place[None, :, None]) & (
        place[None, :, None] < ends[:, None, :]
    )
    mask = torch.zeros(seen.shape, dtype=dtype, device=ends.device)
    mask.masked_fill_(~seen, torch.finfo(dtype).min)
    return mask[:, None]


def _honours_trees(model: Any) -> bool:
    """Whether a tree mask gives each path the states of its own plain pass."""
    known = _checked.get(model)
    if known is None:
        known = _checked[model] = _passes_check(model)
    return known


def _flexes_trees(model: Any) -> bool:
    """Whether the model attends by flex attention from now on."""
    known = _flexes.get(model)
    if known is None:
        known = can_flex(model) and switched_to_flex(
            model, lambda: _passes_check(model, is_flex=True) and _has_gradient(model)
        )
        _flexes[model] = known
    return known


def _has_gradient(model: Any) -> bool:
    """Whether a pass of the probe can be taken back; not every kernel can."""
    torch = require("torch", extra="local")
    [tree] = prefix_trees([(1, 2, 3), (1, 2, 4)], most_tokens=100)
    logits = model(**_batch(model, [tree], is_flex=True).inputs, use_cache=False)[0]
    chosen = [weight for weight in model.parameters() if weight.requires_grad][:1]
    found = torch.autograd.grad(logits.float().square().mean(), chosen, allow_unused=True)
    return all(part is not None and bool(part.isfinite().all()) for part in found)


def _passes_check(model: Any, *, is_flex: bool = False) -> bool:
    torch = require("torch", extra="local")
    size = int(model.get_input_embeddings().num_embeddings)
    sequences = [tuple((7 * i + k) % size for i in picks) for k, picks in enumerate(_PROBES)]
    sequences = [(1 % size, 2 % size, *ids) for ids in sequences]
    [tree] = prefix_trees(sequences, most_tokens=100)
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            inputs = _batch(model, [tree], is_flex=is_flex).inputs
            together = model(**inputs, use_cache=False)[0][0]
            for member, path in zip(tree.members, tree.paths, strict=True):
                ids = torch.tensor([sequences[member]], device=model.device)
                alone = model(input_ids=ids, use_cache=False)[0][0]
                scale = float(alone.abs().max()) + 1e-9
                if float((together[list(path)] - alone).abs().max()) > _TOLERANCE * scale:
                    return False
    except (TypeError, ValueError, RuntimeError):
        return False  # a model that refuses such masks is one that does not honour them
    finally:
        model.train(training)
    return True


_PROBES = ((3, 5, 8), (3, 9, 4, 6), (11, 2))
