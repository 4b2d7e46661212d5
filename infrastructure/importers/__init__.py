"""Readers of other session stores, and what carries their rows into the log."""
