"""Which reasoning-gym generators can be trained on, and why the others can't.

Checked against reasoning-gym 0.1.25: tests/tasks/test_gym.py repeats the checks and fails
when the installed package registers a name that stands in neither table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from focus._extras import require
from focus.errors import ConfigError

__all__ = ("REFUSED", "SAFE", "ensure_safe", "open_dataset")

SAFE = (
    "ab",
    "acre",
    "advanced_geometry",
    "aiw",
    "arc_1d",
    "base_conversion",
    "basic_arithmetic",
    "bf",
    "binary_alternation",
    "caesar_cipher",
    "calendar_arithmetic",
    "chain_sum",
    "circuit_logic",
    "coin_flip",
    "color_cube_rotation",
    "complex_arithmetic",
    "count_bits",
    "count_primes",
    "course_schedule",
    "cryptarithm",
    "decimal_arithmetic",
    "decimal_chain_sum",
    "dice",
    "emoji_mystery",
    "family_relationships",
    "figlet_font",
    "fraction_simplification",
    "futoshiki",
    "game_of_life",
    "gcd",
    "group_anagrams",
    "gsm_symbolic",
    "jugs",
    "kakurasu",
    "knights_knaves",
    "largest_island",
    "lcm",
    "leg_counting",
    "letter_counting",
    "letter_jumble",
    "list_functions",
    "mahjong_puzzle",
    "manipulate_matrix",
    "maze",
    "mini_sudoku",
    "modulo_grid",
    "needle_haystack",
    "number_filtering",
    "number_format",
    "number_sequence",
    "palindrome_generation",
    "palindrome_partitioning",
    "path_star",
    "polynomial_equations",
    "pool_matrix",
    "power_function",
    "products",
    "quantum_lock",
    "rectangle_count",
    "rotate_matrix",
    "rotten_oranges",
    "self_reference",
    "sentence_reordering",
    "shortest_path",
    "simple_equations",
    "simple_geometry",
    "sokoban",
    "spell_backward",
    "string_manipulation",
    "string_splitting",
    "string_synthesis",
    "sudoku",
    "survo",
    "syllogism",
    "time_intervals",
    "tower_of_hanoi",
    "tsumego",
    "word_sequence_reversal",
    "word_sorting",
    "zebra_puzzles",
)
"""Same seed gives the same data, the generator's own answer scores 1 and junk does not."""

_NOT_REPRODUCIBLE = "the same seed gives other problems in another process"
_NO_WINNER = "its stored answer does not score 1 with its own scorer"
_RUNS_ANSWER = "its scorer evaluates the answer's text as Python"
_RUNS_RECORD = "its scorer evaluates the record's text as Python"
_NOT_JSON = "its scorer rejects a record that went through JSON"

REFUSED: Mapping[str, str] = {
    "arc_agi": _NOT_JSON,
    "binary_matrix": _RUNS_ANSWER,
    "bitwise_arithmetic": _RUNS_RECORD,
    "boxnet": _NO_WINNER,
    "codeio": _NOT_REPRODUCIBLE,
    "composite": "it is a mixture of other generators; name those instead",
    "countdown": _RUNS_ANSWER,
    "game_of_life_halting": "its scorer gives 1 to junk",
    "graph_color": _NO_WINNER,
    "intermediate_integration": _RUNS_ANSWER,
    "isomorphic_strings": _NOT_REPRODUCIBLE,
    "knight_swap": _NOT_REPRODUCIBLE,
    "n_queens": _RUNS_ANSWER,
    "number_sorting": _RUNS_RECORD,
    "polynomial_multiplication": _NOT_REPRODUCIBLE,
    "prime_factorization": "its scorer raises on answers that are no numbers",
    "propositional_logic": _NO_WINNER,
    "puzzle24": _RUNS_ANSWER,
    "ransom_note": _NOT_REPRODUCIBLE,
    "rearc": _NOT_JSON,
    "rubiks_cube": _NO_WINNER,
    "rush_hour": _NO_WINNER,
    "simple_integration": _RUNS_ANSWER,
    "spiral_matrix": _RUNS_ANSWER,
    "string_insertion": _RUNS_ANSWER,
    "word_ladder": _NOT_REPRODUCIBLE,
}
"""Generators that are refused, each with its reason."""


def ensure_safe(name: str) -> None:
    """Refuse a generator that can't be trained on.

    Raises:
        ConfigError: the name is unknown, or refused for the reason that the message gives.
    """
    if name in REFUSED:
        raise ConfigError(f"reasoning-gym generator {name!r} is refused: {REFUSED[name]}")
    if name not in SAFE:
        raise ConfigError(f"unknown reasoning-gym generator {name!r}; known: {', '.join(SAFE)}")


def open_dataset(name: str, config: Mapping[str, Any], *, size: int = 1, seed: int = 0) -> Any:
    """The named generator.

    Raises:
        ConfigError: the name is unknown or refused, or the generator rejects `config`.
        MissingExtra: reasoning-gym is not installed.
    """
    ensure_safe(name)
    return _opened(name, json.dumps(dict(config), sort_keys=True), size, seed)


@lru_cache(maxsize=16)
def _opened(name: str, config: str, size: int, seed: int) -> Any:
    gym = require("reasoning_gym", extra="tasks")
    try:
        return gym.create_dataset(name, size=size, seed=seed, **json.loads(config))
    except (AssertionError, TypeError, ValueError) as error:
        raise ConfigError(f"reasoning-gym generator {name!r}: {error}") from error
