"""Folds: notes are sampled, trained, kept id by id; branches start before and after them."""

import itertools
import random
from typing import Any

import anyio
import pytest

from focus import (
    AnyOf,
    Collection,
    Collector,
    Compactor,
    DirectBranchTd,
    InMemoryWorkspace,
    Phase,
    PromptTokens,
    Search,
    Segments,
    StateCounter,
    ToolEnv,
    storage,
    tool,
)
from focus.agent.compaction import INSTRUCTION, NO_MORE_CALLS, RESUME
from focus.agent.turns import LAST_TURN
from focus.errors import ConfigError, ProblemError
from focus.records import actor_records
from focus.rendering import Reading
from focus.search import FixedWidth

from .conversations import PROBLEM, Listening, agent_of, call, kinds, saying, shown, walked

LONG = "x" * 200


@tool
def look(key: str) -> str:
    """Look something up; the answer is long."""
    return f"a is 7 {LONG}"


def graded(answer: Any) -> float:
    return float(answer["answer"] == "7")


def env_of(*tools: Any, **options: Any) -> ToolEnv:
    return ToolEnv([look, *tools], grade=graded, **options)


def folding(limit: int = 250, **options: Any) -> Compactor:
    return Compactor(trigger=PromptTokens(limit), **options)


LOOK, DONE = call("look", key="a"), call("submit", answer="7")


def test_a_fold_keeps_the_prompt_and_the_notes_as_they_were_sampled() -> None:
    policy = saying(LOOK, "a is 7", DONE)
    agent = agent_of(policy, compactor=folding())
    steps = walked(agent, env_of())
    assert kinds(steps) == ["turn", "fold", "turn"]
    turn, fold, last = steps
    assert shown(policy, turn)[1][1].endswith(f"\nuser: {INSTRUCTION}\nassistant: ")
    assert shown(policy, fold) == [(True, "a is 7<end>")]
    assert fold.edge.duration == 0
    assert fold.rebased is not None
    root = policy.render(PROBLEM.messages)
    notes = fold.edge.spans[0].ids
    assert fold.rebased[: len(root) + len(notes)] == root + notes
    assert policy.decode(fold.rebased[len(root) + len(notes) :]) == f"\nuser: {RESUME}\nassistant: "
    assert LONG not in policy.decode(fold.rebased)
    asked = [prefix for prefix, _ in policy.asked.values()]
    assert asked[1] == turn.checkpoint.context.ids()
    assert asked[2] == fold.rebased == fold.checkpoint.context.ids()
    assert last.edge.reward == 1.0


def test_a_fold_costs_tokens_and_no_turn() -> None:
    steps = walked(agent_of(saying(LOOK, "a", DONE), turns=9, compactor=folding()), env_of())
    left = [step.checkpoint.allowance for step in steps]
    assert [allowance.turns for allowance in left] == [8, 8, 7]
    assert left[0].tokens == 4000 - len(steps[0].edge.spans[0].ids)
    assert left[1].tokens == (left[0].tokens or 0) - len("a") - 1


def test_the_turn_after_a_fold_comes_whatever_the_trigger_says() -> None:
    """Notes as long as the limit would otherwise be folded for ever."""
    steps = walked(agent_of(saying(LOOK, "n" * 300, DONE), compactor=folding()), env_of())
    assert kinds(steps) == ["turn", "fold", "turn"]


def test_a_trigger_that_fires_on_the_bare_prompt_is_refused() -> None:
    with pytest.raises(ProblemError, match="fires on the bare prompt"):
        walked(agent_of(saying(DONE), compactor=folding(5)), env_of())


def test_the_last_turn_is_announced_after_the_fold() -> None:
    policy = saying(LOOK, "a is 7", DONE)
    steps = walked(agent_of(policy, turns=2, compactor=folding()), env_of())
    assert LAST_TURN not in shown(policy, steps[0])[1][1]
    assert LAST_TURN in policy.decode(steps[1].rebased or ())


def test_refused_notes_may_be_mended_and_cost_a_little() -> None:
    policy = saying(LOOK, "", "a is 7", DONE)
    steps = walked(agent_of(policy, compactor=folding()), env_of())
    assert kinds(steps) == ["turn", "fold", "fold", "turn"]
    assert [step.edge.step_reward for step in steps] == [0.0, -0.01, 0.0, 0.0]
    assert "cannot be used: they are empty" in shown(policy, steps[1])[1][1]
    assert steps[1].rebased is None
    assert steps[2].rebased is not None
    assert steps[-1].edge.reward == 1.0


