"""A made-up world of people, towns and rivers, and the documents that describe it.

Every fact stands in one document, that of the thing it is about. A question names a start
and the relations to follow, so each hop needs another document:

    Start at Talmor. Follow: teacher, home, river. Where do you end?

Names are drawn anew for each seed: nothing of one world is true in another, and whoever
answers must have read.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from focus.errors import ConfigError, ProblemError
from focus.problem import Problem
from focus.tasks.arithmetic import Split, split_of

__all__ = ("ENDINGS", "ONSETS", "RELATIONS", "Document", "Kind", "World")

Kind = Literal["person", "town", "river"]

RELATIONS: Mapping[Kind, Mapping[str, Kind]] = {
    "person": {"teacher": "person", "friend": "person", "home": "town"},
    "town": {"mayor": "person", "river": "river"},
    "river": {"keeper": "person"},
}
"""By kind of thing: its relations, and what each leads to."""

_ONSET_WORDS = (
    "Al Bar Bel Bor Cal Cor Dal Dar Del Dor Dun El Fal Far Fen Gal Gar Gor Hal Har Hel Hol Jar "
    "Jor Kal Kar Kel Kor Lan Lar Lin Lor Mal Mar Mel Mor Nal Nar Nel Nor Or Pal Par Pel Ral Ran "
    "Ros Sal San Sel Sor Tal Tan Tel Tor Ul Val Var Vel Ves Vor Wil Yor Zan"
)
_ENDING_WORDS = (
    "an ara as bek bi bor da den dir do dun ek el era esh eth fin ga gor hal ia ik il in is ka "
    "ko la lis lo ma mir mon na nor nos ora os ra rik ros sha sil sen ta tas ur vik"
)
ONSETS = tuple(_ONSET_WORDS.split())
"""First halves of every name."""
ENDINGS = tuple(_ENDING_WORDS.split())
"""Second halves of every name."""

_REMARKS = (
    "{a} was seen with {b} last summer.",
    "Some say that {a} never liked {b}.",
    "A song about {a} also names {b}.",
    "{b} and {a} are often confused.",
    "Old maps show {a} next to {b}.",
    "Nobody knows what {a} owes to {b}.",
)
_LEAST = 10


@dataclass(frozen=True, slots=True)
class Document:
    """One entry of the library.

    Attributes:
        id: four digits, as text.
        title: the name of the thing that it describes.
        sentences: facts and remarks, in order.
    """

    id: str
    title: str
    sentences: tuple[str, ...]

    @property
    def text(self) -> str:
        return " ".join(self.sentences)


@dataclass(frozen=True)
class World:
    """Facts, the documents that hold them, and questions about them.

    Attributes:
        seed: what it was drawn from.
        kinds: every name and what it names.
        facts: (name, relation) → name.
        documents: one per name, in order of id.
    """

    seed: int
    kinds: Mapping[str, Kind]
    facts: Mapping[tuple[str, str], str]
    documents: tuple[Document, ...]

    @classmethod
    def draw(cls, seed: int = 0, *, documents: int = 3000) -> World:
        """A world of that many names, two thirds of them people.

        Raises:
            ConfigError: fewer than ten documents, or more than there are names.

        >>> world = World.draw(0)
        >>> len(world.documents)
        3000
        >>> world.documents[7].title, world.documents[7].sentences[1][:13]
        ('Alden', 'The mayor of ')
        """
        names = [a + b for a, b in itertools.product(ONSETS, ENDINGS)]
        if not _LEAST <= documents <= len(names):
            raise ConfigError(f"a world has {_LEAST} to {len(names)} documents, not {documents}")
        rng = random.Random(f"focus/browse/{seed}/{documents}")
        rng.shuffle(names)
        kinds: dict[str, Kind] = {
            name: _kind(place, documents) for place, name in enumerate(names[:documents])
        }
        by_kind = {kind: [n for n, k in kinds.items() if k == kind] for kind in RELATIONS}
        facts = {
            (name, relation): rng.choice([n for n in rng.sample(by_kind[to], 2) if n != name])
            for name, kind in kinds.items()
            for relation, to in RELATIONS[kind].items()
        }
        return cls(seed, kinds, facts, _written(rng, kinds, facts))

    def follow(self, start: str, relations: tuple[str, ...]) -> str:
        """Where a chain of relations ends."""
        for relation in relations:
            start = self.facts[start, relation]
        return start

    def problem(self, index: int, *, seed: int, split: Split, hops: int) -> Problem:
        """Question number `index` of a split; prompts of different splits never agree."""
        rng = random.Random(f"focus/browse/{self.seed}/{seed}/{split}/{hops}/{index}")
        names = sorted(self.kinds)
        while True:
            start = rng.choice(names)
            relations = self._chain(rng, start, hops)
            prompt = f"Start at {start}. Follow: {', '.join(relations)}. Where do you end?"
            if split_of(prompt) == split:
                return Problem(
                    id=f"browse-{self.seed}-{seed}-{split}-{hops}-{index}",
                    prompt=prompt,
                    label=self.follow(start, relations),
                )

    def problems(
        self, count: int, *, seed: int = 0, split: Split = "train", hops: tuple[int, ...] = (2, 3)
    ) -> list[Problem]:
        """`count` questions; `hops` are taken in turn.

        Raises:
            ProblemError: `count` or a number of hops is below 1.
        """
        if count < 1 or not hops or min(hops) < 1:
            raise ProblemError(f"no browsing questions with {count=}, {hops=}")
        return [
            self.problem(index, seed=seed, split=split, hops=hops[index % len(hops)])
            for index in range(count)
        ]

    def _chain(self, rng: random.Random, start: str, hops: int) -> tuple[str, ...]:
        """Relations from `start` that never come back to a name."""
        while True:
            seen, relations = [start], []
            for _ in range(hops):
                relations.append(rng.choice(sorted(RELATIONS[self.kinds[seen[-1]]])))
                seen.append(self.facts[seen[-1], relations[-1]])
            if len(set(seen)) == len(seen):
                return tuple(relations)


def _kind(place: int, documents: int) -> Kind:
    if place < documents * 2 // 3:
        return "person"
    return "town" if place < documents * 7 // 8 else "river"


def _written(
    rng: random.Random, kinds: Mapping[str, Kind], facts: Mapping[tuple[str, str], str]
) -> tuple[Document, ...]:
    names = list(kinds)
    documents = []
    for number, name in enumerate(sorted(names)):
        told = [
            f"The {relation} of {name} is {facts[name, relation]}."
            for relation in RELATIONS[kinds[name]]
        ]
        remarks = rng.sample(_REMARKS, 6 - len(told))
        told += [remark.format(a=name, b=rng.choice(names)) for remark in remarks]
        rng.shuffle(told)
        documents.append(Document(f"{number:04d}", name, tuple(told)))
    return tuple(documents)
