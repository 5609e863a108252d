"""Search over one tree: phases, budgets, gates, allocators and a scheduler without I/O."""

from focus.search.allocators import (
    Allocator,
    BestFirst,
    BetaBernoulli,
    Calibration,
    EachCheckpoint,
    Fifo,
    FixedWidth,
    Gaussian,
    Posterior,
    RootOnly,
    Session,
    TokenEntropy,
    UniformRandom,
    ValueRefinement,
    View,
)
from focus.search.budget import Budget, PhaseEnd, PhaseReport
from focus.search.early_stop import EarlyStop, unstopped_outcomes
from focus.search.gates import Concurrency, Gate, Width
from focus.search.scheduler import Done, Launch, Scheduler, Wait
from focus.search.search import Edges, Phase, Search

__all__ = (
    "Allocator",
    "BestFirst",
    "BetaBernoulli",
    "Budget",
    "Calibration",
    "Concurrency",
    "Done",
    "EachCheckpoint",
    "EarlyStop",
    "Edges",
    "Fifo",
    "FixedWidth",
    "Gate",
    "Gaussian",
    "Launch",
    "Phase",
    "PhaseEnd",
    "PhaseReport",
    "Posterior",
    "RootOnly",
    "Scheduler",
    "Search",
    "Session",
    "TokenEntropy",
    "UniformRandom",
    "ValueRefinement",
    "View",
    "Wait",
    "Width",
    "unstopped_outcomes",
)
