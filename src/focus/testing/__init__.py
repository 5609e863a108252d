"""Fakes, drawn trees and exact gradients: for tests, users and the promises' measurements."""

from focus.testing.env_check import EnvCase, EnvReport, check_env

__all__ = ("EnvCase", "EnvReport", "check_env")
