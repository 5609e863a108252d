"""The conformance check of environments that fork."""

from focus.testing.env_check.check import EnvCase, check_case, check_env
from focus.testing.env_check.report import EnvFinding, EnvReport

__all__ = ("EnvCase", "EnvFinding", "EnvReport", "check_case", "check_env")
