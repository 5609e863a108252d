"""Forward passes over ragged rows, each continuing its own cached prefix."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from focus.errors import ConfigError
from focus.policies._engine.replay import Recording, Replay, cuda_graphs
from focus.policies._engine.slots import SlotCache

__all__ = ("Runner",)


class Runner:
    """Feeds tokens to a model and returns the logits after each row's last one.

    Rows differ in length: suffixes are padded on the right, every token carries its own
    position, and a token sees exactly the positions up to its own. Padding writes beyond
    a row's end, where its next tokens will overwrite it before anything may see it.

    Args:
        model: a causal LM of transformers, in eval mode.
        context_limit: highest position + 1 that the model knows.
        chunk: most tokens of one row per forward pass; bounds a long prompt's memory.
        recording: how passes of one token a row are recorded to be replayed; None takes CUDA
            graphs on a GPU, if they work there.

    Raises:
        ConfigError: the model's cached passes do not equal its plain ones.
    """

    def __init__(
        self,
        model: Any,
        *,
        context_limit: int,
        chunk: int = 2048,
        recording: Recording | None = None,
    ) -> None:
        accepted = inspect.signature(model.forward).parameters
        self._model = model
        self._cache_name = "cache" if "cache" in accepted else "past_key_values"
        self._keeps_logits = "logits_to_keep" in accepted
        self._context_limit = context_limit
        self._chunk = chunk
        self.device: torch.device = model.device
        self.slots = SlotCache(model.config.get_text_config().num_hidden_layers)
        if recording is None and self.device.type == "cuda":
            recording = cuda_graphs
        self._replay: Replay | None = None
        self._only = torch.zeros(1, dtype=torch.long, device=self.device)
        self._check()
        if recording is not None:
            self._try(recording)

    @property
    def replays(self) -> bool:
        """Passes of one token a row are recorded and replayed."""
        return self._replay is not None

    def default_cache_tokens(self) -> int:
        """How many tokens fit in 512 MiB or, on a GPU, in a quarter of its free memory."""
        room = 512 * 2**20
        if self.device.type == "cuda":
            room = torch.cuda.mem_get_info(self.device)[0] // 4
        return room // self.slots.bytes_per_token

    @torch.inference_mode()
    def run(
        self, first: int, suffixes: Sequence[Sequence[int]], starts: Sequence[int]
    ) -> torch.Tensor:
        """Append `suffixes` to the slots from `first` on; row i starts at `starts[i]`.

        Returns:
            Logits after each suffix's last id: [rows, vocabulary], until the next call.
        """
        longest = max(map(len, suffixes))
        if self._replay is not None and longest == 1 and first == 0:
            return self._replay.run([suffix[0] for suffix in suffixes], starts)
        self.slots.reserve(first + len(suffixes), max(starts) + longest)
        padded = [[*suffix, *[0] * (longest - len(suffix))] for suffix in suffixes]
        tokens = torch.tensor(padded, device=self.device)
        positions = torch.tensor(starts, device=self.device)[:, None] + torch.arange(
            longest, device=self.device
        )
        last = [len(suffix) - 1 for suffix in suffixes]
        if longest <= self._chunk:
            return self._pass(first, tokens, positions, max(starts) + longest, last)
        return self._chunked(first, tokens, positions, max(starts), last)

    def _chunked(
        self,
        first: int,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        start: int,
        last: Sequence[int],
    ) -> torch.Tensor:
        logits: list[torch.Tensor | None] = [None] * len(last)
        for begin in range(0, tokens.shape[1], self._chunk):
            part = slice(begin, begin + self._chunk)
            new = tokens[:, part].shape[1]
            here = [min(max(index - begin, 0), new - 1) for index in last]
            out = self._pass(first, tokens[:, part], positions[:, part], start + begin + new, here)
            for row, index in enumerate(last):
                if begin <= index < begin + self._chunk:
                    logits[row] = out[row]
        return torch.stack([row for row in logits if row is not None])

    def _pass(
        self,
        first: int,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        width: int,
        last: Sequence[int],
    ) -> torch.Tensor:
        columns = sorted(set(last))
        kept = torch.tensor(columns, device=self.device)
        logits = self._forward(first, tokens, positions, width, kept)
        column = torch.tensor([columns.index(index) for index in last], device=self.device)
        return logits[torch.arange(len(last), device=self.device), column]

    def _step(self, tokens: torch.Tensor, positions: torch.Tensor, width: int) -> torch.Tensor:
        """One id a row, from slot 0 on; nothing in here waits for the device."""
        return self._forward(0, tokens, positions, width, self._only)[:, 0]

    def _forward(
        self,
        first: int,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        width: int,
        kept: torch.Tensor,
    ) -> torch.Tensor:
        """Logits of the columns `kept`, with the first `width` positions in sight."""
        self.slots.aim(first, positions, width)
        options: dict[str, Any] = {self._cache_name: self.slots}
        if self._keeps_logits:
            options["logits_to_keep"] = kept
        logits: torch.Tensor = self._model(
            input_ids=tokens,
            position_ids=positions.clamp(max=self._context_limit - 1),
            attention_mask=self._mask(positions, width),
            use_cache=True,
            **options,
        ).logits
        return logits if self._keeps_logits else logits[:, kept]

    def _mask(self, positions: torch.Tensor, width: int) -> torch.Tensor:
        hidden = torch.arange(width, device=self.device) > positions[:, None, :, None]
        dtype = self._model.dtype
        return torch.zeros(hidden.shape, dtype=dtype, device=self.device).masked_fill_(
            hidden, torch.finfo(dtype).min
        )

    def _check(self) -> None:
        """Compare a ragged two-step pass with plain passes, once, before any request."""
        name = type(self._model).__name__
        try:
            error = self._cached_error()
        except Exception as fault:
            raise ConfigError(f"{name} cannot run with a batched cache: {fault}") from fault
        if not error <= self._allowed:
            raise ConfigError(
                f"{name}: cached decoding differs from a plain forward pass by {error:.2g} "
                f"(relative; at most {self._allowed} is allowed), so its log-probabilities could "
                "not be trusted. Serve this model with another policy."
            )

    def _try(self, recording: Recording) -> None:
        """Replay from now on, if the same comparison holds then; else warn, and do not."""
        try:
            self._replay = Replay(self._step, self.slots, recording, device=self.device)
            # The first pass of a shape records it, the second replays that on other ids.
            error = max(self._cached_error(), self._cached_error(shift=1))
            fault = "" if error <= self._allowed else f"logits differ by {error:.2g} (relative)"
        except Exception as raised:  # whatever a recording lacks here, plain passes do without
            fault = f"{type(raised).__name__}: {raised}"
        if fault:
            self._replay = None
            warnings.warn(f"decoding steps are not replayed: {fault}", RuntimeWarning, stacklevel=2)

    @property
    def _allowed(self) -> float:
        """Relative error of logits that rounding explains."""
        return 0.1 if self._model.dtype in (torch.bfloat16, torch.float16) else 1e-3

    @torch.inference_mode()
    def _cached_error(self, *, shift: int = 0) -> float:
        vocabulary = self._model.config.get_text_config().vocab_size
        rows = [
            [(7 * k + 3 * i + 1 + shift) % vocabulary for i in range(2 + 2 * k)] for k in range(3)
        ]
        self.run(0, [row[:-1] for row in rows], [0] * len(rows))
        cached = self.run(0, [row[-1:] for row in rows], [len(row) - 1 for row in rows])
        inputs = [torch.tensor([row], device=self.device) for row in rows]
        plain = torch.stack([self._model(input_ids=ids).logits[0, -1] for ids in inputs])
        return _relative_error(cached.double(), plain.double())


def _relative_error(values: torch.Tensor, reference: torch.Tensor) -> float:
    centred = reference - reference.mean(dim=-1, keepdim=True)
    difference = (values - values.mean(dim=-1, keepdim=True)) - centred
    return float(difference.norm() / centred.norm().clamp_min(1e-12))
