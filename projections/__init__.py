"""Folds of the log into tables, and the queries that read them: SQL against a small Connection protocol."""
