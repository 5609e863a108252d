"""A critic's values are checked; what it cannot read or give is an error by name."""

import asyncio
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus import Allowance, Checkpoint, Critic
from focus.critic.context import RENDERERS, render_context
from focus.errors import ConfigError, CriticError
from focus.records.records import CriticContext
from focus.testing.envs import walk_script
from focus.testing.policies import ScriptedPolicy
from focus.tokens import TokenChain

pytestmark = pytest.mark.anyio


def context(text: str, *, renderer: str = "token_chunk/1") -> CriticContext:
    return CriticContext(renderer=renderer, text=text, ids=tuple(text.encode()))


AB = [context("a"), context("b")]


def giving(values: Any, **options: Any) -> Critic:
    async def predict(contexts: Sequence[CriticContext]) -> Any:
        return values

    return Critic.function(predict, version="odd/3", **options)


@given(st.lists(st.floats(-2, 2), min_size=2, max_size=2))
def test_values_inside_the_declared_range_pass_untouched(values: list[float]) -> None:
    assert asyncio.run(giving(values, value_range=(-2.0, 2.0)).score(AB)) == values


@pytest.mark.parametrize(
    "bad", [math.nan, math.inf, -math.inf, 1.0001, -0.0001, None, "high", [0.5], object()]
)
async def test_a_value_that_is_none_is_named_by_critic_and_position(bad: Any) -> None:
    with pytest.raises(CriticError, match=r"odd/3: prediction 1"):
        await giving([0.5, bad]).score(AB)


@pytest.mark.parametrize("values", [[], [0.5], [0.5] * 3, None, 0.5, iter([0.5])])
async def test_one_value_per_context_or_an_error(values: Any) -> None:
    with pytest.raises(CriticError, match="odd/3"):
        await giving(values).score(AB)


async def test_an_error_of_the_users_function_is_the_cause() -> None:
    boom = OSError("gone")

    async def predict(contexts: Sequence[CriticContext]) -> list[float]:
        raise boom

    with pytest.raises(CriticError, match="gone") as caught:
        await Critic.function(predict, version="c").score(AB)
    assert caught.value.__cause__ is boom


async def test_a_context_of_another_renderer_is_refused_unread() -> None:
    called = False

    async def predict(contexts: Sequence[CriticContext]) -> list[float]:
        nonlocal called
        called = True
        return [0.5] * len(contexts)

    critic = Critic.function(predict, version="c", renderer="token_chunk/1")
    with pytest.raises(CriticError, match="'messages/7'"):
        await critic.score([AB[0], context("x", renderer="messages/7")])
    assert not called


async def test_a_silent_critic_ends_at_its_deadline() -> None:
    async def predict(contexts: Sequence[CriticContext]) -> list[float]:
        await asyncio.Event().wait()
        return []

    critic = Critic.function(predict, version="slow", deadline_s=0.01)
    with pytest.raises(CriticError, match=r"slow: no prediction in 0.01 s"):
        await critic.score(AB)


async def test_a_cancellation_inside_the_function_is_its_error() -> None:
    async def predict(contexts: Sequence[CriticContext]) -> list[float]:
        raise asyncio.CancelledError

    with pytest.raises(CriticError, match="cancelled from inside"):
        await Critic.function(predict, version="c").score(AB)


async def test_the_function_gets_at_most_a_batch_and_equal_contexts_once() -> None:
    sizes: list[int] = []

    async def predict(contexts: Sequence[CriticContext]) -> list[float]:
        assert len(set(contexts)) == len(contexts)
        sizes.append(len(contexts))
        return [len(c.text) / 100 for c in contexts]

    critic = Critic.function(predict, version="c", batch=4)
    texts = ["x" * (n % 7) for n in range(30)]
    assert await critic.score([context(t) for t in texts]) == [len(t) / 100 for t in texts]
    assert sizes == [4, 3]


async def test_a_constant_makes_no_call_and_keeps_its_range() -> None:
    critic = Critic.constant(0.25)
    assert critic.version == "constant-0.25"
    assert await critic.score(AB) == [0.25, 0.25]
    for value in (1.5, -0.1, math.nan, math.inf):
        with pytest.raises(ConfigError, match="constant critic"):
            Critic.constant(value)
    assert Critic.constant(-1, value_range=(-1, 1)).fixed_value == -1.0


@pytest.mark.parametrize(
    "options",
    [
        {"value_range": (1.0, 1.0)},
        {"value_range": (2.0, 1.0)},
        {"value_range": (0.0, math.inf)},
        {"value_range": (math.nan, 1.0)},
        {"batch": 0},
        {"deadline_s": 0.0},
        {"deadline_s": math.nan},
    ],
)
def test_settings_that_cannot_be_honoured_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="odd/3"):
        giving([], **options)


class Model:
    """An in-process value model that shows where it ran."""

    renderer = "token_chunk/1"
    value_range = (0.0, 1.0)

    def __init__(self) -> None:
        self.version = "critic-0001"
        self.threads: set[int] = set()

    def predict(self, contexts: Sequence[CriticContext]) -> list[float]:
        self.threads.add(threading.get_ident())
        return [0.5] * len(contexts)


async def test_a_local_model_runs_off_the_loop() -> None:
    model = Model()
    critic = Critic.local(model)
    assert critic.version == "critic-0001"
    assert await critic.score(AB) == [0.5, 0.5]
    assert threading.get_ident() not in model.threads


async def test_a_critic_is_one_snapshot_of_a_model_that_is_trained() -> None:
    model = Model()
    critic = Critic.local(model)
    model.version = "critic-0002"
    with pytest.raises(CriticError, match="the model is now critic-0002"):
        await critic.score(AB)
    assert await Critic.local(model).score(AB) == [0.5, 0.5]


def render(name: str) -> Callable[[Checkpoint], CriticContext]:
    policy = ScriptedPolicy(walk_script())
    return lambda checkpoint: render_context(name, policy, checkpoint)


@pytest.mark.parametrize("name", sorted(name for name in RENDERERS if "token" in name))
def test_a_context_holds_what_the_agent_knows_and_may_still_spend(name: str) -> None:
    ids = (*b"user: 2+2?\nassistant: 4", 256)
    checkpoint = Checkpoint(
        context=TokenChain(ids[:10]).extended(ids[10:]),
        prompt_length=10,
        state="the state",
        allowance=Allowance(tokens=5, turns=2),
    )
    found = render(name)(checkpoint)
    assert found.renderer == name
    assert found.text == "user: 2+2?\nassistant: 4<end>"
    assert (found.remaining_tokens, found.remaining_turns) == (5, 2)
    assert found.ids == ids
    assert found.tokenizer_hash == "bytes"


def test_an_unknown_renderer_is_named_with_the_known_ones() -> None:
    checkpoint = Checkpoint(
        context=TokenChain((1,)), prompt_length=1, state=None, allowance=Allowance()
    )
    with pytest.raises(ConfigError, match=r"'haiku/1'.*token_chunk/1"):
        render("haiku/1")(checkpoint)
