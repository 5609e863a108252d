"""Passes of one token a row, recorded once per shape and replayed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from focus.policies._engine.slots import SlotCache

__all__ = ("Record", "Recording", "Replay", "cuda_graphs")

Record = Callable[[Callable[[], None]], Callable[[], object]]
"""Runs some work and returns what does the same again, on the same memory."""

Recording = Callable[[], Record]

Step = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]
"""Logits [rows, vocabulary] from ids [rows, 1], positions [rows, 1] and the width to read."""

_WIDTH = 64


class Replay:
    """Decoding steps that cost a GPU its arithmetic and not the host's launches.

    Rows are padded to a power of two and widths to 64, so that few shapes are recorded. A row
    that only pads feeds id 0 at position 0 of a slot that no request holds. Recordings read
    and write memory that stays where it is; when slots or rows outgrow it they are made anew.

    Args:
        step: one pass over the first slots.
        slots: where it reads and writes keys and values.
        recording: makes what records, one for all that lies in the same memory.
        device: of the model.
    """

    def __init__(
        self, step: Step, slots: SlotCache, recording: Recording, *, device: torch.device
    ) -> None:
        self._step = step
        self._slots = slots
        self._recording = recording
        self._record = recording()
        self._device = device
        self._recorded: dict[tuple[int, int], Callable[[], object]] = {}
        self._storage: torch.Tensor | None = None
        self._inputs = torch.zeros((2, 0))
        self._logits = torch.zeros(0)

    def __len__(self) -> int:
        """Shapes recorded for the memory now in use."""
        return len(self._recorded)

    def run(self, ids: Sequence[int], positions: Sequence[int]) -> torch.Tensor:
        """Feed one id to each of the first slots, at its position.

        Returns:
            Logits [rows, vocabulary], until the next call.
        """
        rows = 1 << (len(ids) - 1).bit_length()
        width = -(-(max(positions) + 1) // _WIDTH) * _WIDTH
        self._slots.reserve(rows, width)
        pad = [0] * (rows - len(ids))
        fed = torch.tensor([[*ids, *pad], [*positions, *pad]])
        if self._slots.storage is not self._storage or rows > self._inputs.shape[1]:
            self._renew(fed, width)
        self._inputs[:, :rows] = fed.to(self._device)
        again = self._recorded.get((rows, width))
        if again is None:
            self._recorded[rows, width] = self._record(lambda: self._work(rows, width))
        else:
            again()
        return self._logits[: len(ids)]

    def _work(self, rows: int, width: int) -> None:
        ids, positions = self._inputs[:, :rows, None]
        self._logits[:rows] = self._step(ids, positions, width)

    def _renew(self, fed: torch.Tensor, width: int) -> None:
        """Forget all recordings, and take memory for as many rows as there are slots."""
        self._recorded.clear()
        self._record = self._recording()
        ids, positions = fed.to(self._device)[:, :, None]
        logits = self._step(ids, positions, width)
        storage = self._slots.storage
        assert storage is not None
        self._storage = storage
        self._inputs = ids.new_zeros((2, storage.shape[2]))
        self._logits = logits.new_zeros((storage.shape[2], logits.shape[1]))


def cuda_graphs() -> Record:
    """Records CUDA graphs that share one pool of memory."""
    pool = torch.cuda.graph_pool_handle()

    def record(work: Callable[[], None]) -> Callable[[], object]:
        work()  # libraries choose their kernels and take their memory outside the recording
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            work()
        return graph.replay

    return record
