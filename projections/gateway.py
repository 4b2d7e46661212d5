"""What gateways did and what is set for the home: runs, recoveries, upkeep, settings, home channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from ..domain import events as e
from ..domain.events import Recorded
from ..domain.inbound import number
from .base import Connection, OfMessages, Projection

_json = msgspec.json.Encoder().encode
_PREFIX = len("gateway:")
_TOLD = frozenset(
    {
        e.UpdateSeen,
        e.MaintenanceRan,
        e.HomeChannelSet,
        e.GatewayStarted,
        e.GatewayStopped,
        e.RecoveryRan,
        e.SettingChanged,
    }
)


class Gateways(Projection):
    """Runs of gateways with what each start recovered, upkeep, settings, and what platforms delivered."""

    name: ClassVar[str] = "gateway"
    version: ClassVar[int] = 1
    of_messages: ClassVar[OfMessages] = "none"
    tables: ClassVar[dict[str, str]] = {
        "gateway_runs": (
            "(position INTEGER PRIMARY KEY, gateway TEXT NOT NULL, started_us INTEGER NOT NULL, clean INTEGER"
            " NOT NULL, platforms TEXT NOT NULL, stopped_us INTEGER, stopped_clean INTEGER, reason TEXT,"
            " running TEXT)"
        ),
        "recovery_runs": (
            "(position INTEGER PRIMARY KEY, gateway TEXT NOT NULL, at_us INTEGER NOT NULL, marked TEXT NOT"
            " NULL, suspended TEXT NOT NULL, resumed TEXT NOT NULL, passed_over TEXT NOT NULL, loop INTEGER"
            " NOT NULL)"
        ),
        "maintenance_runs": (
            "(position INTEGER PRIMARY KEY, at_us INTEGER NOT NULL, kind TEXT NOT NULL, done TEXT NOT NULL,"
            " left_alone TEXT NOT NULL)"
        ),
        "settings": (
            "(gateway TEXT NOT NULL, name TEXT NOT NULL, value, until_us INTEGER, position INTEGER NOT NULL,"
            " at_us INTEGER NOT NULL, PRIMARY KEY (gateway, name)) WITHOUT ROWID"
        ),
        "home_channels": (
            "(platform TEXT PRIMARY KEY, chat_id TEXT NOT NULL, thread_id TEXT, name TEXT, chat_type TEXT NOT"
            " NULL, position INTEGER NOT NULL, at_us INTEGER NOT NULL) WITHOUT ROWID"
        ),
        "seen_updates": (
            "(stream TEXT PRIMARY KEY, platform TEXT NOT NULL, last_update TEXT NOT NULL, highest INTEGER,"
            " updates INTEGER NOT NULL, position INTEGER NOT NULL, at_us INTEGER NOT NULL) WITHOUT ROWID"
        ),
    }
    indexes: ClassVar[dict[str, str]] = {"gateway_runs_by_gateway": "gateway_runs (gateway, position)"}

    def ordered(self) -> dict[str, str]:
        """Whole content in a fixed order."""
        return {
            "gateway_runs": "SELECT * FROM {p}gateway_runs ORDER BY position",
            "recovery_runs": "SELECT * FROM {p}recovery_runs ORDER BY position",
            "maintenance_runs": "SELECT * FROM {p}maintenance_runs ORDER BY position",
            "settings": "SELECT * FROM {p}settings ORDER BY gateway, name",
            "home_channels": "SELECT * FROM {p}home_channels ORDER BY platform",
            "seen_updates": "SELECT * FROM {p}seen_updates ORDER BY stream",
        }

    def fold(self, events: Sequence[Recorded], db: Connection) -> None:
        """Follow gateways; most events are none of theirs."""
        for event in events:
            if type(event.payload) not in _TOLD:
                continue
            match event.payload:
                case e.UpdateSeen() as p:
                    self._seen(event, p, db)
                case e.MaintenanceRan() as p:
                    db.execute(
                        f"INSERT INTO {self.t('maintenance_runs')} VALUES (?,?,?,?,?)",
                        (event.position, event.at_us, p.kind, _text(p.done), _text(p.left)),
                    )
                case e.HomeChannelSet() as p:
                    self._home_channel(event, p, db)
                case e.GatewayStarted() | e.GatewayStopped() | e.RecoveryRan() | e.SettingChanged() if (
                    event.stream.startswith("gateway:")
                ):
                    self._gateway(event, event.stream[_PREFIX:], db)
                case _:
                    pass

    def _gateway(self, event: Recorded, gateway: str, db: Connection) -> None:
        match event.payload:
            case e.GatewayStarted() as p:
                db.execute(
                    f"INSERT INTO {self.t('gateway_runs')} VALUES (?,?,?,?,?,NULL,NULL,NULL,NULL)",
                    (event.position, gateway, event.at_us, int(p.clean), _text(p.platforms)),
                )
            case e.GatewayStopped() as p:
                db.execute(
                    f"UPDATE {self.t('gateway_runs')} SET stopped_us = ?, stopped_clean = ?, reason = ?,"
                    f" running = ? WHERE position = (SELECT max(position) FROM {self.t('gateway_runs')}"
                    # From the front: a rebuild makes indexes last, and there are few runs.
                    " WHERE gateway = ?) AND stopped_us IS NULL",
                    (event.at_us, int(p.clean), p.reason, _text(p.running), gateway),
                )
            case e.RecoveryRan() as p:
                db.execute(
                    f"INSERT INTO {self.t('recovery_runs')} VALUES (?,?,?,?,?,?,?,?)",
                    (
                        event.position,
                        gateway,
                        event.at_us,
                        _text(p.marked),
                        _text(p.suspended),
                        _text(p.resumed),
                        _text(p.passed_over),
                        int(p.loop),
                    ),
                )
            case e.SettingChanged(value=None) as p:
                db.execute(
                    f"DELETE FROM {self.t('settings')} WHERE gateway = ? AND name = ?", (gateway, p.name)
                )
            case e.SettingChanged() as p:
                db.execute(
                    f"INSERT OR REPLACE INTO {self.t('settings')} VALUES (?,?,?,?,?,?)",
                    (gateway, p.name, p.value, p.until_us, event.position, event.at_us),
                )

    def _home_channel(self, event: Recorded, p: e.HomeChannelSet, db: Connection) -> None:
        if p.chat_id is None:
            db.execute(f"DELETE FROM {self.t('home_channels')} WHERE platform = ?", (p.platform,))
            return
        db.execute(
            f"INSERT OR REPLACE INTO {self.t('home_channels')} VALUES (?,?,?,?,?,?,?)",
            (p.platform, p.chat_id, p.thread_id, p.name, p.chat_type, event.position, event.at_us),
        )

    def _seen(self, event: Recorded, p: e.UpdateSeen, db: Connection) -> None:
        db.execute(
            f"INSERT INTO {self.t('seen_updates')} VALUES (?,?,?,?,1,?,?) ON CONFLICT (stream) DO UPDATE SET"
            " last_update = excluded.last_update, updates = updates + 1, position = excluded.position,"
            " at_us = excluded.at_us, highest = max(coalesce(highest, excluded.highest),"
            " coalesce(excluded.highest, highest))",
            (event.stream, p.platform, p.update, number(p.update), event.position, event.at_us),
        )


def _text(value: object) -> str:
    """As JSON, a map by its names in order: the same text in whatever order it was made."""
    return _json(dict(sorted(value.items())) if isinstance(value, dict) else value).decode()


# --- what a decision asks ---------------------------------------------------------------------------


class Chat(msgspec.Struct, frozen=True):
    """A session that a start or a stop looks at, and the key that leads to it."""

    session_id: str
    key: str | None
    last_active_us: int | None


def to_recover(db: Connection, gateway: str, active_since_us: int) -> list[Chat]:
    """Sessions that a start of `gateway` must look at: in a turn, marked, or active since then."""
    rows = db.execute(
        """
        SELECT s.id, r.key, s.last_active_us FROM routes r JOIN sessions s ON s.id = r.session_id
        WHERE s.last_active_us >= ? OR s.running_turn IS NOT NULL OR s.resume_reason IS NOT NULL
        UNION
        SELECT s.id, NULL, s.last_active_us FROM sessions s
        WHERE s.running_turn IS NOT NULL AND s.turn_gateway = ?
          AND NOT EXISTS (SELECT 1 FROM routes r WHERE r.session_id = s.id)
        ORDER BY 1, 2
        """,
        (active_since_us, gateway),
    )
    return [Chat(*row) for row in rows]


def started_besides(db: Connection, gateway: str) -> list[str]:
    """The other gateways that ever started."""
    rows = db.execute(
        "SELECT DISTINCT gateway FROM gateway_runs WHERE gateway != ? ORDER BY gateway", (gateway,)
    )
    return [row[0] for row in rows]


def silent_since(db: Connection, gateway: str, at_us: int) -> int | None:
    """When the lease of a turn lapsed that a gateway ran, where no session shows a sign of life since.

    A turn that was begun and ended after it leaves none in a row; the log has it.
    """
    row = db.execute(
        """
        SELECT max(lease_until_us) FROM sessions
        WHERE turn_gateway = ? AND running_turn IS NOT NULL AND lease_until_us <= ?
        """,
        (gateway, at_us),
    ).fetchone()
    if row is None or row[0] is None:
        return None
    since = db.execute(
        """
        SELECT 1 FROM sessions WHERE turn_gateway = ? AND (last_active_us > ? OR turn_since_us > ?
          OR (running_turn IS NOT NULL AND lease_until_us > ?)) LIMIT 1
        """,
        (gateway, row[0], row[0], at_us),
    ).fetchone()
    return int(row[0]) if since is None else None


def run_began(db: Connection, gateway: str) -> int:
    """The position of a gateway's last start; 0 for none."""
    row = db.execute("SELECT max(position) FROM gateway_runs WHERE gateway = ?", (gateway,)).fetchone()
    return int(row[0] or 0)


