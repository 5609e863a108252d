import dataclasses
import math
import random

import pytest

from focus.testing.exact_gradient import (
    TabularTask,
    exact_gradient,
    expected_branches,
    fixed_widths,
    grown_trees,
)


def nudged(task, history, action, by):
    """The task with one logit raised."""
    weights = [p * math.exp(by * (a == action)) for a, p in enumerate(task.policy[history])]
    policy = {**task.policy, history: tuple(w / sum(weights) for w in weights)}
    return dataclasses.replace(task, policy=policy)


@pytest.mark.parametrize("actions", [2, 3])
def test_gradient_is_the_slope_of_the_value(actions):
    task = TabularTask.random(random.Random(7), depth=2, actions=actions)
    for (history, action), slope in exact_gradient(task).items():
        up, down = (nudged(task, history, action, by).value(()) for by in (1e-5, -1e-5))
        assert (up - down) / 2e-5 == pytest.approx(slope, abs=1e-9)


def test_every_tree_is_grown_once():
    task = TabularTask.random(random.Random(3), depth=2)
    grown = list(grown_trees(task, fixed_widths(2, 2)))
    assert len({growth for growth, _ in grown}) == len(grown) == 2**6
    assert sum(chance for _, chance in grown) == pytest.approx(1.0)


def test_expected_branches_of_fixed_widths():
    task = TabularTask.random(random.Random(3), depth=2)
    counts = expected_branches(task, fixed_widths(3, 2))
    assert counts[()] == pytest.approx(3)
    assert counts[(0,)] == pytest.approx(6 * task.policy[()][0])
