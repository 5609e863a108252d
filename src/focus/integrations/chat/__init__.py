"""Agents written for a chat API, as environments: the program runs, and FOCUS is the model."""

from focus.integrations.chat.client import AsyncChatClient, ChatClient
from focus.integrations.chat.env import ChatEnv
from focus.integrations.chat.reply import Completion

__all__ = ("AsyncChatClient", "ChatClient", "ChatEnv", "Completion")
