"""A plan of repairs as a file: written for a person to edit, read back to be applied."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..domain.errors import BadUsage, NoRoom
from ..domain.repair import Record

_HEAD = """\
# Which sessions are to get their chat's key back. Edit it, then:
#   retold sessions repair-routing --apply --plan FILE
# adopt:     take out what is not to be done. Where `choose` is "?", the chat was written to in two
#            sessions: name the one that goes on.
# undecided: no rule may choose. To adopt one, move it up and say whose key it takes: `from: SESSION`.
"""
UNDECIDED = "?"


class Adoption(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A session, whose key it takes, and which goes on where there are two histories."""

    orphan: str
    donor: str = msgspec.field(name="from")
    key: str | None = None
    evidence: str | None = None
    choose: str | None = None


class Undecided(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A session that no rule may give a key, why, and whose it could be."""

    orphan: str
    reason: str
    candidates: list[str] = []


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be done, and what is left to a person."""

    adopt: list[Adoption] = []
    undecided: list[Undecided] = []


def planned(records: Sequence[Record], two_histories: frozenset[str]) -> Plan:
    """The plan that a report comes to.

    Args:
        two_histories: orphans whose chat went on elsewhere since.
    """
    return Plan(
        [
            Adoption(
                each.orphan_id,
                each.donor_id or "",
                each.session_key,
                each.evidence,
                UNDECIDED if each.orphan_id in two_histories else None,
            )
            for each in records
            if each.adoptable
        ],
        [
            Undecided(each.orphan_id, each.reason, sorted({*each.donor_ids, *filter(None, [each.donor_id])}))
            for each in records
            if not each.adoptable
        ],
    )


def write_plan(plan: Plan, path: Path) -> None:
    """Write it as YAML, or as JSON where the file's name ends so; no file is written over.

    Raises:
        BadUsage: the file is there. NoRoom: it cannot be written.
    """
    if path.suffix == ".json":
        text = msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n"
    else:
        text = _HEAD.encode() + msgspec.yaml.encode(plan)
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text)
    except FileExistsError:
        raise BadUsage(
            f"{path} is there already", hint="apply it with --apply --plan, or name another file"
        ) from None
    except OSError as error:
        raise NoRoom(f"{path} cannot be written: {error.strerror}", hint="name another file") from error


def read_plan(path: Path) -> Plan:
    """Read a plan, edited or not.

    Raises:
        BadUsage: it cannot be read, or is no plan; or a choice in it is still open.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise BadUsage(f"{path} cannot be read: {error.strerror}", hint="name a plan") from error
    try:
        decode = msgspec.json.decode if path.suffix == ".json" else msgspec.yaml.decode
        plan: Plan = decode(text, type=Plan)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        why = str(error).splitlines()[0]
        raise BadUsage(f"{path} is no plan: {why}", hint="write one anew with --plan FILE") from error
    for each in plan.adopt:
        if each.choose == UNDECIDED:
            raise BadUsage(
                f"{path} leaves open which session goes on for {each.orphan}",
                hint="name it after `choose:`, or take that entry out; nothing was changed",
            )
    return plan
