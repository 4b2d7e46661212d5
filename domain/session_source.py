"""Where a message came from: the platform, the place and the person, as adapters and stores write it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from .errors import BadIdentifier, BadUsage
from .ids import refuse_unsafe_peer
from .keys import Linked, Peer, session_key
from .message import json_given
from .text import is_blank, scrub

_IDS: Final = (
    "platform",
    "chat_id",
    "chat_type",
    "thread_id",
    "user_id",
    "user_id_alt",
    "chat_id_alt",
    "scope_id",
    "parent_chat_id",
    "message_id",
    "profile",
)
_NAMES: Final = ("chat_name", "user_name", "chat_topic", "auto_thread_initial_name")
_ALWAYS: Final = (
    "platform",
    "chat_id",
    "chat_name",
    "chat_type",
    "user_id",
    "user_name",
    "thread_id",
    "chat_topic",
)
_WHERE_SET: Final = (
    "user_id_alt",
    "chat_id_alt",
    "scope_id",
    "guild_id",
    "parent_chat_id",
    "message_id",
    "profile",
    "auto_thread_created",
    "auto_thread_initial_name",
)
_OF_THE_PERSON: Final = ("user_id", "user_name", "user_id_alt")
_OF_THE_MESSAGE: Final = ("message_id", "is_bot", "role_authorized", "delivered_via_upstream_relay")


class SessionSource(msgspec.Struct, frozen=True):
    """Where a message came from (REFERENCE.md 7.1).

    Attributes:
        chat_type: dm, group, channel, thread, or a platform's own word.
        user_id_alt, chat_id_alt: an id of the same that is more stable, where a platform has one.
        scope_id: the guild, workspace or server that the chat is in.
        guild_id: the older name of `scope_id`; whichever is given is both.
        parent_chat_id: the channel that a thread is of.
        message_id: the message itself, by its platform's id; no part of who and where.
        profile: the profile that it is for; None for the home's own.
        is_bot, role_authorized, delivered_via_upstream_relay: said of this one delivery, and never stored.

    Raises:
        BadIdentifier: an id is a path or holds control characters. BadUsage: a value of another type.
    """

    platform: str
    chat_id: str | None = None
    chat_name: str | None = None
    chat_type: str = "dm"
    user_id: str | None = None
    user_name: str | None = None
    thread_id: str | None = None
    chat_topic: str | None = None
    user_id_alt: str | None = None
    chat_id_alt: str | None = None
    is_bot: bool = False
    scope_id: str | None = None
    guild_id: str | None = None
    parent_chat_id: str | None = None
    message_id: str | None = None
    role_authorized: bool = False
    profile: str | None = None
    auto_thread_created: bool = False
    auto_thread_initial_name: str | None = None
    delivered_via_upstream_relay: bool = False

    def __post_init__(self) -> None:
        _refuse_no_text(self)
        for name in _IDS:
            refuse_unsafe_peer(f"{self.platform or 'a source'}: {name}", getattr(self, name))
        if is_blank(self.platform):
            raise BadIdentifier("a source needs a platform", hint="telegram, discord, …")
        scope = self.guild_id if self.scope_id is None else self.scope_id
        msgspec.structs.force_setattr(self, "scope_id", scope)
        msgspec.structs.force_setattr(self, "guild_id", scope)

    @property
    def peer(self) -> Peer:
        """What the key is made of."""
        return Peer(
            self.platform, self.chat_type, self.chat_id, self.thread_id, self.user_id, self.user_id_alt
        )

    def key(
        self,
        *,
        profile: str = "main",
        group_sessions_per_user: bool = True,
        thread_sessions_per_user: bool = False,
        linked: Linked | None = None,
    ) -> str:
        """The routing key of the chat (REFERENCE.md 7.2).

        Args:
            profile: the home's own, for a source that names none.
            linked: what else an id of WhatsApp is known as.
        """
        return session_key(
            self.peer,
            profile=self.profile or profile,
            group_sessions_per_user=group_sessions_per_user,
            thread_sessions_per_user=thread_sessions_per_user,
            linked=linked,
        )

    def shared(self, *, group_sessions_per_user: bool = True, thread_sessions_per_user: bool = False) -> bool:
        """Whether several people speak in the session of this chat."""
        if self.chat_type == "dm":
            return False
        return not (thread_sessions_per_user if self.thread_id else group_sessions_per_user)

    def identity(self) -> dict[str, str | None]:
        """The columns of a session that say who and where."""
        return {
            "chat_id": self.chat_id,
            "chat_type": self.chat_type,
            "thread_id": self.thread_id,
            "user_id": self.user_id,
            "display_name": self.chat_name or (self.user_name if self.chat_type == "dm" else None),
            "origin_json": self.to_json(),
            "profile_name": self.profile,
        }

    def to_dict(self) -> dict[str, Any]:
        """As a store writes it: the first eight always, the rest where set, of a delivery nothing."""
        found = {name: getattr(self, name) for name in _ALWAYS}
        return found | {name: value for name in _WHERE_SET if (value := getattr(self, name))}

    def to_json(self) -> str:
        """`to_dict` as JSON text; lone surrogates in names become U+FFFD."""
        values = {
            name: scrub(value)[0] if isinstance(value, str) else value
            for name, value in self.to_dict().items()
        }
        return msgspec.json.encode(values).decode()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SessionSource:
        """A source from what a store or another program wrote; what it does not know is passed over.

        Raises:
            BadUsage: there is no platform, or a value is of another type. BadIdentifier.
        """
        if not isinstance(values.get("platform"), str):
            raise BadUsage("a source needs a platform", hint="telegram, discord, …")
        known = {name: values[name] for name in (*_ALWAYS, *_WHERE_SET) if values.get(name) is not None}
        for name in _IDS:
            if type(known.get(name)) is int:  # some adapters write numbers
                known[name] = str(known[name])
        return cls(**known)

    @classmethod
    def from_json(cls, text: str | bytes) -> SessionSource:
        """A source from JSON text.

        Raises:
            BadUsage: it is no JSON object, or not of a source. BadIdentifier.
        """
        try:
            values = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise BadUsage(f"a source cannot be read: {error}", hint="give a JSON object") from error
        if not isinstance(values, dict):
            raise BadUsage("a source is a JSON object", hint="give a JSON object")
        return cls.from_dict(values)

    def of_the_chat(self, *, shared: bool) -> SessionSource:
        """Without what is another at each message: its id, and the speaker's name in a shared room."""
        changing = (*_OF_THE_MESSAGE, *(_OF_THE_PERSON if shared else ()))
        return msgspec.structs.replace(
            self, **{name: False if isinstance(getattr(self, name), bool) else None for name in changing}
        )


