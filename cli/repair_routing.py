"""`retold sessions repair-routing`: which sessions lost their key, whose each could take, and doing it."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct
from msgspec.structs import replace

from ..domain.errors import BadUsage
from ..domain.repair import Record
from ..domain.shell import shell_word
from ..infrastructure.reading import View
from .options import at_option, home_option, json_option, with_home
from .output import emit_json, iso_us
from .paragraphs import fold
from .stream import is_terminal, put, say, terminal_width

if TYPE_CHECKING:
    from .repair_apply import Wish


def _finite(ctx: click.Context, param: click.Parameter, value: float) -> float:
    if not math.isfinite(value) or value < 0:
        raise click.BadParameter(f"{value} is no number of seconds", ctx=ctx, param=param)
    return value


@click.command()
@click.argument("orphans", metavar="[SESSION]...", nargs=-1)
@click.option("--apply", "do_apply", is_flag=True, help="Give the keys back: of these sessions, or of all.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--choose",
    metavar="SESSION",
    help="Which session goes on, where the chat has two histories or was led elsewhere.",
)
@click.option("--from", "donor", metavar="SESSION", help="Whose key it takes, where no rule may say.")
@click.option(
    "--plan", metavar="FILE", help="Write what would be done to FILE; with --apply, do what it says."
)
@click.option("--into", metavar="HOME", help="Carry what was repaired here into this Hermes home, too.")
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
    orphans: tuple[str, ...],
    do_apply: bool,
    yes: bool,
    choose: str | None,
    donor: str | None,
    plan: str | None,
    into: str | None,
    max_gap_seconds: float,
    everything: bool,
    home: Path,
    at: str | None,
    as_json: bool,
) -> int:
    """Mend chats that lost the way to their session.

    A session is matched with the one it continues by lineage, or else with the only keyed session of
    its platform and user that fell quiet when it began. Whatever more than one could own is refused.
    Without --apply this is a report, and nothing is changed. With it a backup is taken first, each
    session is one change that `retold undo` takes back, and no gateway has to be stopped. Repairs in a
    row share one backup; how many are kept `repair.keep_backups` says. --into shows what it would write
    into the Hermes home, and asks for that, too.
    """
    _refuse_odd(orphans, do_apply=do_apply, choice=choose or donor, plan=plan, into=into, at=at)
    if do_apply or into:
        from .repair_apply import apply

        wishes = _planned(plan) if plan else []
        if do_apply and not plan:
            with reading_report(home, None, max_gap_seconds, everything=everything) as report:
                wishes = report.wishes(orphans, donor, choose)
                if not wishes and not into:
                    return _told(report, as_json=as_json, gap_seconds=max_gap_seconds, applied=True)
        target = None if into is None else Path(into).expanduser().absolute()
        return apply(home, wishes, gap_seconds=max_gap_seconds, into=target, yes=yes, as_json=as_json)
    with reading_report(home, at, max_gap_seconds, everything=everything) as report:
        report = report.only(orphans)
        say(report.view.remarks())
        if plan is None:
            return _told(report, as_json=as_json, gap_seconds=max_gap_seconds)
        from ..infrastructure.repair_plan import planned, write_plan

        path = Path(plan).expanduser().absolute()
        told = planned(report.shown, frozenset(report.went_on))
        write_plan(told, path)
    if as_json:
        emit_json({"path": str(path), "adopt": len(told.adopt), "undecided": len(told.undecided)})
        return 0
    put(f"Wrote {len(told.adopt)} to adopt and {len(told.undecided)} undecided to {path}")
    put(
        "Edit it, then:",
        f"retold sessions repair-routing --apply --plan {shell_word(str(path))}{with_home(home)}",
    )
    return 0


def _refuse_odd(
    orphans: Sequence[str],
    *,
    do_apply: bool,
    choice: str | None,
    plan: str | None,
    into: str | None,
    at: str | None,
) -> None:
    if choice and not do_apply:
        raise BadUsage("--choose and --from say how to --apply", hint="give --apply as well")
    if not do_apply and into and (plan or orphans):
        raise BadUsage("--into carries all that was repaired here", hint="give --apply as well")
    if choice and (len(orphans) != 1 or plan):
        raise BadUsage("--choose and --from are about one session", hint="name that one session")
    if (do_apply or into) and at is not None:
        raise BadUsage("--apply changes what is now, and not what was", hint="leave --at out")
    if do_apply and plan and orphans:
        raise BadUsage("a plan says itself which sessions are meant", hint="leave the sessions out")


class Report(Struct, frozen=True):
    """Who lost a key, and what is known of each.

    Attributes:
        shown: the records of the report.
        by_nature: how many of each source have no key by nature and are left out.
        went_on: by orphan, what its chat's key leads to: it was written to since, or a person led it there.
        led: those of them that a person led the chat to.
        also: by orphan, what else is on record for it.
    """

    view: View
    shown: Sequence[Record]
    by_nature: Mapping[str, int]
    went_on: Mapping[str, str]
    led: frozenset[str]
    also: Mapping[str, Sequence[str]]

    def only(self, names: Sequence[str]) -> Report:
        """The report of these sessions, or of all where none is named."""
        if not names:
            return self
        ids = self.found(names)
        return replace(self, shown=[each for each in self.shown if each.orphan_id in ids], by_nature={})

    def found(self, names: Sequence[str]) -> list[str]:
        """Ids of the sessions that these names stand for."""
        from ..projections.find import find_session

        return list(dict.fromkeys(find_session(self.view.db, name) for name in names))

    def wishes(self, names: Sequence[str], donor: str | None, choose: str | None) -> list[Wish]:
        """What is to be adopted: what was named, or all that no person has to decide on."""
        from .repair_apply import Wish

        records = {each.orphan_id: each for each in self.shown}
        if not names:
            return [
                Wish(each.orphan_id, (each.donor_id, each.session_key))
                for each in self.shown
                if each.adoptable and each.orphan_id not in self.went_on
            ]
        giver = None if donor is None else self.found([donor])[0]
        going = None if choose is None else self.found([choose])[0]
        found = []
        for each in self.found(names):
            record = records.get(each)
            known = record is not None and record.adoptable and giver is None
            reported = (record.donor_id, record.session_key) if known and record is not None else None
            found.append(Wish(each, reported, giver, going))
        return found


@contextlib.contextmanager
def reading_report(home: Path, at: str | None, gap_seconds: float, *, everything: bool) -> Iterator[Report]:
    """The report of a home, which stays open."""
    from ..domain.adoption import Sides, backing
    from ..domain.audit import went_on
    from ..domain.chats import Chats
    from ..domain.facts import keyless_by_nature
    from ..domain.repair import repair_records
    from ..infrastructure.reading import reading
    from ..projections.world import count_messages, place, platform_sides, world

    with reading(home, at) as view:
        known = world(view.db, gap_seconds=gap_seconds)
        chats = Chats(known)
        records = repair_records(known)
        by_nature = Counter(each.source for each in records if keyless_by_nature(known, each.source))
        shown = [
            replace(each, message_count=count_messages(view.db, each.orphan_id))
            for each in records
            if everything or each.source not in by_nature
        ]
        since: dict[str, str] = {}
        led: set[str] = set()
        also: dict[str, list[str]] = {}
        for each in shown:
            if each.donor_id is None:
                continue
            target = went_on(chats, each.session_key, known.sessions[each.orphan_id])
            if target is not None and each.adoptable:
                since[each.orphan_id] = target.id
                led |= {target.id} if target == chats.chosen(each.session_key) else set()
            sides = Sides(*platform_sides(view.db, each.donor_id, each.orphan_id))
            ours, theirs = place(view.db, each.orphan_id), place(view.db, each.donor_id)
            also[each.orphan_id] = list(backing(ours, theirs, sides))
        yield Report(view, shown, {} if everything else by_nature, since, frozenset(led), also)


def _planned(plan: str) -> list[Wish]:
    from ..infrastructure.repair_plan import read_plan
    from .repair_apply import Wish

    found = []
    for each in read_plan(Path(plan).expanduser().absolute()).adopt:
        by_rule = each.evidence in ("lineage", "contiguity")
        reported = (each.donor, each.key) if by_rule else None
        found.append(Wish(each.orphan, reported, None if by_rule else each.donor, each.choose, each.key))
    return found


def _told(report: Report, *, as_json: bool, gap_seconds: float, applied: bool = False) -> int:
    if as_json:
        emit_json(_json(report, gap_seconds))
    else:
        put(*_folded(_lines(report, applied=applied)))
    return 0


def _folded(lines: Iterator[str]) -> Iterator[str]:
    """Hermes' wording line for line; on a terminal what is longer than it goes on under itself."""
    if not is_terminal():
        return lines
    width = terminal_width()
    return (each for line in lines for each in fold(line, width, indent=4 if line[:1] == " " else 0))


