"""The routing key of a chat: one text a chat, the same text that Hermes makes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from msgspec import Struct

Linked: TypeAlias = Callable[[str], Iterable[str]]
"""What else an id of WhatsApp is known as, one step of the bridge's own mapping; nothing for none."""


class Peer(Struct, frozen=True):
    """Who speaks and where: what a key is made of."""

    platform: str
    chat_type: str = "dm"
    chat_id: str | None = None
    thread_id: str | None = None
    user_id: str | None = None
    user_id_alt: str | None = None


_OWN_PROFILES: Final = ("", "default", "main")

_SAFE: Final = re.compile(r"[A-Za-z0-9@.+\-]+")
"""Ids of WhatsApp that may name a file of the bridge's mapping."""

# Ids in use whose own text has a ':'. A platform that is not here is read piece by piece.
_IDS_WITH_COLONS: Final[dict[str, re.Pattern[str]]] = {
    "matrix": re.compile(r"[!@#$][^:]*(?::(?![!@#$])[^:]+(?::\d+(?![^:]))?)?"),
    "signal": re.compile(r"group:[^:]+"),
    "simplex": re.compile(r"group:[^:]+"),
    "yuanbao": re.compile(r"(?:group|direct):[^:]+"),
    "msgraph_webhook": re.compile(r"msgraph:[^:]+"),
    "webhook": re.compile(r"webhook:[^:]+:(?!webhook:)[^:]+|webhook:[^:]+"),
    "teams": re.compile(r"8:[a-z]+:[^:]+|(?:\d{1,3}|a):[^:]+"),
}
_PIECE: Final = re.compile(r"[^:]*")


def session_key(
    peer: Peer,
    *,
    profile: str = "main",
    group_sessions_per_user: bool = True,
    thread_sessions_per_user: bool = False,
    linked: Linked | None = None,
) -> str:
    """The key of the chat that `peer` speaks in; REFERENCE 7.2's table, row for row.

    `agent:<profile>:<platform>:<chat type>` and then the parts that tell chats apart (`parts_of`),
    joined by ':'. Two different lists of parts never share a key: every text has one way to be read
    (`_read`), and the plain join is used whenever it reads back as the parts it was made of. That
    holds for every id without a ':', and for the ids that platforms do make with one (a Matrix room
    is `!room:example.org`), so all of those are the text that Hermes makes. Any other list is
    written escaped: an empty piece says so, then each part with '%' and ':' percent-encoded:
    chat 'a:b' with thread 'c' is `…:dm::a%3Ab:c`. No plain text holds an empty piece, so the two
    forms cannot meet, and an id that merely contains '%' stays as it is.

    An empty thread id is not the absence of one (no adapter sends it on purpose), so it is escaped
    too. What the parts themselves leave out stays out: a group's second part can be a thread or a
    person, and Hermes' texts do not say which.
    """
    space = "main" if profile in _OWN_PROFILES else profile
    head = ":".join(("agent", _escaped(space), _escaped(peer.platform), _escaped(peer.chat_type)))
    parts = parts_of(
        peer,
        group_sessions_per_user=group_sessions_per_user,
        thread_sessions_per_user=thread_sessions_per_user,
        linked=linked,
    )
    if not parts:
        return head
    plain = ":".join(parts)
    if _is_plain(peer.platform, peer.chat_type, plain, parts):
        return f"{head}:{plain}"
    return f"{head}::" + ":".join(_escaped(part) for part in parts)


def parts_of(
    peer: Peer,
    *,
    group_sessions_per_user: bool = True,
    thread_sessions_per_user: bool = False,
    linked: Linked | None = None,
) -> tuple[str, ...]:
    """What tells this chat from others of its platform and chat type, in the key's order."""
    person = peer.user_id_alt or peer.user_id
    if peer.platform == "whatsapp":
        person = canonical_whatsapp(person, linked)
    thread = () if peer.thread_id is None else (peer.thread_id,)
    if peer.chat_type == "dm":
        chat = peer.chat_id
        if peer.platform == "whatsapp":
            chat = _known_as(chat or "", linked)
        place = chat or person
        return ((place,) if place else ()) + thread
    shared = not group_sessions_per_user or (bool(thread and thread[0]) and not thread_sessions_per_user)
    chat_part = (peer.chat_id,) if peer.chat_id else ()
    return chat_part + thread + ((person,) if person and not shared else ())


