"""Fakes, drawn trees and exact gradients: for tests, users and the promises' measurements."""
