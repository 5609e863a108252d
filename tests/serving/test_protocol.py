"""Request and reply bodies: done exactly as asked, or refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.policies.sglang_wire import Asked, generate_payload, read_reply
from focus.sampling import Sampling
from focus.serving.protocol import BadRequest, Job, read_request, reply_body
from focus.tokens import FinishReason, Generation

ids = st.lists(st.integers(0, 300), min_size=1, max_size=6).map(tuple)
samplings = st.builds(
    Sampling,
    temperature=st.floats(0, 3),
    top_p=st.floats(0.01, 1),
    top_k=st.none() | st.integers(1, 50),
    stop=st.none() | ids,
    seed=st.none() | st.integers(0, 2**31 - 1),
)


@given(prefix=ids, sampling=samplings, max_tokens=st.integers(1, 500))
def test_the_server_reads_what_the_client_wrote(
    prefix: tuple[int, ...], sampling: Sampling, max_tokens: int
) -> None:
    payload = generate_payload(prefix, sampling, max_tokens=max_tokens, rid="r")
    work = read_request(payload)
    (job,) = work.jobs
    assert (job.rid, job.prefix, work.is_list, work.wants_log_probs) == ("r", prefix, False, True)
    assert job.sampling.law == sampling.law
    assert (job.sampling.max_tokens, job.sampling.seed) == (max_tokens, sampling.seed)
    assert job.sampling.stop == (sampling.stop or None)


@given(
    pairs=st.lists(st.tuples(st.integers(0, 300), st.floats(-50, 0)), min_size=1, max_size=8),
    finish=st.sampled_from([FinishReason.STOP, FinishReason.LENGTH]),
)
def test_the_client_reads_what_the_server_wrote(
    pairs: list[tuple[int, float]], finish: FinishReason
) -> None:
    tokens, log_probs = zip(*pairs, strict=True)
    reply = Generation(tokens, log_probs, finish, "w1", "name", cached_tokens=1)
    body = reply_body(Job("r", (1, 2), Sampling()), reply, "text", wants_log_probs=True)
    assert read_reply(body, Asked("r", "name", prompt_tokens=2)) == reply


def test_a_router_may_add_fields_and_nulls() -> None:
    added = {"model": None, "stream": False, "log_metrics": True, "background": False}
    params = {"max_new_tokens": 3, "stop": None, "min_p": None, "n": None, "regex": None}
    text = {"skip_special_tokens": False, "no_stop_trim": True}
    (job,) = read_request({"input_ids": [1], "sampling_params": params | text, **added}).jobs
    assert job.sampling.max_tokens == 3


def test_prompts_and_copies_are_side_by_side() -> None:
    body = {
        "input_ids": [[1], [2]],
        "sampling_params": [{"n": 2, "sampling_seed": 5}, {"max_new_tokens": 1}],
        "rid": "r",
    }
    work = read_request(body)
    assert work.is_list
    assert [(job.rid, job.prefix, job.sampling.seed) for job in work.jobs] == [
        ("r_0", (1,), 5),
        ("r_1", (1,), 6),
        ("r_2", (2,), None),
    ]
    named = read_request({"input_ids": [[1], [2]], "rid": ["a", "b"]})
    assert [job.rid for job in named.jobs] == ["a", "b"]
    (alone,) = read_request({"input_ids": [[1]]}).jobs
    assert alone.sampling.max_tokens == 128


BAD: list[dict[str, Any]] = [
    {},
    {"text": "2+2?"},
    {"input_ids": []},
    {"input_ids": [1, "2"]},
    {"input_ids": [1, True]},
    {"input_ids": [[1], []]},
    {"input_ids": [[1], 2]},
    {"input_ids": [1], "stream": True},
    {"input_ids": [1], "logprob_start_len": 0},
    {"input_ids": [1], "top_logprobs_num": 5},
    {"input_ids": [1], "rid": 7},
    {"input_ids": [[1], [2]], "rid": ["a"]},
    {"input_ids": [[1], [2]], "sampling_params": [{}]},
    {"input_ids": [1], "sampling_params": 7},
    *(
        {"input_ids": [1], "sampling_params": params}
        for params in (
            {"max_new_tokens": 0},
            {"max_new_tokens": 1.5},
            {"temperature": -1},
            {"temperature": "hot"},
            {"top_p": 0},
            {"top_k": 0},
            {"top_k": -2},
            {"min_p": 0.1},
            {"repetition_penalty": 1.1},
            {"ignore_eos": True},
            {"stop": ["x"]},
            {"stop_token_ids": ["x"]},
            {"sampling_seed": "x"},
            {"n": 0},
            {"n": 10**9},
            {"regex": "a+"},
            {"anything": 1},
        )
    ),
]


@pytest.mark.parametrize("body", [*BAD, None, [], "x"], ids=str)
def test_what_cannot_be_done_exactly_is_refused(body: Any) -> None:
    with pytest.raises(BadRequest):
        read_request(body)
