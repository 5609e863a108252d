"""A strict stand-in for Slime: it fails on whatever the real host fails on.

Written from the host contract (rollout loop, conversion, schedule, loss), not from Slime's
code. Each module names the part that it stands for; `python -m pytest -m slime` runs the
hooks through Slime's own modules where those can be imported.
"""
