"""Measures of the phases, kept apart. Plain data in, plain data out: no clock and no I/O of its own."""