def _lines(report: Report, *, applied: bool) -> Iterator[str]:
    for record in report.shown:
        noun = "message" if record.message_count == 1 else "messages"
        yield f"{record.orphan_id}  ({record.source}, {record.message_count} {noun})"
        if record.adoptable:
            yield (
                f"  → adopt into {record.session_key} (from {record.donor_id}, evidence: {record.evidence})"
            )
        else:
            yield f"  ✗ not repairable — {record.reason}"
        if report.also.get(record.orphan_id):
            yield f"    also on record: {'; '.join(report.also[record.orphan_id])}"
        if record.orphan_id in report.went_on:
            since = report.went_on[record.orphan_id]
            how = f"a person led the chat to {since}"
            if since not in report.led:
                how = f"the chat was written to in {since} since"
            yield f"    {how}: --choose must say which of the two goes on"
    if report.shown:
        yield ""
    yield from _summary(report, applied=applied)
    if report.by_nature:
        count = sum(report.by_nature.values())
        have = "session" if count == 1 else "sessions"
        verb = "has" if count == 1 else "have"
        names = ", ".join(sorted(report.by_nature))
        yield f"{count:,} {have} of {names} {verb} no key by nature; --all lists them"


def _summary(report: Report, *, applied: bool) -> Iterator[str]:
    records = report.shown
    adoptable = sum(each.adoptable for each in records)
    undecided = len(report.went_on)
    if not records:
        yield "✓ No gateway sessions are missing their routing identity."
    elif not adoptable:
        yield f"{len(records)} orphaned session(s) found, none unambiguously repairable. Nothing to do."
    elif applied:
        yield f"{adoptable} of {len(records)} orphaned session(s) can be repaired, once a person chooses."
    else:
        yield (
            f"{adoptable} of {len(records)} orphaned session(s) can be repaired."
            " Re-run with --apply to perform them."
        )
        if undecided:
            yield f"{undecided} of these wait for --choose, one by one."


def _json(report: Report, gap_seconds: float) -> dict[str, Any]:
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
                "also": report.also.get(each.orphan_id, []),
                "went_on_in": report.went_on.get(each.orphan_id),
            }
            for each in report.shown
        ],
        "repairable": sum(each.adoptable for each in report.shown),
        "max_gap_seconds": gap_seconds,
        "keyless_by_nature": dict(sorted(report.by_nature.items())),
    }
