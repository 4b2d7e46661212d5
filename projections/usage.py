"""Tokens and cost by session and model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from ..domain.events import PayloadsErased, Recorded, UsageRecorded
from .amounts import added
from .base import Connection, OfMessages, Projection

_KEY = ("session_id", "model", "billing_provider", "billing_base_url", "billing_mode", "task")
_SUMS = (
    "api_call_count",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "estimated_cost_usd",
    "actual_cost_usd",
)
_REST = ("cost_status", "cost_source", "first_seen", "last_seen")
_pack = msgspec.msgpack.Encoder().encode


class Usage(Projection):
    """What each model did in each session, under Hermes' names."""

    name: ClassVar[str] = "usage"
    version: ClassVar[int] = 1
    of_messages: ClassVar[OfMessages] = "none"
    tables: ClassVar[dict[str, str]] = {
        "session_model_usage": (
            "(session_id TEXT NOT NULL, model TEXT NOT NULL, billing_provider TEXT NOT NULL,"
            " billing_base_url TEXT NOT NULL, billing_mode TEXT NOT NULL, task TEXT NOT NULL,"
            " api_call_count INTEGER NOT NULL, input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,"
            " cache_read_tokens INTEGER NOT NULL, cache_write_tokens INTEGER NOT NULL,"
            " reasoning_tokens INTEGER NOT NULL, estimated_cost_usd REAL, actual_cost_usd REAL,"
            " cost_status TEXT, cost_source TEXT, first_seen REAL, last_seen REAL, extra BLOB,"
            " PRIMARY KEY (session_id, model, billing_provider, billing_base_url, billing_mode, task))"
            " WITHOUT ROWID"
        ),
    }

    def ordered(self) -> dict[str, str]:
        """Whole content in a fixed order."""
        return {"session_model_usage": f"SELECT * FROM {{p}}session_model_usage ORDER BY {', '.join(_KEY)}"}

    def fold(self, events: Sequence[Recorded], db: Connection) -> None:
        """Replace or add, as each event says."""
        for event in events:
            if isinstance(event.payload, UsageRecorded) and event.payload.model is not None:
                self._use(event.session_id, event.payload, db)
            elif isinstance(event.payload, PayloadsErased) and event.payload.session is not None:
                db.execute(
                    f"DELETE FROM {self.t('session_model_usage')} WHERE session_id = ?",
                    (event.payload.session,),
                )

    def _use(self, session_id: str, p: UsageRecorded, db: Connection) -> None:
        key = (session_id, p.model, p.billing_provider, p.billing_base_url, p.billing_mode, p.task)
        where = " AND ".join(f"{name} = ?" for name in _KEY)
        sums: list[Any] = [getattr(p, name) for name in _SUMS]
        if p.mode == "delta":
            known = db.execute(
                f"SELECT {', '.join(_SUMS)} FROM {self.t('session_model_usage')} WHERE {where}", key
            ).fetchone()
            if known is not None:
                sums = [added(old, new) for old, new in zip(known, sums, strict=True)]
        rest = [p.columns.get(name) for name in _REST]
        extra = {name: value for name, value in p.columns.items() if name not in _REST}
        marks = ",".join("?" * (len(_KEY) + len(_SUMS) + len(_REST) + 1))
        db.execute(
            f"INSERT OR REPLACE INTO {self.t('session_model_usage')} VALUES ({marks})",
            (*key, *sums, *rest, _pack(extra) if extra else None),
        )
