"""How tokens are drawn."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from dataclasses import dataclass

from focus._values import filled
from focus.errors import ConfigError

__all__ = ("Sampling", "derive_seed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Sampling settings; ``None`` means "leave alone".

    Attributes:
        temperature: divisor of the logits, > 0 (training) or 0 (greedy evaluation).
        top_p: nucleus mass in (0, 1].
        top_k: number of most likely ids kept, ≥ 1.
        max_tokens: most ids per request, ≥ 1.
        stop: token ids that end a reply, besides the model's own end token.
        seed: base seed. Each request derives its own from it, so forks never share a stream.

    Raises:
        ConfigError: a value lies outside its range.

    >>> Sampling(temperature=0.7).merged(Sampling(max_tokens=256)).law
    (0.7, 1.0, None)
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    stop: tuple[int, ...] | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.temperature is not None and not (
            math.isfinite(self.temperature) and self.temperature >= 0
        ):
            raise ConfigError(f"temperature must be finite and >= 0, got {self.temperature}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p must lie in (0, 1], got {self.top_p}")
        if self.top_k is not None and self.top_k < 1:
            raise ConfigError(f"top_k must be >= 1, got {self.top_k}")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ConfigError(f"max_tokens must be >= 1, got {self.max_tokens}")

    def merged(self, override: Sampling | None) -> Sampling:
        """These settings with every value that `override` sets."""
        if override is None:
            return self
        changes = {
            field.name: value
            for field in dataclasses.fields(override)
            if (value := getattr(override, field.name)) is not None
        }
        return dataclasses.replace(self, **changes)

    def bounded(self, max_tokens: int, seed: int | None) -> Sampling:
        """These settings for one request of at most `max_tokens` ids, with a seed of its own."""
        return _sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            max_tokens=max_tokens,
            stop=self.stop,
            seed=seed,
        )

    @property
    def law(self) -> tuple[float, float, int | None]:
        """(temperature, top_p, top_k) with defaults filled in: what a trainer must match."""
        return (
            1.0 if self.temperature is None else self.temperature,
            1.0 if self.top_p is None else self.top_p,
            self.top_k,
        )


_sampling = filled(Sampling)


def derive_seed(base: int, *names: object) -> int:
    """A 31-bit seed that depends on `base` and on the request's whole identity.

    >>> derive_seed(1, "run", 0, 3) == derive_seed(1, "run", 0, 3)
    True
    >>> derive_seed(1, "run", 0, 3) == derive_seed(1, "run", 0, 4)
    False
    """
    text = "\x1f".join([str(base), *map(str, names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") & 0x7FFFFFFF