def refuse_unsafe_origin(whose: str, origin_json: str | None) -> None:
    """Refuse an origin whose ids no source may bear. A text that is no JSON object holds none.

    Raises:
        BadIdentifier: one of them is a path, or holds control characters.
    """
    values = json_given(origin_json)
    if isinstance(values, dict):
        for name in (*_IDS, "guild_id"):
            value = values.get(name)
            refuse_unsafe_peer(f"{whose} origin: {name}", value if isinstance(value, str) else None)


def conversation(platform: str, name: str, caller: str) -> SessionSource:
    """A conversation that a program calls by a name of its own choice, each caller's apart from others'.

    The name is bound for good: the same name and caller come to the same chat after any restart.
    """
    return SessionSource(platform, caller, thread_id=name, user_id=caller)


def _refuse_no_text(source: SessionSource) -> None:
    for name in (*_IDS, *_NAMES, "guild_id"):
        value = getattr(source, name)
        if value is not None and not isinstance(value, str):
            raise BadUsage(
                f"a source's {name} may be a str or None, not {type(value).__name__}",
                hint="nothing was written",
            )
    for name in ("platform", "chat_type"):
        if getattr(source, name) is None:
            raise BadUsage(f"a source needs a {name.replace('_', ' ')}", hint="nothing was written")
