"""Values that are filled while they are open are the values that their class makes."""

import copy
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus._values import filled
from focus.agent import SegmentAction
from focus.checkpoint import Allowance, Checkpoint
from focus.errors import ConfigError
from focus.sampling import Sampling
from focus.search import Launch
from focus.tokens import Span, TokenChain
from focus.tree import Edge, Node, Provenance, Selection, Stats

PROVENANCE = Provenance(expansion=1, index=2, phase=0)
CHAIN = TokenChain((1, 2))
MADE: list[tuple[type[Any], dict[str, Any]]] = [
    (Allowance, {"tokens": 3}),
    (Checkpoint, {"context": CHAIN, "prompt_length": 2, "state": 0, "allowance": Allowance()}),
    (Edge, {"spans": (Span((1,), (-0.5,)), Span((2, 3))), "provenance": PROVENANCE}),
    (Launch, {"expansion": 1, "node": 0, "phase": 0, "quota": 4}),
    (Node, {"id": 1, "parent": 0, "depth": 1, "edge": None, "payload": "p", "value": 0.5}),
    (Provenance, {"expansion": 1, "index": 2, "phase": 0, "request_id": "r"}),
    (Sampling, {"temperature": 0.5, "stop": (1,), "seed": 3}),
    (SegmentAction, {"ids": (1,), "finished": True, "text": "x"}),
    (Selection, dict.fromkeys([f.name for f in fields(Selection)], 1)),
    (Span, {"ids": (1,), "log_probs": (-0.5,)}),
    (Stats, {"count": 2, "mean": 0.5}),
]


@pytest.mark.parametrize(("kind", "values"), MADE, ids=[kind.__name__ for kind, _ in MADE])
def test_a_filled_value_is_one_of_its_class(kind: type[Any], values: dict[str, Any]) -> None:
    plain, quick = kind(**values), filled(kind)(**values)
    assert type(quick) is kind
    assert quick == plain
    assert repr(quick) == repr(plain)
    assert [getattr(quick, f.name) for f in fields(kind)] == [
        getattr(plain, f.name) for f in fields(kind)
    ]
    assert hash(quick) == hash(plain)
    assert replace(quick) == plain
    assert copy.copy(quick) == plain
    with pytest.raises(FrozenInstanceError):
        setattr(quick, fields(kind)[0].name, None)


@given(st.integers(-3, 3))
def test_its_checks_are_made_all_the_same(tokens: int) -> None:
    try:
        expected: object = Allowance(tokens=tokens)
    except ConfigError as error:
        expected = str(error)
    try:
        found: object = filled(Allowance)(tokens=tokens)
    except ConfigError as error:
        found = str(error)
    assert found == expected


def test_defaults_are_made_anew_for_each() -> None:
    @dataclass(frozen=True, slots=True)
    class Listed:
        items: list[int] = field(default_factory=list)

    quick = filled(Listed)
    assert quick().items == []
    assert quick().items is not quick().items
