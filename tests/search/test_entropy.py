import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.errors import ConfigError
from focus.search import TokenEntropy, View
from focus.search.allocators.entropy import windowed_entropy
from focus.testing.trees import Sketch, build_tree, end
from focus.tree import Evidence

log_probs = st.lists(st.floats(max_value=0.0) | st.just(math.nan), max_size=20)


@pytest.mark.parametrize(
    ("values", "window", "entropy"),
    [
        ((-1.0, -1.0, -0.01, -3.0), 2, 0.367879),
        ((-1.0,), 8, 0.367879),
        ((0.0, 0.0), 8, 0.0),
        ((), 8, None),
        ((math.nan, -math.inf), 8, None),
    ],
)
def test_vectors(values, window, entropy):
    expected = entropy if entropy is None else pytest.approx(entropy, abs=1e-6)
    assert windowed_entropy(values, window=window) == expected


@given(values=log_probs, window=st.integers(1, 9))
def test_it_is_the_largest_window_mean_of_the_finite_terms(values, window):
    terms = [-x * math.exp(x) for x in values if math.isfinite(x)]
    width = min(window, len(terms))
    means = [sum(terms[i : i + width]) / width for i in range(len(terms) - width + 1) if width]
    score = windowed_entropy(values, window=window)
    if not terms:
        assert score is None
    else:
        assert score == pytest.approx(max(means), abs=1e-12)
        assert -1e-12 <= score <= 1 / math.e + 1e-12


@given(values=st.lists(st.floats(-5, 0), min_size=1, max_size=12), window=st.integers(1, 4))
def test_dropping_a_broken_log_prob_is_not_calling_it_certain(values, window):
    assert windowed_entropy([*values, math.nan], window=window) == windowed_entropy(
        values, window=window
    )


def test_a_window_needs_a_token():
    with pytest.raises(ConfigError, match="window must be >= 1"):
        TokenEntropy(window=0)


def session_of(config, *, pending=None):
    """Root with two finished branches; node 3 hangs open below node 2."""
    tree = build_tree(
        Sketch(
            value=0.5,
            children=(end(1.0), Sketch(value=0.5, children=(end(0.0), Sketch(value=0.5)))),
        )
    )
    return tree, config.session(View(tree, Evidence.of(tree), pending or {}))


def test_a_checkpoint_scores_the_mean_of_its_branches():
    tree, session = session_of(TokenEntropy(count_penalty=False))
    edges = [windowed_entropy(tree[child].incoming.log_probs, window=8) for child in (1, 2)]
    assert session.score(0) == pytest.approx(sum(edges) / 2)


def test_branches_and_pending_purchases_divide_the_score():
    _, documented = session_of(TokenEntropy(count_penalty=False), pending={0: 3})
    _, session = session_of(TokenEntropy(), pending={0: 3})
    assert session.score(0) == pytest.approx(documented.score(0) / (1 + 2 + 3))


def test_an_untried_tip_goes_first_unless_buying_it_brought_nothing():
    _, session = session_of(TokenEntropy())
    assert session.score(4) == math.inf
    session.settled(4, ())
    assert session.score(4) == 0.0
