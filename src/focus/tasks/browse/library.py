"""The documents of a world behind three tools: search, open, find."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from focus.agent import Tool, ToolEnv, tool
from focus.errors import ToolError
from focus.problem import Problem
from focus.tasks.browse.ranking import Bm25, Ranking, words
from focus.tasks.browse.world import Document, World

__all__ = ("SYSTEM", "Library")

SYSTEM = "Search the library, read, and submit the name where the chain ends."


class Library:
    """A world's documents behind a search; read-only, shared by all branches.

    Args:
        world: what the documents describe.
        results: titles that a search gives.
        ranking: makes the ranking of the documents' texts.

    Raises:
        MissingExtra: bm25s, the default ranking, is not installed.
    """

    def __init__(
        self,
        world: World,
        *,
        results: int = 3,
        ranking: Callable[[Sequence[str]], Ranking] = Bm25,
    ) -> None:
        self.world = world
        self._by_id = {document.id: document for document in world.documents}
        self._results = results
        self._ranking = ranking([f"{d.title} {d.title} {d.text}" for d in world.documents])

    def search(self, query: str) -> list[Document]:
        """The documents that fit best; [] when no word of the query occurs."""
        return [self.world.documents[p] for p in self._ranking.best(query, self._results)]

    def document(self, number: str) -> Document:
        """The document of an id.

        Raises:
            ToolError: there is none.
        """
        if number not in self._by_id:
            raise ToolError(f"no document {number[:20]!r}")
        return self._by_id[number]

    def tools(self) -> list[Tool]:
        """What a policy may call."""

        @tool
        async def search(query: str) -> str:
            """Find documents by words; gives title and id of the best ones.

            Args:
                query: words to look for, such as a name.
            """
            found = self.search(query)
            return "; ".join(f"{each.title} {each.id}" for each in found) or "nothing found"

        @tool(name="open")
        async def open_document(id: str) -> str:
            """Read a document.

            Args:
                id: four digits.
            """
            return self.document(id).text

        @tool
        async def find(id: str, word: str) -> str:
            """Read the sentences of a document that hold a word.

            Args:
                id: four digits.
                word: what they hold.
            """
            told = [s for s in self.document(id).sentences if word.lower() in words(s)]
            return " ".join(told) or "nothing found"

        return [search, open_document, find]

    def env(self, problem: Problem) -> ToolEnv:
        """The task of one question: outcome 1 for the right name."""

        def grade(answer: Mapping[str, Any]) -> float:
            return float(str(answer["answer"]).strip(" .").lower() == str(problem.label).lower())

        return ToolEnv(self.tools(), grade=grade, system=SYSTEM)
