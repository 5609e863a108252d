"""Rankings of checkpoints: frozen configuration, a fresh session per phase."""

from focus.search.allocators.base import Allocator, Session, View
from focus.search.allocators.best_first import BestFirst
from focus.search.allocators.calibration import BetaBernoulli, Calibration, Gaussian, Posterior
from focus.search.allocators.entropy import TokenEntropy, windowed_entropy
from focus.search.allocators.fifo import Fifo
from focus.search.allocators.refinement import ValueRefinement
from focus.search.allocators.root_only import RootOnly
from focus.search.allocators.uniform import UniformRandom
from focus.search.allocators.widths import EachCheckpoint, FixedWidth

__all__ = (
    "Allocator",
    "BestFirst",
    "BetaBernoulli",
    "Calibration",
    "EachCheckpoint",
    "Fifo",
    "FixedWidth",
    "Gaussian",
    "Posterior",
    "RootOnly",
    "Session",
    "TokenEntropy",
    "UniformRandom",
    "ValueRefinement",
    "View",
    "windowed_entropy",
)
