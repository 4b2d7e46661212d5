"""config.yaml: defaults, values, and refusals that name the line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_type_hints

import msgspec
import pytest

from retold.domain.errors import BadConfig
from retold.infrastructure.config import Config, load_config


def written(home: Path, text: str) -> Path:
    (home / "config.yaml").write_text(text, encoding="utf-8")
    return home


def test_a_home_without_a_file_has_the_defaults(tmp_path: Path) -> None:
    assert load_config(tmp_path) == Config()


def test_an_empty_file_has_the_defaults(tmp_path: Path) -> None:
    assert load_config(written(tmp_path, "# nothing\n")) == Config()


def test_values_are_read(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, "timezone: Asia/Bangkok\nlog:\n  synchronous: NORMAL\n"))

    assert str(config.zone) == "Asia/Bangkok"
    assert config.log.synchronous == "NORMAL"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("timezone: UTC\nmiror:\n  enabled: false\n", "line 2.*miror"),
        ("log:\n  synchronous: SOMETIMES\n", "line 2.*synchronous"),
        ("mirror:\n  enabled: 3\n", "line 2.*enabled"),
        ("timezone: Mars/Olympus\n", "line 1.*Mars/Olympus"),
        ("log: [\n", "line 2"),
        ("timezone: UTC\nlog.synchronous: NORMAL\n", "line 2.*FULL or NORMAL"),
        ("timezone: UTC\nlog: {synchronous: OFF}\n", "line 2.*FULL or NORMAL"),
        ('timezone: UTC\nmirror: {enabled: "x"}\n', "line 2.*true or false"),
        ("log:\n  synchronous: SOMETIMES\n", "line 2.*FULL or NORMAL"),
        ("- a\n- list\n", "object"),
    ],
)
def test_a_bad_key_or_value_is_named_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadConfig) as refused:
        load_config(written(tmp_path, text))

    assert re.search(f"(?s){says}", f"{refused.value.message}; {refused.value.hint}")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("timezone: UTC\nlog: {}\ntimezone: Asia/Bangkok\n", "line 3: `timezone` .* first in line 1"),
        ("log:\n  synchronous: FULL\n  synchronous: NORMAL\n", "line 3: `log.synchronous` .* in line 2"),
        ("platforms:\n  irc: {}\n  slack: {}\n  irc: {}\n", "line 4: `platforms.irc` .* first in line 2"),
        ("mirror: {enabled: true}\n'mirror': {enabled: false}\n", "line 2: `mirror` .* first in line 1"),
    ],
)
def test_a_key_that_stands_twice_is_refused_with_both_lines(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadConfig, match=says):
        load_config(written(tmp_path, text))


def test_a_mapping_that_two_platforms_share_stands_there_once(tmp_path: Path) -> None:
    text = "platforms:\n  irc: &same {session_reset: {mode: idle}}\n  slack: *same\n"
    platforms = load_config(written(tmp_path, text)).platforms

    assert platforms["irc"] == platforms["slack"] != platforms.get("none")


def test_a_mapping_within_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="round"):
        load_config(written(tmp_path, "log: &round {round: *round}\n"))


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_bytes(b"timezone: \xff\xfe")

    with pytest.raises(BadConfig, match="cannot be read"):
        load_config(tmp_path)


NUMBERS = {
    "session_reset.at_hour": "an hour from 0 to 23",
    "session_reset.idle_minutes": "above 0 and at most 52560000",
    "session_reset.bg_process_max_age_hours": "from 0 to 876000",
    "platforms.slack.session_reset.idle_minutes": "above 0 and at most 52560000",
    "session_reset.chat_types.dm.bg_process_max_age_hours": "from 0 to 876000",
    "agent.gateway_auto_continue_freshness": "from 0 to 3153600000",
    "agent.restart_drain_timeout": "from 0 to 2592000",
    "gateway.restart_loop_guard.max_restarts": "a whole number from 0 to 16",
    "gateway.restart_loop_guard.window_seconds": "above 0 and at most 3153600000",
    "queue.cap": "a whole number from 1 to 10000",
    "repair.keep_backups": "a whole number from 1 to 1000",
    "sessions.erase_after": "from 0 to 36500",
    "sessions.stale_after_days": "above 0 and at most 36500",
    "sessions.retention_days": "above 0 and at most 36500",
    "sessions.min_interval_hours": "from 0 to 876000",
    "sessions.min_vacuum_interval_days": "from 0 to 36500",
    "display.resume_exchanges": "from 1 to 1000",
    "display.resume_max_user_chars": "from 1 to 1000000",
    "display.resume_max_assistant_chars": "from 1 to 1000000",
    "display.resume_max_assistant_lines": "from 1 to 100000",
}


@pytest.mark.parametrize("value", [".inf", "-.inf", ".nan", "1.0e+300", "-1", "9" * 400, "true", "x"])
def test_a_number_that_is_none_is_refused_with_its_key_and_its_range(tmp_path: Path, value: str) -> None:
    for name, bounds in NUMBERS.items():
        *above, key = name.split(".")
        text = (
            "# a comment\n" + "".join(f"{each}: {{" for each in above) + f"{key}: {value}" + "}" * len(above)
        )
        with pytest.raises(BadConfig) as refused:
            load_config(written(tmp_path, text + "\n"))

        said = f"{refused.value.message}; {refused.value.hint}"
        assert "line 2: " in said, said
        assert name in refused.value.message
        assert bounds in refused.value.hint, said


def test_a_value_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for value in ("9" * 5_000, "2026-13-45"):
        with pytest.raises(BadConfig):
            load_config(written(tmp_path, f"queue: {{cap: {value}}}\n"))


def test_every_number_of_the_configuration_has_bounds() -> None:
    found = {name for name in numbers(Config) if not name.startswith(("platforms", "session_reset.chat"))}

    assert found == {name for name in NUMBERS if not name.startswith(("platforms", "session_reset.chat"))}


def numbers(kind: type, above: str = "") -> Iterator[str]:
    """The keys of a configuration that hold a number."""
    for name, hint in get_type_hints(kind).items():
        for each in (hint, *get_args(hint)):
            if isinstance(each, type) and issubclass(each, msgspec.Struct):
                yield from numbers(each, f"{above}{name}.")
            elif each in (int, float):
                yield f"{above}{name}"
