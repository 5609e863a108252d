"""The law that is sampled from, against a plain reference, and draws by inversion."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from focus.policies._engine.sampler import Law, draw, processed_log_probs

rows = st.lists(st.floats(-8, 8, width=32), min_size=2, max_size=12)
laws = st.builds(
    Law,
    st.sampled_from([0.0, 0.3, 0.7, 1.0, 2.0]),
    st.sampled_from([0.1, 0.5, 0.9, 1.0]),
    st.sampled_from([None, 1, 2, 5, 50]),
)


def reference(logits: list[float], law: Law) -> list[float]:
    """Probabilities by the definition, in plain Python."""
    if law.temperature == 0:
        best = max(range(len(logits)), key=lambda i: (logits[i], -i))
        return [float(i == best) for i in range(len(logits))]
    weights = [math.exp((x - max(logits)) / law.temperature) for x in logits]
    order = sorted(range(len(logits)), key=lambda i: (-weights[i], i))
    kept = order[: law.top_k or len(order)]
    total, mass, nucleus = sum(weights[i] for i in kept), 0.0, []
    for i in kept:
        if nucleus and mass >= law.top_p * total and law.top_p < 1:
            break
        nucleus.append(i)
        mass += weights[i]
    return [weights[i] / mass if i in nucleus else 0.0 for i in range(len(logits))]


@given(logits=rows, law=laws)
def test_law_equals_its_definition(logits: list[float], law: Law) -> None:
    got = processed_log_probs(torch.tensor([logits]), [law]).exp()[0].tolist()
    expected = reference(torch.tensor(logits).tolist(), law)
    near_tie = law.top_p < 1 and [g > 0 for g in got] != [e > 0 for e in expected]
    if not near_tie:  # a nucleus edge within rounding may fall on either side
        assert got == pytest.approx(expected, abs=1e-9)
    assert sum(got) == pytest.approx(1.0)


def test_temperature_divides_logits_before_the_softmax() -> None:
    """B22: logits (0, 1) at T = 0.5 give log softmax([0, 2])[1]."""
    log_probs = processed_log_probs(torch.tensor([[0.0, 1.0]]), [Law(0.5, 1.0, None)])
    assert log_probs[0, 1].item() == pytest.approx(-0.126928, abs=1e-6)


def test_top_p_cuts_what_top_k_left() -> None:
    """p = (.4, .3, .2, .1), k = 3: of the renormalised (.444, .333, .222), 0.7 takes two."""
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    got = processed_log_probs(logits, [Law(1.0, 0.7, 3)]).exp()[0].tolist()
    assert got == pytest.approx([4 / 7, 3 / 7, 0, 0])


@given(logits=rows, law=laws, uniform=st.floats(0, 1, exclude_max=True))
def test_a_draw_inverts_the_cumulative_distribution(
    logits: list[float], law: Law, uniform: float
) -> None:
    tensor = torch.tensor([logits])
    log_probs = processed_log_probs(tensor, [law])[0]
    (drawn,) = draw(tensor, [law], [uniform])
    below = log_probs[: drawn.token].exp().sum().item()
    assert drawn.log_prob == log_probs[drawn.token].item() > -math.inf
    assert below <= uniform + 1e-9
    assert uniform <= below + math.exp(drawn.log_prob) + 1e-9


@given(logits=st.lists(st.floats(-8, 8), min_size=5, max_size=5), law=laws, other=laws)
def test_a_draw_ignores_its_neighbours(logits: list[float], law: Law, other: Law) -> None:
    alone = draw(torch.tensor([logits]), [law], [0.37])
    beside = draw(torch.tensor([[1.0] * 5, logits]), [other, law], [0.9, 0.37])
    assert alone[0] == beside[1]


def test_not_a_number_is_passed_on_and_not_hidden() -> None:
    (drawn,) = draw(torch.tensor([[0.0, math.nan]]), [Law(1.0, 1.0, None)], [0.5])
    assert math.isnan(drawn.log_prob)
