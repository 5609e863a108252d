"""Collecting: the driver, the Collector and what it returns."""

from focus.collect.collection import Collection, Evaluation
from focus.collect.collector import Collector
from focus.collect.ledger import Ledger, total
from focus.collect.rollout import release_steps, rollout

__all__ = ("Collection", "Collector", "Evaluation", "Ledger", "release_steps", "rollout", "total")
