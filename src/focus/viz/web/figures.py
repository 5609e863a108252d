"""Numbers as the page carries them."""

from __future__ import annotations

import math

__all__ = ("figure",)


def figure(value: float | None) -> float | None:
    """`value` to six significant digits; None for none and for what JSON cannot say.

    >>> figure(-0.011811903989081782), figure(None), figure(float("inf"))
    (-0.0118119, None, None)
    """
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.6g}")
