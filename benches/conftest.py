"""Shared by the benches: what was measured is checked before it is timed."""
