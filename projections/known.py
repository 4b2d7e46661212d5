"""Whether what a command would record is on record already."""

from __future__ import annotations

from ..domain.events import UsageRecorded
from .base import Connection

_NUMBERS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "api_call_count",
    "estimated_cost_usd",
    "actual_cost_usd",
)
_OF_MODEL = (
    "session_id = ? AND model = ? AND billing_provider = ? AND billing_base_url = ? AND billing_mode = ?"
    " AND task = ?"
)


def usage_known(db: Connection, session_id: str, usage: UsageRecorded) -> bool:
    """Whether these absolute numbers are those of the session, or of that model's share of it."""
    columns = ", ".join(_NUMBERS)
    if usage.model is None:
        row = db.execute(f"SELECT {columns} FROM sessions WHERE id = ?", (session_id,)).fetchone()
    else:
        whose = (usage.model, usage.billing_provider, usage.billing_base_url, usage.billing_mode, usage.task)
        row = db.execute(
            f"SELECT {columns} FROM session_model_usage WHERE {_OF_MODEL}", (session_id, *whose)
        ).fetchone()
    return row is not None and tuple(row) == tuple(getattr(usage, name) for name in _NUMBERS)


def prompt_known(db: Connection, prompt_hash: str) -> bool:
    """Whether the text of this prompt is here."""
    found = db.execute("SELECT 1 FROM system_prompts WHERE hash = ?", (prompt_hash,)).fetchone()
    return found is not None
