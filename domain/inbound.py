"""What a platform delivers: an update, known by its platform, its chat and its id (FIELD_CASES B24)."""

from __future__ import annotations

import msgspec

from .errors import BadUsage, EditBeginsNothing
from .ids import refuse_unsafe_peer
from .text import is_blank, scrub


class Update(msgspec.Struct, frozen=True):
    """One delivery of a platform.

    Attributes:
        id: the platform's own id of the update; the same id in the same chat is the same update.
        edit: an edit of what was said before: it changes a message, and begins nothing.
    """

    platform: str
    chat_id: str
    id: str
    edit: bool = False


def usable(update: Update) -> Update:
    """The update, its texts fit for the log.

    Raises:
        BadUsage: it has no platform or no id, or one of them is no text.
        BadIdentifier: the platform or the chat's id is a path, or holds control characters.
    """
    for name in ("platform", "chat_id", "id"):
        value = getattr(update, name)
        if not isinstance(value, str):
            raise BadUsage(
                f"an update's {name} may be a str, not {type(value).__name__}",
                hint=f"pass text, also where a platform has numbers: {name}=str(…); nothing was written",
            )
    for name in ("platform", "chat_id"):
        refuse_unsafe_peer(f"an update's {name}", getattr(update, name))
    if is_blank(update.platform) or is_blank(update.id):
        raise BadUsage("an update needs a platform and an id", hint="nothing was written")
    return Update(scrub(update.platform)[0], scrub(update.chat_id)[0], scrub(update.id)[0], edit=update.edit)


def refuse_edit(update: Update | None) -> None:
    """An edit begins no turn, also of an old command.

    Raises:
        EditBeginsNothing.
    """
    if update is not None and update.edit:
        raise EditBeginsNothing(
            f"update {update.id} of {update.platform} edits an earlier message: it begins nothing",
            hint="edit the message that it names",
        )


def number(update_id: str) -> int | None:
    """The id as a number, where it is one that can be compared; None else."""
    if not (update_id.isascii() and update_id.isdigit()):
        return None
    value = int(update_id) if len(update_id) <= 19 else 1 << 63
    return value if value < 1 << 63 else None
