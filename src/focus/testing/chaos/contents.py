"""Replies that are well-formed and wrong, and some that look wrong and are right."""

from __future__ import annotations

from typing import Any

from focus.testing.chaos.faults import Family, Fault, Kind, Scene, spoiled
from focus.testing.chaos.wire import Send
from focus.testing.policies import END

__all__ = ("CONTENT_FAULTS",)


def _pairs(body: Any) -> Any:
    return body["meta_info"]["output_token_logprobs"]


def _one_pair_short(body: Any, scene: Scene) -> None:
    del _pairs(body)[0]


def _one_pair_more(body: Any, scene: Scene) -> None:
    _pairs(body).append(list(_pairs(body)[-1]))


def _value_without_id(body: Any, scene: Scene) -> None:
    del _pairs(body)[-1][1:]


def _set_value(value: Any) -> Any:
    def change(body: Any, scene: Scene) -> None:
        scene.rng.choice(_pairs(body))[0] = value

    return change


def _set_id(token: Any) -> Any:
    def change(body: Any, scene: Scene) -> None:
        scene.rng.choice(_pairs(body))[1] = token

    return change


def _set_meta(name: str, value: Any) -> Any:
    def change(body: Any, scene: Scene) -> None:
        body["meta_info"][name] = value

    return change


def _drop_meta(name: str) -> Any:
    def change(body: Any, scene: Scene) -> None:
        del body["meta_info"][name]

    return change


def _count_wrong(body: Any, scene: Scene) -> None:
    body["meta_info"]["completion_tokens"] += scene.rng.choice((-1, 1))


def _replace(body: Any, pairs: list[Any]) -> None:
    """Other pairs, with a count that agrees with them."""
    body["meta_info"]["output_token_logprobs"] = pairs
    body["meta_info"]["completion_tokens"] = len(pairs)


def _too_many(body: Any, scene: Scene) -> None:
    most = scene.asked["sampling_params"]["max_new_tokens"]
    pairs = _pairs(body)
    _replace(body, [pairs[index % len(pairs)] for index in range(most + 1)])


def _cut_short(body: Any, scene: Scene) -> None:
    """Fewer ids than the cap, said to have reached it."""
    most = scene.asked["sampling_params"]["max_new_tokens"]
    _replace(body, _pairs(body)[: max(0, most - 1)])
    body["meta_info"]["finish_reason"] = {"type": "length", "length": most}


def _nothing_with_stop(body: Any, scene: Scene) -> None:
    _replace(body, [])
    body["meta_info"]["finish_reason"] = {"type": "stop", "matched": END}


def _stop_elsewhere(body: Any, scene: Scene) -> None:
    _replace(body, [pair for pair in _pairs(body) if pair[1] != END])
    body["meta_info"]["finish_reason"] = {"type": "stop", "matched": END}


def _echo_of_the_prompt(body: Any, scene: Scene) -> None:
    prompt = [[-0.5, token, None] for token in scene.asked["input_ids"]]
    _replace(body, prompt + _pairs(body))


def _text_cut(body: Any, scene: Scene) -> None:
    body["text"] = body["text"][:-1]


def _values_of_another(body: Any, scene: Scene) -> None:
    for own, foreign in zip(_pairs(body), _pairs(scene.other), strict=True):
        own[0] = foreign[0]


def _ids_of_another(body: Any, scene: Scene) -> None:
    for own, foreign in zip(_pairs(body), _pairs(scene.other), strict=True):
        own[1] = foreign[1]
    body["output_ids"] = [pair[1] for pair in _pairs(body)]


def _ids_of_the_last_chunk(body: Any, scene: Scene) -> None:
    """All but an end token, so that the reply stays true to form."""
    own = [pair for pair in _pairs(body) if pair[1] != END]
    for pair, token in zip(own, scene.asked["input_ids"][-len(own) :], strict=True):
        pair[1] = token
    body["output_ids"] = [pair[1] for pair in _pairs(body)]


def _another_without_echo(body: Any, scene: Scene) -> None:
    _values_of_another(body, scene)
    _ids_of_another(body, scene)
    del body["meta_info"]["id"]


def _longer_values(body: Any, scene: Scene) -> None:
    """Pairs of a longer reply under this one's count."""
    body["meta_info"]["output_token_logprobs"] = [*_pairs(scene.other), [-0.25, 43, None]]


def _aborted(body: Any, scene: Scene) -> None:
    body["meta_info"]["finish_reason"] = {"type": "abort", "message": "chaos"}


def _aborted_bare(body: Any, scene: Scene) -> Any:
    return {"meta_info": {"finish_reason": {"type": "abort"}}}


def _as_it_is(scene: Scene) -> tuple[Send]:
    return (Send(scene.honest),)


def _corrupt(name: str, change: Any, *, is_detectable: bool = True) -> Fault:
    act = spoiled(change)
    return Fault(name, Family.CONTENT, Kind.CORRUPT, act, is_detectable=is_detectable)


def _content(name: str, kind: Kind, change: Any) -> Fault:
    return Fault(name, Family.CONTENT, kind, spoiled(change))


CONTENT_FAULTS = (
    _corrupt("one_pair_short", _one_pair_short),
    _corrupt("one_pair_more", _one_pair_more),
    _corrupt("value_without_id", _value_without_id),
    _corrupt("null_log_prob", _set_value(None)),
    _corrupt("text_log_prob", _set_value("-0.5")),
    _corrupt("nan_log_prob", _set_value(float("nan"))),
    _corrupt("minus_infinity_log_prob", _set_value(float("-inf"))),
    _corrupt("positive_log_prob", _set_value(0.5)),
    _corrupt("bool_log_prob", _set_value(False)),
    _corrupt("id_past_the_vocabulary", _set_id(2**31)),
    _corrupt("negative_id", _set_id(-1)),
    _corrupt("float_id", _set_id(43.0)),
    _corrupt("values_of_a_longer_reply", _longer_values),
    _corrupt("count_wrong", _count_wrong),
    _corrupt("prompt_count_wrong", _set_meta("prompt_tokens", 1)),
    _corrupt("more_ids_than_asked", _too_many),
    _corrupt("length_short_of_the_cap", _cut_short),
    _corrupt("nothing_with_stop", _nothing_with_stop),
    _corrupt("stop_id_missing", _stop_elsewhere),
    _corrupt("echo_of_the_prompt", _echo_of_the_prompt),
    _corrupt("finish_missing", _drop_meta("finish_reason")),
    _corrupt("finish_unknown", _set_meta("finish_reason", {"type": "tired"})),
    _corrupt("pairs_missing", _drop_meta("output_token_logprobs")),
    _corrupt("meta_missing", lambda body, scene: {"text": body["text"]}),
    _content("abort", Kind.ABORT, _aborted),
    _content("abort_bare", Kind.ABORT, _aborted_bare),
    _content("version_changed", Kind.FATAL, _set_meta("weight_version", "other weights")),
    _content("text_cut", Kind.HARMLESS, _text_cut),
    Fault("special_id_inside", Family.CONTENT, Kind.HARMLESS, _as_it_is, plants=END),
    Fault("cut_inside_a_character", Family.CONTENT, Kind.HARMLESS, _as_it_is, plants=0xC3),
    _corrupt("another_reply_without_echo", _another_without_echo, is_detectable=False),
    _corrupt("values_of_another_reply", _values_of_another, is_detectable=False),
    _corrupt("ids_of_another_reply", _ids_of_another, is_detectable=False),
    _corrupt("ids_of_the_last_chunk", _ids_of_the_last_chunk, is_detectable=False),
)
"""The undetectable ones are true to form: only who knows what was sampled can tell."""