def test_notes_that_stay_unusable_end_the_episode_with_their_tokens_kept() -> None:
    policy = saying(LOOK, "", "")
    steps = walked(agent_of(policy, compactor=folding()), env_of(unanswered=0.0))
    last = steps[-1]
    assert kinds(steps) == ["turn", "fold", "fold"]
    assert (last.is_terminal, last.is_truncated, last.edge.reward) == (True, True, 0.0)
    assert (last.edge.step_reward, last.rebased) == (-0.01, None)
    assert last.edge.sampled_tokens == 1


def test_notes_cut_off_by_their_limit_are_refused_and_closed_before_the_repair() -> None:
    policy = saying(LOOK, "y" * 50, "a is 7", DONE)
    policy_limit = folding(reply_tokens=20)
    steps = walked(agent_of(policy, compactor=policy_limit), env_of())
    sampled, added = shown(policy, steps[1])
    assert sampled == (True, "y" * 20)
    assert "they were cut off; write shorter notes.\nassistant: " in added[1]
    assert steps[1].edge.spans[1].ids[0] == 256, "the end of turn is appended, not sampled"
    assert [s.max_tokens for _, s in policy.asked.values()][1] == 20


SECTIONS = Compactor(trigger=PromptTokens(10), sections=("Found", "Left"))


@pytest.mark.parametrize(
    ("text", "issue"),
    [
        ("## Found\na is 7\n## Left\nsubmit", ""),
        ("Found: a is 7\nLeft: submit", ""),
        ("## Found\n## Left\nsubmit", "sections without text: Found"),
        ("a is 7", "sections without text: Found, Left"),
        ("", "they are empty"),
    ],
)
def test_structured_notes_have_their_sections(text: str, issue: str) -> None:
    verdict = SECTIONS.judge(Reading(text), closed=True)
    assert (verdict.issue, verdict.penalty) == (issue, 0.01 if issue else 0.0)


def test_notes_inside_a_fence_are_taken_at_a_price() -> None:
    verdict = SECTIONS.judge(Reading("```\nFound: a\nLeft: b\n```"), closed=True)
    assert (verdict.issue, verdict.penalty) == ("", 0.002)
    assert SECTIONS.judge(Reading("", is_thinking=True), closed=True).issue


def test_a_fold_may_use_the_workspace_and_nothing_else() -> None:
    ran = []

    @tool
    def spy() -> str:
        ran.append(1)
        return ""

    put = call("storage", action="put", path="notes", text="a is 7")
    policy = saying(LOOK, put + call("spy"), "see notes", DONE)
    files = InMemoryWorkspace(tools=[storage])
    steps = walked(agent_of(policy, compactor=folding(), workspace=files), env_of(spy))
    assert kinds(steps) == ["turn", "fold", "fold", "turn"]
    assert shown(policy, steps[1])[1][1] == (
        "\ntool: stored 6 characters at notes\ntool: error: no tool 'spy'; there are: storage"
        "\nassistant: "
    )
    assert not ran
    stored = [anyio.run(step.checkpoint.workspace.snapshot) for step in steps]
    assert stored == [{}, {"notes": "a is 7"}, {"notes": "a is 7"}, {"notes": "a is 7"}]
    assert anyio.run(files.snapshot) == {}


def test_calls_in_a_fold_are_bounded() -> None:
    put = call("storage", action="put", path="notes", text="a")
    policy = saying(LOOK, put, put, "n", DONE)
    agent = agent_of(
        policy, compactor=folding(most_calls=1), workspace=InMemoryWorkspace(tools=[storage])
    )
    steps = walked(agent, env_of())
    assert NO_MORE_CALLS in shown(policy, steps[1])[1][1]
    assert "they hold a tool call" in shown(policy, steps[2])[1][1]
    assert steps[-1].edge.reward == 1.0


def test_a_counter_folds_when_it_is_used_up_and_is_refilled() -> None:
    either = AnyOf([PromptTokens(10_000), StateCounter("calls_left", refill=2)])
    policy = saying(LOOK, "a is 7", LOOK, DONE)
    agent = agent_of(policy, compactor=Compactor(trigger=either))
    steps = walked(agent, env_of(most_calls=1))
    assert kinds(steps) == ["turn", "fold", "turn", "turn"]
    assert [step.checkpoint.state.calls_left for step in steps] == [0, 2, 1, 1]


