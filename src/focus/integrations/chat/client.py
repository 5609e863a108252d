"""Clients that a program calls as it would call OpenAI's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import anyio.to_thread

from focus.integrations.chat.endpoint import serving
from focus.integrations.chat.handover import Handover
from focus.integrations.chat.reply import Completion

__all__ = ("AsyncChatClient", "ChatClient")


class ChatClient:
    """``client.chat.completions.create(messages=…, tools=…)``, answered by the policy.

    For programs that make a client of their own, `served` gives an address that any client
    of the chat completions API may use.
    """

    def __init__(self, handover: Handover) -> None:
        self._handover = handover
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self._create))

    def _create(self, **body: Any) -> Completion:
        reply: Completion = self._handover.ask(body)
        return reply

    @contextmanager
    def served(self) -> Iterator[str]:
        """The same over HTTP, on this machine only, for as long as the block lasts.

        with client.served() as address:
            OpenAI(base_url=address.url, api_key=address.key)
        """
        with serving(lambda body: self._create(**body)) as url:
            yield url


class AsyncChatClient(ChatClient):
    """The same for ``async`` programs: `create` is awaited."""

    def __init__(self, handover: Handover) -> None:
        super().__init__(handover)
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self._acreate))

    async def _acreate(self, **body: Any) -> Completion:
        return await anyio.to_thread.run_sync(lambda: self._create(**body))
