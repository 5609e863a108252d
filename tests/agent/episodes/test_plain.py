"""Actions and transitions keep every bit through JSON."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.agent import SegmentAction, TurnAction
from focus.agent.episodes import Transition
from focus.agent.episodes.plain import (
    decode_action,
    decode_transition,
    digest,
    encode_action,
    encode_transition,
)
from focus.agent.episodes.recording import Recording
from focus.errors import RecordError, SchemaError
from focus.problem import Message, Problem
from focus.records.strict_json import dumps, loads
from focus.rendering import Call

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | NUMBER | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
SEGMENTS = st.builds(
    SegmentAction, ids=st.lists(st.integers(0, 2**20)).map(tuple), finished=st.booleans(), text=TEXT
)
CALLS = st.builds(Call, name=TEXT, arguments=st.dictionaries(TEXT, PLAIN, max_size=2), fault=TEXT)
TURNS = st.builds(
    TurnAction,
    text=TEXT,
    calls=st.lists(CALLS, max_size=2).map(tuple),
    reasoning=TEXT,
    is_last=st.booleans(),
    finished=st.booleans(),
)
ACTIONS = SEGMENTS | TURNS | PLAIN
TRANSITIONS = st.builds(
    Transition,
    messages=st.lists(st.builds(Message, role=TEXT, content=TEXT), max_size=2).map(tuple),
    reward=NUMBER,
    step_reward=NUMBER,
    done=st.booleans(),
)


def through_json(plain: Any) -> Any:
    return loads(dumps(plain, what="test"), where="test")


@given(ACTIONS)
def test_an_action_comes_back_equal(action: Any) -> None:
    assert decode_action(through_json(encode_action(action))) == action


@given(TRANSITIONS)
def test_a_transition_comes_back_equal(answer: Transition) -> None:
    plain = encode_transition(answer)
    assert decode_transition(through_json(plain)) == answer
    assert digest(through_json(plain)) == digest(plain)


@given(st.lists(st.tuples(ACTIONS, TRANSITIONS), max_size=3))
def test_a_recording_comes_back_equal(moves: Any) -> None:
    way = Recording(Problem(id=1, prompt="x"), "opening")
    for action, answer in moves:
        way = way.then(action, answer)
    assert Recording.from_plain(through_json(way.to_plain())) == way


@given(TRANSITIONS, TRANSITIONS)
def test_other_answers_have_another_digest(one: Transition, two: Transition) -> None:
    same = digest(encode_transition(one)) == digest(encode_transition(two))
    assert same == (
        dumps(encode_transition(one), what="") == dumps(encode_transition(two), what="")
    )


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(RecordError):
        encode_action({1: "a"})
    for wrong in ({}, {"segment": {}}, {"turn": {"text": 1}}, []):
        with pytest.raises(SchemaError):
            decode_action(wrong)
