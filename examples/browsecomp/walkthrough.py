"""An agent that browses, forgets, and learns what to write down.

Questions of two or three hops over 3,000 made-up documents. The context holds about one
document, so the agent must fold again and again: it writes notes, and goes on with the
question and these notes alone. FOCUS branches at the folds, credits the notes' own tokens,
and trains the policy on them.

    python examples/browsecomp/walkthrough.py --quick          # about a minute on a CPU
    python examples/browsecomp/walkthrough.py                  # the full figures, some minutes
    python examples/browsecomp/walkthrough.py --url http://127.0.0.1:30000 --model FOLDER

With --url the same code collects trees from a model behind an SGLang server (or router);
it is not trained here. A larger model, made and trained on a GPU in some minutes:

    python scripts/build_agent --device cuda --model-size 12m --episodes 12000 --updates 2500 \\
        --peak 1e-3 --evaluate 0 --workers 16 --out FOLDER
    python examples/browsecomp/walkthrough.py --model FOLDER --device cuda --learning-rate 2e-4
"""

import argparse
import copy
import json
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from browsing import Browsing

from focus import Collection, FocusError, SGLangPolicy, TransformersPolicy, save_tree
from focus.collect.texts import edge_texts
from focus.execution import AdmissionPool, ExecutionServices
from focus.integrations.local import ActorTrainer
from focus.policies.base import Policy
from focus.tasks.browse import RANKINGS, Library, World
from focus.tasks.browse.habits import FOLD_AT
from focus.training.settings import ActorSettings


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is done.

    Attributes:
        rounds: updates of the actor.
        questions: trees per round.
        tokens: generation budget of a tree.
        judged: held-out questions before and after.
    """

    rounds: int
    questions: int
    tokens: int
    judged: int


QUICK = Size(rounds=2, questions=4, tokens=400, judged=24)
FULL = Size(rounds=8, questions=12, tokens=700, judged=300)
ACTOR = ActorSettings(learning_rate=3e-4, minibatches=2)


@dataclass
class Folds:
    """What folds were for, over all trees.

    Attributes:
        folds: contexts that were replaced by notes.
        branches_at_folds: branches beyond the first that start right before or after one.
        tokens_trained: ids of notes that carry a weight other than 0.
        good, bad: mean advantage of notes that name the right place, and of the others.
    """

    folds: int = 0
    branches_at_folds: int = 0
    tokens_trained: int = 0
    advantages: list[float] = field(default_factory=list)

    def add(self, found: Collection) -> None:
        tree = found.tree
        for node in tree.edges():
            if node.incoming.kind != "fold":
                continue
            advantage = found.credit.advantages.get(node.id, 0.0)
            self.folds += node.rebased is not None
            self.branches_at_folds += max(0, len(tree.children(node.id)) - 1)
            self.tokens_trained += node.incoming.sampled_tokens if advantage else 0
            self.advantages.append(advantage)
        for node in tree:
            below = [tree[child].incoming.kind for child in tree.children(node.id)]
            self.branches_at_folds += max(0, below.count("fold") - 1)


def note(text: str) -> None:
    """A line of progress."""
    print(text, file=sys.stderr, flush=True)


def ticking(what: str) -> Any:
    """Progress of one stage: a line at every quarter."""

    def progress(done: int, of: int) -> None:
        if done == of or done % max(1, of // 4) == 0:
            note(f"  {what}: {done} of {of}")

    return progress


async def trained(size: Size, options: argparse.Namespace) -> dict[str, Any]:
    """Collect, credit, train and publish in rounds; success before and after."""
    policy = TransformersPolicy(
        options.model or "agent",
        device=options.device,
        dtype="float32",
        profile=options.dialect,
        version="actor-0",
    )
    settings = replace(ACTOR, learning_rate=options.learning_rate)
    trainer = ActorTrainer(copy.deepcopy(policy.model), settings)
    size = replace(size, rounds=options.rounds or size.rounds)
    note(
        f"{sum(p.numel() for p in policy.model.parameters()):,} parameters on {policy.model.device}"
    )
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(policy)
        services = await stack.enter_async_context(ExecutionServices(AdmissionPool(64)))
        browsing = opened(policy, services, options)
        judged = browsing.library.world.problems(size.judged, split="heldout")
        before = await browsing.success(judged, seed=1, progress=ticking("success before"))
        note(f"success before: {before:.3f}")
        folds, found = Folds(), []
        for round_index in range(size.rounds):
            found = await collected(browsing, size, round_index, value=before, seed=options.seed)
            for each in found:
                folds.add(each)
            records = [record for each in found for record in each.actor]
            await anyio.to_thread.run_sync(partial(trainer.update, records, seed=round_index))
            policy.update_weights(trainer.model.state_dict(), version=f"actor-{round_index + 1}")
            note(round_line(round_index, found))
        after = await browsing.success(judged, seed=2, progress=ticking("success after"))
        keep(found, policy, options)
    return {**figures(folds), "success_before": before, "success_after": after}


async def served(size: Size, options: argparse.Namespace) -> dict[str, Any]:
    """The same trees from a served model; nothing is trained."""
    if options.model is None:
        raise SystemExit(
            "--url needs --model: the folder (or name) of the served model's tokenizer"
        )
    policy = SGLangPolicy(options.url, model=options.model, profile=options.dialect)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(policy)
        await policy.probe()  # reads the context limit, among others
        services = await stack.enter_async_context(ExecutionServices(AdmissionPool(64)))
        browsing = opened(policy, services, options)
        judged = browsing.library.world.problems(size.judged, split="heldout")
        before = await browsing.success(judged, seed=1, progress=ticking("success"))
        folds = Folds()
        found = await collected(browsing, size, 0, value=before, seed=options.seed)
        for each in found:
            folds.add(each)
        note(round_line(0, found))
        keep(found, policy, options)
    return {**figures(folds), "success_before": before, "success_after": None}


def opened(policy: Policy, services: ExecutionServices, options: argparse.Namespace) -> Browsing:
    """The library, and a policy in it."""
    return Browsing(
        policy=policy,
        library=Library(World.draw(0), ranking=RANKINGS[options.ranking]),
        services=services,
        fold_at=options.fold_at,
        reply_tokens=options.reply_tokens,
        dialect=options.dialect,
    )


async def collected(
    browsing: Browsing, size: Size, round_index: int, *, value: float, seed: int
) -> list[Collection]:
    """One round's trees, on questions of its own."""
    problems = browsing.library.world.problems(size.questions, seed=1000 * seed + round_index)
    return await browsing.collect(
        problems,
        round_index=round_index,
        tokens=size.tokens,
        value=value,
        progress=ticking(f"round {round_index} trees"),
    )