def run_by(db: Connection, gateway: str) -> list[str]:
    """Sessions in a turn that `gateway` runs, and those it marked when it began to run dry."""
    rows = db.execute(
        "SELECT id FROM sessions WHERE running_turn IS NOT NULL AND turn_gateway = :gateway"
        " UNION SELECT id FROM sessions WHERE resume_reason IS NOT NULL AND turn_gateway = :gateway"
        " ORDER BY 1",
        {"gateway": gateway},
    )
    return [row[0] for row in rows]


def waiting(db: Connection) -> list[tuple[str, str]]:
    """Sessions in which turns wait, with their sources, led to by a chat or not; none that is suspended."""
    rows = db.execute(
        "SELECT id, source FROM sessions WHERE waiting IS NOT NULL AND suspended IS NULL"
        " ORDER BY last_active_us, id"
    )
    return [(row[0], row[1]) for row in rows]


def open_handoffs(db: Connection) -> list[str]:
    """Sessions with a handoff that is asked for or claimed, by their start."""
    rows = db.execute(
        "SELECT id FROM sessions WHERE handoff_state IN ('pending', 'running') AND handoff_deadline_us"
        " IS NOT NULL ORDER BY started_us, id"
    )
    return [row[0] for row in rows]


def highest_update(db: Connection, platform: str, stream: str | None = None) -> int | None:
    """The highest update of a platform that was taken, of one chat where its stream is given."""
    chosen = "" if stream is None else " AND stream = ?"
    row = db.execute(
        f"SELECT max(highest) FROM seen_updates WHERE platform = ?{chosen}",
        (platform, *(() if stream is None else (stream,))),
    ).fetchone()
    return None if row is None else row[0]
