"""The bench's task families: demonstrators solve them, and fail as often as they should."""

import operator
import random
from statistics import mean

import anyio
import pytest
from bench.learning.tasks import FAMILIES, coarsened, searched
from bench.learning.tasks.boxed import BoxEnv
from bench.learning.tasks.chains import slips_for
from bench.learning.tasks.gym import bits_demonstration, score, sum_demonstration
from bench.learning.tasks.modular import MODULUS, demonstration, make_problem
from hypothesis import given
from hypothesis import strategies as st

from focus.agent import SegmentAction
from focus.models import resolve
from focus.rendering import load_tokenizer, render_chat
from focus.search import Search
from focus.tasks.arithmetic import Slips

TAUGHT = sorted(name for name, family in FAMILIES.items() if family.demonstrate)
OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
FLAWLESS = Slips(guess=0.5, wrong=0.0)


def outcome(task, problem, text):
    """What the environment gives for a whole reply."""
    env = task.env_for(problem)
    action = SegmentAction(ids=(), finished=True, text=text)

    async def played():
        state, _ = await env.reset(problem)
        return (await env.step(state, action, None)).reward

    return anyio.run(played)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_splits_are_disjoint_and_allowances_are_whole_segments(name):
    family = FAMILIES[name]
    task = family.make_task()
    train, held_out = task.problems("train", 20), task.problems("heldout", 20)
    assert train == task.problems("train", 20)
    if family.game is None:
        assert not {p.key for p in train} & {p.key for p in held_out}
    assert task.allowance_tokens % task.segment_tokens == 0


@pytest.mark.parametrize("name", TAUGHT)
def test_a_demonstrator_is_right_about_every_other_time_within_the_allowance(name):
    family, rng = FAMILIES[name], random.Random(0)
    task, tokenizer = family.make_task(), load_tokenizer(resolve(family.start))
    outcomes, lengths = [], []
    for problem in task.problems("train", 60):
        text = family.demonstrate(problem, rng)
        outcomes.append(outcome(task, problem, text))
        reply = tokenizer.encode(text, add_special_tokens=False)
        assert len(reply) < task.allowance_tokens
        assert len(render_chat(tokenizer, family.messages(problem))) + len(reply) < 1024
        lengths.append(len(reply))
    assert mean(lengths) > 3 * task.segment_tokens
    assert 0.2 < mean(outcomes) < 0.75


@given(index=st.integers(0, 10**6), steps=st.integers(1, 30))
def test_a_modular_demonstration_without_errors_ends_at_the_label(index, steps):
    problem = make_problem(index, seed=1, steps=steps, split="train")
    text = demonstration(problem, slips=FLAWLESS, rng=random.Random(index))
    assert text.endswith(rf"\boxed{{{problem.label}}}")
    expression = problem.prompt.removeprefix("Compute modulo 12: ").rstrip(".")
    value, *rest = expression.split(" ")
    for sign, term in zip(rest[::2], rest[1::2], strict=True):
        value = OPERATIONS[sign](int(value), int(term)) % MODULUS
    assert str(value) == problem.label


def test_modular_errors_can_be_undone_and_those_of_plain_chains_hardly():
    shares = {}
    for name in ("mod-20", "chain-20"):
        family, rng = FAMILIES[name], random.Random(0)
        task = family.make_task()
        erred = survived = 0
        for problem in task.problems("train", 400):
            text = family.demonstrate(problem, rng)
            if any(not _line_is_right(line, name) for line in text.split("\n")[:-1]):
                erred += 1
                survived += outcome(task, problem, text)
        shares[name] = survived / erred
    assert shares["chain-20"] < 0.15
    assert 0.3 < shares["mod-20"] < 0.6


def _line_is_right(line, name):
    left, _, right = line.replace("~", "=").partition(" = ")
    start, sign, term = left.split(" ")
    value = OPERATIONS[sign](int(start), int(term))
    return (value % MODULUS if name == "mod-20" else value) == int(right)


@pytest.mark.parametrize(
    ("name", "demonstrate"),
    [("gym-count_bits", bits_demonstration), ("gym-chain_sum", sum_demonstration)],
)
def test_the_package_itself_accepts_a_flawless_demonstration(name, demonstrate):
    task = FAMILIES[name].make_task()
    for problem in task.problems("heldout", 20):
        text = demonstrate(problem, slips=FLAWLESS, rng=random.Random(0))
        assert outcome(task, problem, text) == 1.0
        assert score("junk", problem.label) < 0.1


def test_a_reply_without_a_box_fails():
    problem = make_problem(0, seed=0, steps=2, split="train")
    assert outcome(FAMILIES["mod-10"].make_task(), problem, problem.label) == 0.0
    assert anyio.run(BoxEnv("3").finish, r"\boxed{2} \boxed{3}", None, "allowance") == 1.0


@given(st.integers(1, 100))
def test_expected_errors_of_a_demonstrator_do_not_grow_with_the_chain(steps):
    assert slips_for(steps).guess * slips_for(steps).wrong * steps <= 0.9 + 1e-9


@pytest.mark.parametrize("name", sorted(FAMILIES))
@pytest.mark.parametrize("joined", [1, 2, 100])
def test_joined_segments_never_exceed_the_allowance(name, joined):
    task = FAMILIES[name].make_task()
    coarse = coarsened(task, joined)
    wanted = min(joined * task.segment_tokens, task.allowance_tokens)
    assert (coarse.segment_tokens, coarse.allowance_tokens) == (wanted, task.allowance_tokens)


def test_a_task_that_brings_collectors_takes_the_bench_search():
    task = FAMILIES["browse"].make_task()
    search = Search.flat(3)
    assert searched(FAMILIES["chain-5"].make_task(), search).collector_for is None
    assert searched(task, search).collector_for is not None
