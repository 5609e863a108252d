"""C1: the row is kept, and a leaky pool would be found."""

from __future__ import annotations

import random
from collections.abc import Callable

from focus.execution import AdmissionPool
from focus.promises.base import Row
from focus.promises.storms import Meter, storm_over


def test_the_promise_is_kept(kept: Callable[[str], Row]) -> None:
    kept("C1")


def test_a_pool_that_gives_one_permit_too_many_is_found_out() -> None:
    meter = Meter(capacity=1)
    assert storm_over(AdmissionPool(2), meter, random.Random(0), rounds=20, closes=False) == 0
    assert meter.exceeded > 0
