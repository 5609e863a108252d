"""Every error is ours, is also the nearest built-in, and survives a process border."""

import pickle
from typing import Any

import pytest

from focus import errors
from focus.errors import (
    CollectionFailed,
    Failure,
    FocusError,
    Refused,
    RequestError,
    TransientError,
)

CLASSES = [
    value
    for name in errors.__all__
    if isinstance(value := getattr(errors, name), type) and issubclass(value, Exception)
]
BUILTINS = (ImportError, OSError, RuntimeError, ValueError)


def copied(error: Exception) -> Any:
    return pickle.loads(pickle.dumps(error))  # noqa: S301


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_survives_pickling(kind: type[FocusError]) -> None:
    error = kind("what happened: \u2028 50 %")
    error.add_note("seen in round 3")
    copy = copied(error)
    assert type(copy) is kind
    assert str(copy) == str(error)
    assert copy.__notes__ == ["seen in round 3"]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_is_ours_and_the_nearest_builtin(kind: type[FocusError]) -> None:
    assert issubclass(kind, FocusError)
    if kind is not FocusError:
        assert issubclass(kind, BUILTINS)
    assert kind.__doc__


REQUEST_ERRORS = [kind for kind in CLASSES if issubclass(kind, RequestError)]


@pytest.mark.parametrize("kind", REQUEST_ERRORS, ids=lambda kind: kind.__name__)
def test_a_request_error_keeps_its_place(kind: type[RequestError]) -> None:
    error = kind("no", node=3).located(node=4, attempts=2)
    copy = copied(error)
    assert copy.where == {"node": 3, "attempts": 2}
    assert str(copy) == "no [node=3, attempts=2]"
    assert copy.message == "no"


def test_what_a_server_wished_for_survives() -> None:
    error = TransientError("busy")
    error.retry_after_s = 2.5
    assert copied(error).retry_after_s == 2.5
    assert copied(TransientError("busy")).retry_after_s is None


def test_a_failed_collection_keeps_its_failures() -> None:
    failure = Failure("expansion", 3, 1, "Refused", "no")
    copy = copied(CollectionFailed("1 failure", [failure], collection=object()))
    assert copy.failures == (failure,)
    assert copy.collection is None
    assert str(copy) == "1 failure"


def test_a_request_is_named_once_where_server_and_client_call_it_the_same() -> None:
    error = Refused("no", request_id="t/0/0/1").located(request="t/0/0/1", attempts=1)
    assert str(error) == "no [request=t/0/0/1, attempts=1]"
    error = Refused("no", request_id="srv-7").located(request="t/0/0/1", attempts=1)
    assert str(error) == "no [request_id=srv-7, request=t/0/0/1, attempts=1]"
    assert str(Refused("no")) == "no"