def test_settings_that_cannot_work_are_refused() -> None:
    for make in (
        lambda: PromptTokens(0),
        lambda: StateCounter("n", refill=0),
        lambda: AnyOf([]),
        lambda: folding(repairs=-1),
        lambda: folding(reply_tokens=0),
        lambda: folding(malformed_penalty=-0.1),
        lambda: agent_of(saying(DONE), tokens=None, compactor=folding()),
        lambda: walked(
            agent_of(saying(LOOK), compactor=Compactor(trigger=StateCounter("coins", refill=1))),
            env_of(),
        ),
    ):
        with pytest.raises(ConfigError):
            make()


def collected(policy: Any, widths: tuple[int, ...], **options: Any) -> Collection:
    """One tree of the given widths."""
    agent = agent_of(policy, compactor=folding())
    search = Search([Phase(FixedWidth(widths), attempts=sum(widths))], concurrency=1)
    collector = Collector(agent=agent, env=env_of(), search=search, **options)

    async def main() -> Collection:
        async with collector:
            return await collector.collect(PROBLEM)

    return anyio.run(main)


def summary_decides() -> Listening:
    """Looks, folds, and answers what its notes say; good notes and bad ones take turns."""
    notes = itertools.cycle(["a is 7", "a is 8"])

    def script(prompt: str, so_far: str, rng: random.Random) -> str:
        if prompt.endswith(f"{INSTRUCTION}\n"):
            return next(notes)
        for value in "78":
            if f"assistant: a is {value}\n" in prompt:
                return call("submit", answer=value)
        return LOOK

    return Listening(script)


def test_only_the_summary_matters_and_only_the_summary_is_credited() -> None:
    """One look, two summaries, an answer each; by hand at V = 1/2, κ = 1:

    V(good) = 3/4, V(bad) = 1/4, V(before the fold) = (1/2 + 3/4 + 1/4) / 3 = 1/2, and so
    A(look) = 0, A(good notes) = +1/4, A(bad notes) = -1/4.
    """
    found = collected(summary_decides(), (1, 2))
    tree, advantages = found.tree, found.credit.advantages
    kind = {node.id: node.incoming.kind for node in tree.edges()}
    assert kind == {1: "turn", 2: "fold", 3: "turn", 4: "fold", 5: "turn"}
    assert (tree[2].parent, tree[4].parent) == (1, 1), "both summaries branch before the fold"
    assert advantages == {1: 0.0, 2: 0.25, 3: 0.25, 4: -0.25, 5: -0.25}
    trained = {record.nodes[0]: record for record in found.actor}
    decoded = {node: bytes(trained[node].response[:-1]).decode() for node in (2, 4)}
    assert decoded == {2: "a is 7", 4: "a is 8"}
    assert trained[2].weights == (0.25,) * 7
    assert trained[4].weights == (-0.25,) * 7


def test_without_a_prior_the_whole_difference_falls_on_the_summary() -> None:
    """κ → 0: V(good) = 1, V(bad) = 0, so A = ±1/2 on the notes and 0 on everything else."""
    found = collected(summary_decides(), (1, 2), credit=DirectBranchTd(prior_strength=1e-12))
    rounded = {node: round(a, 9) + 0.0 for node, a in found.credit.advantages.items()}
    assert rounded == {1: 0.0, 2: 0.5, 3: 0.0, 4: -0.5, 5: 0.0}


def test_branches_start_after_a_fold_too() -> None:
    found = collected(summary_decides(), (1, 1, 3))
    tree = found.tree
    [fold] = [node for node in tree.edges() if node.incoming.kind == "fold"]
    assert len(tree.children(fold.id)) == 3
    for child in tree.children(fold.id):
        record = next(r for r in found.actor if r.nodes == (child,))
        assert record.prefix == fold.rebased


@pytest.mark.parametrize("packing", ["segment", "path"])
def test_both_packings_train_each_summary_once_and_no_observation(packing: Any) -> None:
    found = collected(summary_decides(), (2, 2, 2))
    records = actor_records(found.tree, found.credit, packing=packing)
    trained = sum(sum(record.loss_mask) for record in records)
    assert trained == found.tree.sampled_tokens()
    folds = {n.id for n in found.tree.edges() if n.incoming.kind == "fold"}
    for record in records:
        assert folds.isdisjoint(record.nodes[:-1]), "a fold ends its record"


def test_a_compactor_needs_a_conversation() -> None:
    with pytest.raises(ConfigError, match="needs the parser Turns"):
        agent_of(saying(DONE), parser=Segments(8), compactor=folding())
