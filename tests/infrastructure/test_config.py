"""config.yaml: defaults, values, and refusals that name the line."""

from __future__ import annotations

import re
from pathlib import Path

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
