"""Keys and values of the running batch, one slot per request."""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache

__all__ = ("SlotCache",)

_GROW = 64


class SlotCache(Cache):
    """A transformers cache whose rows are written at positions of their own.

    One tensor [layers, 2, slots, heads, positions, head size] holds everything; it grows
    as needed and stale positions are hidden by the caller's attention mask. `aim` says
    which slots and positions the next forward pass reads and writes.
    """

    def __init__(self, layers: int) -> None:
        super().__init__(layers=[])
        self._layer_count = layers
        self._slots = 0
        self._positions = 0
        self._storage: torch.Tensor | None = None
        self._aim: tuple[slice, torch.Tensor, torch.Tensor, int] | None = None

    @property
    def bytes_per_token(self) -> int:
        """Memory of one position of one slot; 0 before the first forward pass."""
        if self._storage is None:
            return 0
        return self._storage.nbytes // (self._storage.shape[2] * self._storage.shape[4])

    @property
    def storage(self) -> torch.Tensor | None:
        """All keys and values; another tensor whenever more room was made."""
        return self._storage

    def reserve(self, slots: int, positions: int) -> None:
        """Make room for that many slots and positions; what is held stays."""
        if slots <= self._slots and positions <= self._positions:
            return
        if slots > self._slots:
            self._slots = max(slots, 2 * self._slots)
        if positions > self._positions:
            self._positions = -(-max(positions, 3 * self._positions // 2) // _GROW) * _GROW
        old = self._storage
        if old is not None:
            shape = (*old.shape[:2], self._slots, old.shape[3], self._positions, old.shape[5])
            self._storage = old.new_zeros(shape)
            self._storage[:, :, : old.shape[2], :, : old.shape[4]] = old

    def aim(self, first: int, positions: torch.Tensor, width: int) -> None:
        """Use slots from `first` on, write at `positions` [rows, new], read `width` positions."""
        stop = first + positions.shape[0]
        rows = torch.arange(first, stop, device=positions.device)[:, None]
        self._aim = (slice(first, stop), rows, positions, width)

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *_: Any,
        **__: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Called by each attention layer with its new keys and values [rows, heads, new, size]."""
        assert self._aim is not None
        slots, rows, positions, width = self._aim
        keys, values = self._stored(key_states)[layer_idx]
        keys[rows, :, positions] = key_states.transpose(1, 2)
        values[rows, :, positions] = value_states.transpose(1, 2)
        return keys[slots, :, :width], values[slots, :, :width]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Positions read by the pass under way; models only ask when given no position ids."""
        return 0 if self._aim is None else self._aim[3] - self._aim[2].shape[1]

    def read(self, slot: int, start: int, stop: int) -> torch.Tensor:
        """A copy of a slot's positions: [layers, 2, heads, stop - start, head size]."""
        assert self._storage is not None
        return self._storage[:, :, slot, :, start:stop].clone()

    def write(self, slot: int, start: int, kv: torch.Tensor) -> None:
        """Put what `read` gave into a slot."""
        assert self._storage is not None
        self._storage[:, :, slot, :, start : start + kv.shape[3]] = kv

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` positions of one slot to another."""
        assert self._storage is not None
        self._storage[:, :, target, :, :length] = self._storage[:, :, source, :, :length]

    def _stored(self, key_states: torch.Tensor) -> torch.Tensor:
        if self._storage is None:
            _, heads, _, size = key_states.shape
            shape = (self._layer_count, 2, self._slots, heads, self._positions, size)
            self._storage = key_states.new_zeros(shape)
        return self._storage
