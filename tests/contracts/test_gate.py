"""Tests that share something slow or exclusive run in one process of the gate."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("together")
def test_the_mark_of_a_group_is_heard(request: pytest.FixtureRequest) -> None:
    """xdist tells the group in the node id; with a pytest that does not let it, nothing fails."""
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("only where tests are spread over processes by group")
    assert request.node.nodeid.endswith("@together")
