"""What a session works with: its model, workspace, prompt and usage, and whether it is pinned."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

from ...domain import events as e
from ...domain.errors import BadUsage, RuleBroken
from ...domain.events import session_stream
from ...domain.ids import refuse_blank_key
from ...domain.message import refuse_no_json
from ...domain.text import scrub
from ...projections.known import prompt_known, usage_known
from ..decisions import Saved, event
from ..log import Condition
from .told import ToldCommands

COUNTS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "api_call_count",
)
COSTS = ("estimated_cost_usd", "actual_cost_usd")
MOST = 1 << 53
"""More of anything nobody has used; a number beyond it is none that every program reads alike."""
_WHOSE = ("billing_provider", "billing_base_url", "billing_mode", "task")


class SettingCommands(ToldCommands):
    """What is known of a session beside what is said in it. Where it is so already, nothing is written."""

    def record_usage(
        self,
        session_id: str,
        mode: Literal["absolute", "delta"],
        *,
        model: str | None = None,
        key: str | None = None,
        at_us: int | None = None,
        **numbers: Any,
    ) -> Saved:
        """Record tokens and cost of a session, or of one model's share of it.

        Args:
            mode: "absolute" numbers replace what was known, "delta" ones are added to it.
            model: whose share it is; None for the session's totals.
            key: a delta that is delivered again under its key is counted once.
            numbers: those that are not given are 0: input_tokens, output_tokens, cache_read_tokens,
                cache_write_tokens, reasoning_tokens, api_call_count; estimated_cost_usd,
                actual_cost_usd in US dollars; and for a model's share billing_provider,
                billing_base_url, billing_mode, task (texts).

        Raises:
            NoSuchSession. BadUsage: a mode or a number that is none, or a name that is no number's.
        """
        refuse_blank_key(key)
        payload = _usage(session_id, mode, model, numbers)
        keyed = None if key is None else self.identity.keyed_hash("usage", session_id, scrub(key)[0])
        stream = session_stream(session_id)

        def decision() -> Saved:
            state = self.session(session_id)
            if keyed is not None and self.event_log.by_idempotency_key(stream, keyed) is not None:
                return Saved(session_id, ())
            if _says_nothing(payload) or (
                mode == "absolute" and usage_known(self.told(state), session_id, payload)
            ):
                return Saved(session_id, ())
            at = self.at(at_us)
            recorded = event(stream, state.version + 1, payload, at, idempotency_key=keyed)
            return Saved(session_id, self.save_events([recorded]))

        return self.decide(decision)

    def set_model(
        self, session_id: str, model: str | None, *, model_config: str | None = None, at_us: int | None = None
    ) -> Saved:
        """Which model answers; its configuration stays as it is where none is given.

        Args:
            model_config: a JSON object, as text.

        Raises:
            NoSuchSession. BadUsage: a configuration that is none.
        """
        name, config = _clean("model", model), _clean("model_config", model_config)
        refuse_no_json("model_config", config)

        def choose(state: Any) -> e.ModelChanged | None:
            changed = e.ModelChanged(name, state.model_config if config is None else config)
            return (
                None
                if (state.model, state.model_config) == (changed.model, changed.model_config)
                else changed
            )

        return self.change_session(session_id, choose, at_us)

    def set_workspace(
        self,
        session_id: str,
        cwd: str | None,
        *,
        git_repo_root: str | None = None,
        git_branch: str | None = None,
        at_us: int | None = None,
    ) -> Saved:
        """Where the session works: the folder, and of what repository and branch it is; all three at once."""
        changed = e.WorkspaceChanged(
            _clean("cwd", cwd), _clean("git_branch", git_branch), _clean("git_repo_root", git_repo_root)
        )

        def choose(state: Any) -> e.WorkspaceChanged | None:
            now = e.WorkspaceChanged(state.cwd, state.git_branch, state.git_repo_root)
            return None if now == changed else changed

        return self.change_session(session_id, choose, at_us)

    def set_prompt(self, session_id: str, prompt: str | None, *, at_us: int | None = None) -> Saved:
        """The system prompt. Its text goes into the log once, however many sessions have it."""
        text = _clean("prompt", prompt)
        named = None if text is None else prompt_hash(text)

        def decision() -> Saved:
            state = self.session(session_id)
            if state.prompt_hash == named:
                return Saved(session_id, ())
            at, read_at = self.at(at_us), self.head().position
            known = named is None or prompt_known(self.told(state), named)
            changed = e.PromptChanged(named, None if known else text)
            once = None if known else Condition(read_at, topics=(e.PromptChanged.topic,))
            saved = [event(session_stream(session_id), state.version + 1, changed, at)]
            return Saved(session_id, self.save_events(saved, condition=once))

        return self.decide(decision)

    def pin_session(self, session_id: str, *, at_us: int | None = None) -> Saved:
        """Keep a session from every bulk removal."""
        return self.change_session(
            session_id, lambda state: None if state.pinned else e.SessionPinned(), at_us
        )

    def unpin_session(self, session_id: str, *, at_us: int | None = None) -> Saved:
        """Let bulk removals have it again."""
        return self.change_session(
            session_id, lambda state: e.SessionUnpinned() if state.pinned else None, at_us
        )


def prompt_hash(text: str) -> str:
    """What names a prompt: as Hermes' newer stores name theirs, SHA-256 of its text, hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def _clean(name: str, value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadUsage(f"{name} may be a str or None, not {type(value).__name__}", hint="nothing was written")
    return scrub(value)[0]


def _usage(
    session_id: str, mode: Literal["absolute", "delta"], model: str | None, numbers: dict[str, Any]
) -> e.UsageRecorded:
    where = f"session {session_id}"
    given: dict[str, Any] = {}
    for name, value in numbers.items():
        if name in _WHOSE:
            given[name] = _clean(name, value) or ""
        elif name in COUNTS or name in COSTS:
            given[name] = _number(where, name, value)
        else:
            raise BadUsage(
                f"{where}: usage has no {name}", hint=f"known are {', '.join((*COUNTS, *COSTS, *_WHOSE))}"
            )
    if model is None and any(given.get(name) for name in _WHOSE):
        raise RuleBroken(f"{where}: whose share it is goes with a model", hint="name the model")
    return e.UsageRecorded(mode, _clean("model", model), **given)


def _number(where: str, name: str, value: object) -> int | float | None:
    """A count, or an amount of money, which may be unknown."""
    money = name in COSTS
    if money and value is None:
        return None
    if (
        not isinstance(value, bool)
        and isinstance(value, int | float if money else int)
        and 0 <= value <= MOST
    ):
        return float(value) if money else value
    wanted = "an amount in US dollars" if money else "a whole number"
    raise BadUsage(
        f"{where}: {name} is {wanted} from 0 to {MOST}, not {str(value)[:60]}", hint="nothing was written"
    )


def _says_nothing(payload: e.UsageRecorded) -> bool:
    return payload.mode == "delta" and not any(getattr(payload, name) for name in (*COUNTS, *COSTS))
