"""Work in the background of a chat, which holds its timed resets up for as long as it may."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from . import events as e

_HOUR_US: Final = 3_600_000_000


class Hold(msgspec.Struct, frozen=True):
    """One piece of work: its name, since when it is noted, and what it is.

    Attributes:
        gateway, deaths: the gateway that watches over it, and how often that one had died by then.
    """

    name: str
    since_us: int
    what: str = ""
    gateway: str | None = None
    deaths: int = 0


def blocking(
    holds: Iterable[Hold], at_us: int, max_age_hours: float, deaths: Callable[[str], int]
) -> Hold | None:
    """A hold that is young enough to hold a reset up; None where nothing is.

    Work that is `max_age_hours` old goes on, but the chat is reset over it (FIELD_CASES H7). Work of a
    gateway that died holds nothing up: nobody is left to say that it is over.

    Args:
        deaths: how often a gateway has died until now.
    """
    limit_us = max_age_hours * _HOUR_US
    young = (each for each in holds if at_us - each.since_us < limit_us)
    return next((each for each in young if each.gateway is None or deaths(each.gateway) == each.deaths), None)


def evolve(state: tuple[Hold, ...], payload: object, at_us: int) -> tuple[Hold, ...]:
    """The holds after an event of the key."""
    match payload:
        case e.ActivityHeld():
            noted = Hold(payload.hold, at_us, payload.what, payload.gateway, payload.deaths)
            return (*_without(state, payload.hold), noted)
        case e.ActivityReleased():
            return _without(state, payload.hold)
        case _:
            return state


def _without(state: tuple[Hold, ...], name: str) -> tuple[Hold, ...]:
    return tuple(each for each in state if each.name != name)
