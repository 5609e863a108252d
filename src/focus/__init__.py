"""FOCUS: rollout trees, step-wise critics and exact-token credit for RL on LLM agents.

Names load on first use, so importing the package costs next to nothing.

>>> import focus
>>> focus.Problem(id=1, prompt="2+2?").messages[0].role
'user'
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from focus.agent import (
        Agent,
        AnyOf,
        Compactor,
        DirectoryWorkspace,
        Env,
        InMemoryWorkspace,
        PromptTokens,
        SegmentAction,
        Segments,
        StateCounter,
        StepResult,
        Tool,
        ToolEnv,
        TurnAction,
        Turns,
        storage,
        tool,
    )
    from focus.checkpoint import Allowance, Checkpoint
    from focus.collect import Collection, Collector, Evaluation, Ledger
    from focus.collect.texts import edge_texts
    from focus.credit import (
        Credit,
        DirectBranchTd,
        Grpo,
        LambdaTd,
        RefinedTd,
        Rloo,
        SpoTree,
        TreeGrpo,
        TreeRl,
        VinePpo,
    )
    from focus.critic import Critic
    from focus.errors import FocusError
    from focus.execution import AdmissionPool, Execution, ExecutionServices, RetryPolicy
    from focus.policies.base import Policy
    from focus.policies.openai import OpenAIPolicy
    from focus.policies.openai_chat import OpenAIChatPolicy
    from focus.policies.sglang import SGLangPolicy
    from focus.policies.slime import SlimePolicy
    from focus.policies.tinker import TinkerPolicy
    from focus.policies.transformers import TransformersPolicy
    from focus.problem import Message, Problem
    from focus.records import ActorRecord, CriticRecord, PackedTree, load_tree, save_tree
    from focus.sampling import Sampling
    from focus.search import (
        BestFirst,
        BetaBernoulli,
        Concurrency,
        EachCheckpoint,
        Edges,
        Fifo,
        FixedWidth,
        Gaussian,
        Phase,
        Search,
        TokenEntropy,
        UniformRandom,
        ValueRefinement,
        Width,
    )
    from focus.tokens import FinishReason, Generation
    from focus.tree import Edge, Evidence, Identity, Node, Returns, Tree

__version__ = "0.1.0"

_HOMES = {
    "focus.agent": (
        "Agent",
        "AnyOf",
        "Compactor",
        "DirectoryWorkspace",
        "Env",
        "InMemoryWorkspace",
        "PromptTokens",
        "SegmentAction",
        "Segments",
        "StateCounter",
        "StepResult",
        "Tool",
        "ToolEnv",
        "TurnAction",
        "Turns",
        "storage",
        "tool",
    ),
    "focus.checkpoint": ("Allowance", "Checkpoint"),
    "focus.collect": ("Collection", "Collector", "Evaluation", "Ledger"),
    "focus.collect.texts": ("edge_texts",),
    "focus.credit": (
        "Credit",
        "DirectBranchTd",
        "Grpo",
        "LambdaTd",
        "RefinedTd",
        "Rloo",
        "SpoTree",
        "TreeGrpo",
        "TreeRl",
        "VinePpo",
    ),
    "focus.critic": ("Critic",),
    "focus.errors": ("FocusError",),
    "focus.execution": ("AdmissionPool", "Execution", "ExecutionServices", "RetryPolicy"),
    "focus.policies.base": ("Policy",),
    "focus.policies.openai": ("OpenAIPolicy",),
    "focus.policies.openai_chat": ("OpenAIChatPolicy",),
    "focus.policies.sglang": ("SGLangPolicy",),
    "focus.policies.slime": ("SlimePolicy",),
    "focus.policies.tinker": ("TinkerPolicy",),
    "focus.policies.transformers": ("TransformersPolicy",),
    "focus.problem": ("Message", "Problem"),
    "focus.records": ("ActorRecord", "CriticRecord", "PackedTree", "load_tree", "save_tree"),
    "focus.sampling": ("Sampling",),
    "focus.search": (
        "BestFirst",
        "BetaBernoulli",
        "Concurrency",
        "EachCheckpoint",
        "Edges",
        "Fifo",
        "FixedWidth",
        "Gaussian",
        "Phase",
        "Search",
        "TokenEntropy",
        "UniformRandom",
        "ValueRefinement",
        "Width",
    ),
    "focus.tokens": ("FinishReason", "Generation"),
    "focus.tree": ("Edge", "Evidence", "Identity", "Node", "Returns", "Tree"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = (
    "ActorRecord",
    "AdmissionPool",
    "Agent",
    "Allowance",
    "AnyOf",
    "BestFirst",
    "BetaBernoulli",
    "Checkpoint",
    "Collection",
    "Collector",
    "Compactor",
    "Concurrency",
    "Credit",
    "Critic",
    "CriticRecord",
    "DirectBranchTd",
    "DirectoryWorkspace",
    "EachCheckpoint",
    "Edge",
    "Edges",
    "Env",
    "Evaluation",
    "Evidence",
    "Execution",
    "ExecutionServices",
    "Fifo",
    "FinishReason",
    "FixedWidth",
    "FocusError",
    "Gaussian",
    "Generation",
    "Grpo",
    "Identity",
    "InMemoryWorkspace",
    "LambdaTd",
    "Ledger",
    "Message",
    "Node",
    "OpenAIChatPolicy",
    "OpenAIPolicy",
    "PackedTree",
    "Phase",
    "Policy",
    "Problem",
    "PromptTokens",
    "RefinedTd",
    "RetryPolicy",
    "Returns",
    "Rloo",
    "SGLangPolicy",
    "Sampling",
    "Search",
    "SegmentAction",
    "Segments",
    "SlimePolicy",
    "SpoTree",
    "StateCounter",
    "StepResult",
    "TinkerPolicy",
    "TokenEntropy",
    "Tool",
    "ToolEnv",
    "TransformersPolicy",
    "Tree",
    "TreeGrpo",
    "TreeRl",
    "TurnAction",
    "Turns",
    "UniformRandom",
    "ValueRefinement",
    "VinePpo",
    "Width",
    "__version__",
    "edge_texts",
    "load_tree",
    "save_tree",
    "storage",
    "tool",
)


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'focus' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
