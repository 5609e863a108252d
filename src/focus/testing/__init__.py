"""Fakes, drawn trees and exact gradients: for tests and users, imported by nothing shipped."""
