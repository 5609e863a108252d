"""A2, A3, A5: the rows are kept, and a difference would be found."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import anyio
import pytest

from focus.promises.base import Row
from focus.promises.oracles import random_drawings
from focus.promises.replays import digest, grow
from focus.testing.envs import walk_script
from focus.testing.exact_credit import direct_gap, largest_gap
from focus.testing.policies import ScriptedPolicy
from focus.tokens import Generation


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("row", ["A2", "A3", "A5"])
def test_the_promise_is_kept(row: str, kept: Callable[[str], Row]) -> None:
    kept(row)


def test_one_changed_log_prob_changes_the_export() -> None:
    class Drifting(ScriptedPolicy):
        made = 0

        async def generate(self, *args: Any, **named: Any) -> Generation:
            self.made += 1
            is_seventh = self.made == 7
            reply = await super().generate(*args, **named)
            if not is_seventh:
                return reply
            log_probs = (reply.log_probs[0] * (1 + 2**-52), *reply.log_probs[1:])
            return Generation(reply.ids, log_probs, reply.finish, reply.version, reply.request_id)

    plain, drifted = ScriptedPolicy(walk_script(12)), Drifting(walk_script(12))
    assert digest(anyio.run(grow, plain, 8)) != digest(anyio.run(grow, drifted, 8))


def test_a_gap_is_seen_however_small() -> None:
    assert largest_gap({1: 0.5 + 2**-52}, {1: Fraction(1, 2)}) == 2**-52
    drawing, returns = next(iter(random_drawings(1)))
    assert 0 <= direct_gap(drawing, returns) < 1e-12
