"""Stream names that bear no personal text: a keyed hash stands for a key, a title or a path."""

from __future__ import annotations

from .log_schema import LogIdentity


def route_stream(identity: LogIdentity, key: str) -> str:
    """The stream of a routing key."""
    return f"route:{identity.keyed_hash('route', key).hex()}"


def title_stream(identity: LogIdentity, title: str) -> str:
    """The stream of a title."""
    return f"title:{identity.keyed_hash('title', title).hex()}"


def source_stream(fingerprint: str) -> str:
    """The stream of a store that was taken in."""
    return f"source:{fingerprint}"


def inbox_stream(identity: LogIdentity, platform: str, chat_id: str) -> str:
    """The stream of what a platform delivers in one chat."""
    return f"inbox:{identity.keyed_hash('inbox', platform, chat_id).hex()}"
