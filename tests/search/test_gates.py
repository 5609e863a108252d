import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.errors import ConfigError
from focus.search import Concurrency, Width

counts = st.integers(0, 9)


@given(limit=st.integers(1, 9), children=counts, pending=counts)
def test_width_counts_branches_and_concurrency_counts_flights(limit, children, pending):
    width = Width(limit).admits(children=children, pending=pending)
    concurrency = Concurrency(limit).admits(children=children, pending=pending)
    assert width == (children + pending < limit)
    assert concurrency == (pending < limit)


@pytest.mark.parametrize("gate", [Width, Concurrency])
def test_a_gate_that_never_opens_is_refused(gate):
    with pytest.raises(ConfigError, match="must be >= 1, got 0"):
        gate(0)
