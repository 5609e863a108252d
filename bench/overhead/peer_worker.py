"""Other libraries' own conversion of one credited tree, timed in the interpreter that has them.

Reads a tree from standard input, writes a JSON object: per library its version and seconds,
or why it was not measured. Run by `bench.overhead.peers`; needs no FOCUS.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from typing import Any


def main() -> int:
    tree = json.load(sys.stdin)
    found = {}
    for name, prepare in (("verifiers", _verifiers), ("tinker-cookbook", _tinker_cookbook)):
        try:
            found[name] = {"version": version(name), "seconds": _seconds(prepare(tree))}
        except (ImportError, PackageNotFoundError) as error:
            found[name] = {"missing": f"not installed ({error})"}
    json.dump(found, sys.stdout)
    return 0


def _seconds(work: Callable[[], object]) -> float:
    """Median processor time of a call, over some turns; what ours is measured by, too."""
    taken = []
    for _ in range(15):
        gc.collect()
        gc.disable()
        started = time.process_time()
        work()
        taken.append(time.process_time() - started)
        gc.enable()
    return median(taken)


def _paths(tree: Any) -> list[list[int]]:
    parents = tree["parents"]
    inner = set(parents)
    paths = []
    for leaf in range(1, len(parents)):
        if leaf not in inner:
            path = [leaf]
            while parents[path[-1]] > 0:
                path.append(parents[path[-1]])
            paths.append(path[::-1])
    return paths


def _verifiers(tree: Any) -> Callable[[], object]:
    """`Branch` of each leaf: ids, mask, log-probs and advantages of the whole path."""
    from verifiers.v1.graph import MessageNode
    from verifiers.v1.trace import Branch
    from verifiers.v1.types import AssistantMessage, UserMessage

    prompt = tree["prompt"]
    nodes = [
        MessageNode(
            message=UserMessage(content="prompt"), token_ids=prompt, mask=[False] * len(prompt)
        )
    ]
    for node in range(1, len(tree["parents"])):
        size = len(tree["ids"][node])
        nodes.append(
            MessageNode(
                parent=tree["parents"][node],
                message=AssistantMessage(content="segment"),
                sampled=True,
                token_ids=tree["ids"][node],
                mask=[True] * size,
                logprobs=tree["log_probs"][node],
                advantages=[tree["advantages"][node]] * size,
            )
        )
    paths = [[0, *path] for path in _paths(tree)]

    def convert() -> object:
        samples = []
        for index, path in enumerate(paths):
            branch = Branch(index=index, nodes=[nodes[node] for node in path])
            columns = (branch.token_ids, branch.sampled_mask, branch.logprobs, branch.advantages)
            samples.append(columns)
        return samples

    return convert


def _tinker_cookbook(tree: Any) -> Callable[[], object]:
    """`trajectory_to_data` of each root-to-leaf path."""
    import tinker
    from tinker_cookbook.completers import TokensWithLogprobs
    from tinker_cookbook.rl.data_processing import trajectory_to_data
    from tinker_cookbook.rl.types import Trajectory, Transition

    trajectories = []
    for path in _paths(tree):
        prefix = list(tree["prompt"])
        transitions = []
        for node in path:
            transitions.append(
                Transition(
                    ob=tinker.ModelInput.from_ints(list(prefix)),
                    ac=TokensWithLogprobs(
                        tokens=tree["ids"][node], maybe_logprobs=tree["log_probs"][node]
                    ),
                    reward=0.0,
                    episode_done=node == path[-1],
                )
            )
            prefix += tree["ids"][node]
        trajectory = Trajectory(
            transitions=transitions, final_ob=tinker.ModelInput.from_ints(prefix)
        )
        trajectories.append((trajectory, tree["advantages"][path[-1]]))
    return lambda: [trajectory_to_data(*pair) for pair in trajectories]


if __name__ == "__main__":
    sys.exit(main())
