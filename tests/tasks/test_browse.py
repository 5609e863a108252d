"""The library: one fact per document, questions that need them, tools that find them."""

from collections import Counter
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.agent.tool_calls import answer_calls
from focus.errors import ConfigError, ProblemError, ToolError
from focus.rendering import Call
from focus.tasks.browse import RANKINGS, RELATIONS, Library, World

WORLD = World.draw(3, documents=400)


@pytest.fixture(scope="module", params=sorted(RANKINGS))
def library(request: pytest.FixtureRequest) -> Library:
    return Library(WORLD, ranking=RANKINGS[request.param])


def test_every_fact_stands_in_its_own_document_and_in_no_other() -> None:
    told = Counter(
        sentence
        for document in WORLD.documents
        for sentence in document.sentences
        if sentence.startswith("The ")
    )
    for (name, relation), end in WORLD.facts.items():
        assert told[f"The {relation} of {name} is {end}."] == 1
    assert sum(told.values()) == len(WORLD.facts)
    assert [d.id for d in WORLD.documents] == [f"{n:04d}" for n in range(400)]
    for (name, relation), end in WORLD.facts.items():
        assert WORLD.kinds[end] == RELATIONS[WORLD.kinds[name]][relation]


def test_equal_seeds_give_equal_worlds_and_others_other_facts() -> None:
    assert World.draw(3, documents=400) == WORLD
    other = World.draw(4, documents=400)
    shared = WORLD.facts.items() & other.facts.items()
    assert len(shared) < len(WORLD.facts) / 50
    for count in (9, 10**6):
        with pytest.raises(ConfigError, match="documents"):
            World.draw(0, documents=count)


@given(seed=st.integers(0, 1000), hops=st.integers(1, 4))
def test_a_question_can_be_answered_by_following_it(seed: int, hops: int) -> None:
    [problem] = WORLD.problems(1, seed=seed, hops=(hops,))
    words = str(problem.prompt).replace(".", "").replace(",", "").split()
    start, chain = words[2], words[4 : 4 + hops]
    assert WORLD.follow(start, tuple(chain)) == problem.label
    assert problem.label != start


def test_splits_share_no_question() -> None:
    prompts = {
        split: {p.prompt for p in WORLD.problems(150, split=split)}
        for split in ("train", "heldout")
    }
    assert prompts["train"].isdisjoint(prompts["heldout"])
    with pytest.raises(ProblemError, match="count=0"):
        WORLD.problems(0)


def test_a_search_for_a_name_finds_its_document_first(library: Library) -> None:
    for document in WORLD.documents:
        assert library.search(document.title)[0] == document
    assert library.search("zzz qqq") == []
    assert library.search("") == []


def test_tools_read_and_say_what_is_missing(library: Library) -> None:
    document = WORLD.documents[7]
    tools = {tool.name: tool for tool in library.tools()}

    def said(name: str, **arguments: Any) -> str:
        calls = [Call(name, arguments)]
        return anyio.run(lambda: answer_calls(tools, calls, None, dialect="hermes"))[0].content

    assert said("search", query=document.title).startswith(f"{document.title} 0007; ")
    assert said("open", id="0007") == document.text
    fact = next(s for s in document.sentences if s.startswith("The "))
    assert said("find", id="0007", word=fact.split()[1]) == fact
    assert said("find", id="0007", word="zzz") == "nothing found"
    assert said("open", id="9999") == "error: no document '9999'"
    with pytest.raises(ToolError, match="no document"):
        library.document("")


@pytest.mark.parametrize(("answer", "outcome"), [("{0}", 1.0), (" {0}. ", 1.0), ("x{0}", 0.0)])
def test_answers_are_graded_by_name(library: Library, answer: str, outcome: float) -> None:
    from focus import TurnAction

    [problem] = WORLD.problems(1)
    call = Call("submit", {"answer": answer.format(problem.label).upper()})

    async def graded() -> float:
        env = library.env(problem)
        state, _ = await env.reset(problem)
        return (await env.step(state, TurnAction("", (call,)), None)).reward

    assert anyio.run(graded) == outcome
