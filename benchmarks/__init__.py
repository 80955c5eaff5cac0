"""Benchmarks: each module is a command that prints its figures, and states what they must reach."""
