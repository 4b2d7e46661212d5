"""`retold sessions repair-routing`: which sessions lost their key, and whose each could take."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import at_option, home_option, json_option
from .output import emit_json, iso_us
from .paragraphs import fold
from .stream import is_terminal, put, say, terminal_width

if TYPE_CHECKING:
    from ..domain.repair import Record


def _finite(ctx: click.Context, param: click.Parameter, value: float) -> float:
    if not math.isfinite(value) or value < 0:
        raise click.BadParameter(f"{value} is no number of seconds", ctx=ctx, param=param)
    return value


@click.command()
@click.option(
    "--max-gap-seconds",
    type=float,
    default=900.0,
    show_default=True,
    metavar="SECONDS",
    callback=_finite,
    help="How far apart a keyed session may have fallen quiet and a keyless one have begun.",
)
@click.option("--all", "everything", is_flag=True, help="List sessions that have no key by nature, too.")
@home_option
@at_option
@json_option
def repair_routing(
    max_gap_seconds: float, everything: bool, home: Path, at: str | None, as_json: bool
) -> None:
    """Report chats that lost the way to their session.

    A session is matched with the one it continues by lineage, or else with the only keyed session of
    its platform and user that fell quiet when it began. Whatever more than one could own is refused.
    Nothing is changed.
    """
    from msgspec.structs import replace

    from ..domain.facts import keyless_by_nature
    from ..domain.repair import repair_records
    from ..infrastructure.reading import reading
    from ..projections.world import count_messages, world

    with reading(home, at) as view:
        known = world(view.db, gap_seconds=max_gap_seconds)
        records = repair_records(known)
        by_nature = Counter(each.source for each in records if keyless_by_nature(known, each.source))
        shown = [
            replace(each, message_count=count_messages(view.db, each.orphan_id))
            for each in records
            if everything or each.source not in by_nature
        ]
        say(view.remarks())
    if as_json:
        emit_json(_json(shown, by_nature, max_gap_seconds))
    else:
        put(*_folded(_lines(shown, {} if everything else by_nature)))


def _folded(lines: Iterator[str]) -> Iterator[str]:
    """Hermes' wording line for line; on a terminal what is longer than it goes on under itself."""
    if not is_terminal():
        return lines
    width = terminal_width()
    return (each for line in lines for each in fold(line, width, indent=4 if line[:1] == " " else 0))


def _lines(records: Sequence[Record], hidden: Mapping[str, int]) -> Iterator[str]:
    for record in records:
        noun = "message" if record.message_count == 1 else "messages"
        yield f"{record.orphan_id}  ({record.source}, {record.message_count} {noun})"
        if record.adoptable:
            yield (
                f"  → adopt into {record.session_key} (from {record.donor_id}, evidence: {record.evidence})"
            )
        else:
            yield f"  ✗ not repairable — {record.reason}"
    if records:
        yield ""
    yield from _summary(records)
    if hidden:
        count = sum(hidden.values())
        have = "session" if count == 1 else "sessions"
        verb = "has" if count == 1 else "have"
        yield f"{count:,} {have} of {', '.join(sorted(hidden))} {verb} no key by nature; --all lists them"


def _summary(records: Sequence[Record]) -> Iterator[str]:
    adoptable = sum(each.adoptable for each in records)
    if not records:
        yield "✓ No gateway sessions are missing their routing identity."
    elif not adoptable:
        yield f"{len(records)} orphaned session(s) found, none unambiguously repairable. Nothing to do."
    else:
        yield f"{adoptable} of {len(records)} orphaned session(s) can be repaired."
        yield "Each would take key, chat and user of the session that it is adopted from, and"
        yield "that one would end as superseded_by_repair. This is a report: nothing changed."


def _json(records: Sequence[Record], by_nature: Mapping[str, int], gap_seconds: float) -> dict[str, Any]:
    return {
        "records": [
            {
                "orphan_id": each.orphan_id,
                "source": each.source,
                "message_count": each.message_count,
                "started_at": iso_us(each.started_us),
                "last_active_at": iso_us(each.last_active_us),
                "donor_id": each.donor_id,
                "session_key": each.session_key,
                "evidence": each.evidence,
                "adoptable": each.adoptable,
                "reason": each.reason,
            }
            for each in records
        ],
        "repairable": sum(each.adoptable for each in records),
        "max_gap_seconds": gap_seconds,
        "keyless_by_nature": dict(sorted(by_nature.items())),
    }
