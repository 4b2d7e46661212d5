"""Telling what happened to a chat: the answers of `why` and `audit` in words."""