def canonical_whatsapp(identifier: str | None, linked: Linked | None = None) -> str | None:
    """The one id of a person of WhatsApp: `+49155:3@s.whatsapp.net` is `49155`.

    Where the bridge knows them under several ids, one leading to the next, it is the shortest of
    these, and of equally short ones the first in order.
    """
    if identifier is None:
        return None
    return _known_as(identifier, linked) or identifier


def _known_as(identifier: str, linked: Linked | None) -> str:
    plain = _bare(identifier)
    if linked is None or not plain:
        return plain
    found: set[str] = set()
    waiting = [plain]
    while waiting:
        at = waiting.pop()
        if at in found or not _SAFE.fullmatch(at):
            continue
        found.add(at)
        waiting += map(_bare, linked(at))
    return min(found, key=lambda each: (len(each), each), default=plain)


def _bare(identifier: str) -> str:
    """An id of WhatsApp without its plus, device and server."""
    return re.split(r"[:@]", identifier.strip().replace("+", "", 1), maxsplit=1)[0]


def platform_of(key: str) -> str | None:
    """The platform that a key names, or None if the text is no key of a chat."""
    pieces = key.split(":")
    if len(pieces) < 4 or pieces[0] != "agent" or not pieces[2]:
        return None
    return _unescaped(pieces[2])


def split_key(key: str) -> tuple[str, str, tuple[str, ...]] | None:
    """Platform, chat type and parts of a key; None if the text is no key of a chat."""
    platform = platform_of(key)
    if platform is None:
        return None
    pieces = key.split(":", 4)
    chat_type = _unescaped(pieces[3])
    if len(pieces) == 4 or not pieces[4]:
        return platform, chat_type, ()
    body = pieces[4]
    if body.startswith(":"):
        return platform, chat_type, tuple(_unescaped(part) for part in body[1:].split(":"))
    return platform, chat_type, _read(platform, chat_type, body)


def describe(key: str, *, user_id: str | None = None, thread_id: str | None = None) -> str:
    """A short text for people: `telegram, chat 1001, user 501`.

    Args:
        user_id, thread_id: from a session of the chat; the key alone does not always tell.
    """
    split = split_key(key)
    if split is None:
        return key
    platform, chat_type, parts = split
    words = [platform]
    if parts:
        words.append(f"{'chat' if chat_type in ('dm', '') else chat_type} {parts[0]}")
    for part in parts[1:]:
        if part == thread_id or (chat_type == "dm" and part != user_id):
            words.append(f"thread {part}")
        elif part == user_id:
            words.append(f"user {part}")
        else:
            words.append(part)
    if user_id and f"user {user_id}" not in words and chat_type == "dm":
        words.append(f"user {user_id}")
    return ", ".join(words)


def _is_plain(platform: str, chat_type: str, plain: str, parts: tuple[str, ...]) -> bool:
    """Whether a plain join can be told from the escaped form, and reads back as the parts."""
    told_apart = all(plain.split(":")) or _delivery(platform, chat_type, plain) is not None
    return told_apart and _read(platform, chat_type, plain) == parts


def _delivery(platform: str, chat_type: str, plain: str) -> tuple[str, ...] | None:
    """How a webhook's join is read; None for any other.

    A delivery's chat is `webhook:<route>:<delivery>`, where the sender chooses what the delivery is
    called, with any number of ':'; who speaks is `webhook:<route>`, of the same route.
    """
    if (platform, chat_type) != ("webhook", "webhook") or not plain.startswith("webhook:"):
        return None
    chat, found, route = plain.rpartition(":webhook:")
    person = f"webhook:{route}"
    return (chat, person) if found and route and chat.startswith(f"{person}:") else (plain,)


def _read(platform: str, chat_type: str, plain: str) -> tuple[str, ...]:
    """The one way to read a plain join; with more parts than a chat has, all is the chat id."""
    delivery = _delivery(platform, chat_type, plain)
    if delivery is not None:
        return delivery
    known = _IDS_WITH_COLONS.get(platform, _PIECE)
    parts: list[str] = []
    at = 0
    while at <= len(plain):
        found = known.match(plain, at) or _PIECE.match(plain, at)
        end = found.end() if found else len(plain)
        if end < len(plain) and plain[end] != ":":  # half a piece is no id
            end = plain.find(":", end) if ":" in plain[end:] else len(plain)
        parts.append(plain[at:end])
        at = end + 1
    return tuple(parts) if len(parts) <= (2 if chat_type == "dm" else 3) else (plain,)


def _escaped(part: str) -> str:
    return part.replace("%", "%25").replace(":", "%3A")


def _unescaped(part: str) -> str:
    return part.replace("%3A", ":").replace("%25", "%")
