"""Arrays of a packed tree are its columns."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from tests.records.strategies import credited_trees

from focus.credit.base import Credit
from focus.models.packed_arrays import token_arrays
from focus.records.packed_tree import pack_tree
from focus.tree import Tree


@given(credited_trees())
def test_arrays_are_the_columns(case: tuple[Tree[None], Credit]) -> None:
    packed = pack_tree(*case)
    arrays, columns = token_arrays(packed), packed.columns()
    for field in dataclasses.fields(columns):
        found = getattr(arrays, field.name)
        assert tuple(found.tolist()) == getattr(columns, field.name)