def round_line(round_index: int, found: Sequence[Collection]) -> str:
    outcomes = [outcome for each in found for outcome in each.opening_outcomes]
    tokens = sum(each.ledger.tokens_generated for each in found)
    mean = sum(outcomes) / max(1, len(outcomes))
    return f"round {round_index}: success {mean:.3f} while collecting, {tokens} tokens"


def figures(folds: Folds) -> dict[str, Any]:
    return {
        "folds": folds.folds,
        "branches_at_folds": folds.branches_at_folds,
        "fold_tokens_trained": folds.tokens_trained,
    }


def keep(found: Sequence[Collection], policy: Policy, options: argparse.Namespace) -> None:
    """Store the last round's first tree, for ``focus show``."""
    if options.tree and found:
        texts = edge_texts(found[0].tree, policy)
        save_tree(found[0].tree, options.tree, texts=texts, credit=found[0].credit)
        note(f"look at a tree: focus show {options.tree}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a small run, about a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--tree", type=Path, metavar="FILE", help="store one tree there")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--url", help="an SGLang server or router; collects, does not train")
    parser.add_argument("--model", help="model folder or name (default: the shipped agent)")
    parser.add_argument("--device", help="cpu, cuda, …; by default the GPU if there is one")
    parser.add_argument("--rounds", type=int, help="updates of the actor (2 quick, 8 full)")
    parser.add_argument("--learning-rate", type=float, default=ACTOR.learning_rate)
    parser.add_argument(
        "--ranking",
        choices=RANKINGS,
        default="bm25",
        help="of the search tool; counts needs no bm25s",
    )
    parser.add_argument("--dialect", default="hermes", help="how the model writes calls")
    parser.add_argument("--fold-at", type=int, default=FOLD_AT, help="prompt tokens before a fold")
    parser.add_argument("--reply-tokens", type=int, default=48, help="most tokens of one reply")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    size = QUICK if options.quick else FULL
    try:
        result = anyio.run(served if options.url else trained, size, options)
    except* FocusError as errors:
        raise SystemExit(f"error: {errors.exceptions[0]}") from None
    text = json.dumps(result, indent=2)
    print(text)
    if options.json is not None:
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
