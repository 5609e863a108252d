"""Task families of the bench, by name."""

from __future__ import annotations

from bench.learning.tasks.browsing import BROWSING
from bench.learning.tasks.chains import CHAINS
from bench.learning.tasks.family import Family, coarsened, searched
from bench.learning.tasks.games import GAMES
from bench.learning.tasks.gym import GYM
from bench.learning.tasks.modular import MODULAR

__all__ = ("FAMILIES", "Family", "coarsened", "searched")

FAMILIES: dict[str, Family] = {**CHAINS, **MODULAR, **GYM, **BROWSING, **GAMES}
