"""A server that fails in every known way, by a seed, and keeps books of what it sampled.

    async with ChaosServer(Mix(seed=1)) as server:
        policy = SGLangPolicy(server.url, tokenizer=NonceTokenizer())
        ...
        server.ledger.write("ledger.jsonl")

Each fault says what a client must make of it, and whether a client can tell at all.
"""

from __future__ import annotations

from focus.testing.chaos.catalogue import FAULTS, fault_named
from focus.testing.chaos.engine import ChaosEngine, NonceTokenizer
from focus.testing.chaos.faults import Family, Fault, Kind
from focus.testing.chaos.ledger import ChaosLedger
from focus.testing.chaos.plans import Alone, Clean, Mix, Pairs, Plan, survivable
from focus.testing.chaos.server import ChaosServer

__all__ = (
    "FAULTS",
    "Alone",
    "ChaosEngine",
    "ChaosLedger",
    "ChaosServer",
    "Clean",
    "Family",
    "Fault",
    "Kind",
    "Mix",
    "NonceTokenizer",
    "Pairs",
    "Plan",
    "fault_named",
    "survivable",
)
