"""Models by name: the one shipped inside FOCUS, one that can be added, any folder."""

from focus.models.registry import AGENT, BUILTIN, NAMED, add_smollm2, models_dir, resolve

__all__ = ("AGENT", "BUILTIN", "NAMED", "add_smollm2", "models_dir", "resolve")
