"""Measured, not timed in tests: a duration belongs to a machine, a ratio travels."""
