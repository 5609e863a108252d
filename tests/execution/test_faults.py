"""What kind of fault an exception or status is: by type and number, never by text."""

import datetime
import email.utils
import pickle
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.errors import (
    Aborted,
    ConfigError,
    CorruptReply,
    FatalError,
    LifecycleError,
    Refused,
    RequestError,
    TransientError,
)
from focus.policies.faults import classify_exception, classify_status, retry_after_s


def below(kind: type[Exception]) -> Iterator[type[Exception]]:
    yield kind
    for child in kind.__subclasses__():
        yield from below(child)


TRANSPORT = sorted(set(below(httpx.TransportError)), key=lambda kind: kind.__name__)


def test_httpx_still_has_the_transport_errors_that_matter() -> None:
    names = {kind.__name__ for kind in TRANSPORT}
    wanted = ("ConnectError", "ReadError", "ReadTimeout", "PoolTimeout", "RemoteProtocolError")
    assert names.issuperset(wanted)


@pytest.mark.parametrize("kind", TRANSPORT, ids=lambda kind: kind.__name__)
def test_every_transport_error_is_transient_and_named(kind: type[Exception]) -> None:
    for text in ("", "connection lost"):
        fault = classify_exception(kind(text))
        assert type(fault) is TransientError
        assert kind.__name__ in str(fault)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError(), TransientError),
        (ConnectionResetError("reset"), TransientError),
        (ConnectionRefusedError(), TransientError),
        (BrokenPipeError(), TransientError),
        (httpx.DecodingError("bad gzip"), CorruptReply),
        (httpx.TooManyRedirects("loop"), Refused),
        (httpx.InvalidURL("x"), Refused),
        (FileNotFoundError("x"), Refused),
        (KeyError("choices"), Refused),
        (MemoryError(), Refused),
        (RuntimeError("connection timed out, please retry"), Refused),
        (ConfigError("bad"), FatalError),
        (LifecycleError("closed"), FatalError),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value.__name__,
)
def test_other_exceptions(error: Exception, kind: type[RequestError]) -> None:
    assert type(classify_exception(error)) is kind


@pytest.mark.parametrize("kind", [Aborted, CorruptReply, FatalError, Refused, TransientError])
def test_a_request_error_passes_through(kind: type[RequestError]) -> None:
    error = kind("as it is", request="r")
    assert classify_exception(error) is error


TRANSIENT = {408, 425, 429, *range(500, 600)}
FATAL = {401, 403, 404, 405}


@pytest.mark.parametrize("status", range(100, 600))
def test_every_status_has_one_kind(status: int) -> None:
    fault = classify_status(status)
    if 200 <= status < 300:
        assert fault is None
        return
    expected = TransientError if status in TRANSIENT else FatalError if status in FATAL else Refused
    assert type(fault) is expected
    assert str(status) in str(fault)


@pytest.mark.parametrize("status", [302, 400, 401, 429, 503])
def test_a_raised_status_is_what_the_status_says(status: int) -> None:
    request = httpx.Request("POST", "http://server/generate")
    response = httpx.Response(status, headers={"Retry-After": "3"}, request=request)
    with pytest.raises(httpx.HTTPStatusError) as caught:
        response.raise_for_status()
    fault, plain = classify_exception(caught.value), classify_status(status)
    assert type(fault) is type(plain)
    if isinstance(fault, TransientError):
        assert fault.retry_after_s == 3.0


def test_a_long_body_is_cut_in_the_message() -> None:
    assert len(str(classify_status(400, body="x" * 10**6))) < 600


@pytest.mark.parametrize(
    ("wish", "seconds"),
    [
        ("0", 0.0),
        ("2", 2.0),
        (" 7 ", 7.0),
        ("3600", 60.0),
        ("9" * 5000, 60.0),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
        ("\u00b2", None),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0.0),
        ("Mon, 99999999999999999999 Jan 2020 00:00:00 GMT", None),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 60.0),
    ],
)
def test_retry_after(wish: str, seconds: float | None) -> None:
    assert retry_after_s({"Retry-After": wish}) == seconds
    assert retry_after_s({"retry-after": wish}) == seconds


def test_a_date_in_the_near_future_is_a_wish() -> None:
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=30)
    wish = retry_after_s({"Retry-After": email.utils.format_datetime(soon, usegmt=True)})
    assert wish is not None
    assert 0 < wish <= 30


@given(st.text() | st.from_regex(r"[A-Z][a-z]{2}, \d+ [A-Z][a-z]{2} \d+ \d+:\d+:\d+ [-+]?\w+"))
def test_no_header_can_break_the_client(wish: str) -> None:
    seconds = retry_after_s({"Retry-After": wish})
    assert seconds is None or 0 <= seconds <= 60


def test_a_wish_survives_pickling() -> None:
    fault = classify_status(503, headers={"retry-after": "4"})
    assert isinstance(fault, TransientError)
    copy: Any = pickle.loads(pickle.dumps(fault.located(request="r")))  # noqa: S301
    assert copy.retry_after_s == 4.0
    assert copy.where == {"request": "r"}
