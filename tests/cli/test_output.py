"""Rows stay rows whatever their text holds; times and counts read as people say them."""

from __future__ import annotations

import subprocess
import sys
import unicodedata
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from wcwidth import iter_graphemes, wcswidth

from retold.cli.output import (
    Column,
    cell_width,
    emit_json,
    fit,
    iso_us,
    local_time,
    plural,
    relative_time,
    table,
    visible,
)
from retold.cli.paragraphs import fold

NOW_US = 1_778_250_730_123_456  # 2026-05-08T14:32:10.123456Z
MINUTE_US, HOUR_US, DAY_US = 60_000_000, 3_600_000_000, 86_400_000_000
ANY_TEXT = st.text(st.characters(exclude_categories=()))


@given(ANY_TEXT)
@example("a\x1b[2Jb\r\nc\u202ed\udc80\x9b1m\u2028e\x00")
def test_visible_text_is_one_line_without_control(text: str) -> None:
    shown = visible(text)

    assert not {unicodedata.category(char) for char in shown} & {"Cc", "Cs", "Zl", "Zp"}
    assert not {unicodedata.bidirectional(char) for char in shown} & {
        "LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI",
    }  # fmt: skip
    shown.encode("utf-8")


@given(ANY_TEXT)
@example("".join(map(chr, range(0xA0, 0x300))))
@example("—–…•→│␛‘’“” ぁゖァヿ一鿿가힣！｠")
def test_the_quick_way_to_a_width_agrees_with_wcwidth(text: str) -> None:
    shown = visible(text)

    assert cell_width(text) == sum(max(wcswidth(each), 0) for each in iter_graphemes(shown))


@given(ANY_TEXT, st.integers(0, 50))
@example("👨‍👩‍👧" * 3, 5)
@example("e\u0301" * 200, 10)
@example("\u0301", 3)
def test_fitted_text_takes_exactly_its_width(text: str, width: int) -> None:
    fitted = fit(text, width)

    assert cell_width(fitted) == width
    assert visible(fitted) == fitted


@pytest.mark.parametrize(
    ("text", "width", "fitted"),
    [
        ("tea", 5, "tea  "),
        ("kitchen plan", 8, "kitchen…"),
        ("漢字漢字", 8, "漢字漢字"),
        ("漢字漢字", 7, "漢字漢…"),
        ("漢字漢字", 6, "漢字… "),
        ("two\nlines", 12, "two lines   "),
        ("x" * 3_000_000, 4, "xxx…"),
        ("tea", 0, ""),
    ],
)
def test_text_is_cut_by_cells(text: str, width: int, fitted: str) -> None:
    assert fit(text, width) == fitted


def test_a_table_is_aligned_by_cells_and_never_cuts_an_id() -> None:
    rows = [("漢字", "7", "20260504_080000_b33d43d5"), ("a title that is too long", "12", "s\n1")]
    lines = list(table(rows, [Column("Title", 10), Column("N", right=True), Column("ID")]))

    assert lines == [
        "Title        N  ID",
        "─" * 40,
        "漢字         7  20260504_080000_b33d43d5",
        "a title t…  12  s 1",
    ]
    assert wcswidth(lines[2]) == 40


def test_everyday_rows_do_not_load_the_width_tables() -> None:
    rows = "from retold.cli.output import fit; fit('a — 漢字かな 한글 …', 9); import sys; "
    code = rows + "print('wcwidth' in sys.modules, 'msgspec' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "False False\n"


def test_a_table_without_rows_is_its_header() -> None:
    assert list(table([], [Column("ID")])) == ["ID", "──"]


@pytest.mark.parametrize(
    ("ago_us", "words"),
    [
        (0, "just now"),
        (MINUTE_US - 1, "just now"),
        (-30_000_000, "just now"),
        (MINUTE_US, "1m ago"),
        (HOUR_US - 1, "59m ago"),
        (HOUR_US, "1h ago"),
        (DAY_US - 1, "23h ago"),
        (DAY_US, "yesterday"),
        (2 * DAY_US - 1, "yesterday"),
        (2 * DAY_US, "2d ago"),
        (7 * DAY_US - 1, "6d ago"),
        (7 * DAY_US, "2026-05-01"),
        (-2 * DAY_US, "2026-05-10"),
    ],
)
def test_a_time_is_told_as_hermes_tells_it(ago_us: int, words: str) -> None:
    assert relative_time(NOW_US - ago_us, NOW_US) == words


@pytest.mark.parametrize("us", [None, 0])
def test_no_time_is_a_question_mark(us: int | None) -> None:
    assert (relative_time(us, NOW_US), local_time(us)) == ("?", "?")


def test_a_moment_is_written_in_full_and_short() -> None:
    assert iso_us(NOW_US) == "2026-05-08T14:32:10.123456Z"
    assert iso_us(NOW_US - 123_456) == "2026-05-08T14:32:10Z"
    assert iso_us(-1) == "1969-12-31T23:59:59.999999Z"
    assert local_time(NOW_US) == "2026-05-08 14:32:10"


@given(st.integers(-(2**63), 2**63 - 1))
@example(2**63 - 1)
@example(-(2**63))
def test_every_time_that_the_log_can_hold_can_be_written(us: int) -> None:
    assert iso_us(us).endswith("Z")
    assert local_time(us)
    assert relative_time(us, NOW_US)


def test_counts_agree_with_their_noun() -> None:
    assert [plural(n, "message") for n in (0, 1, 1200)] == [
        "0 messages", "1 message", "1,200 messages",
    ]  # fmt: skip
    assert plural(2, "history", "histories") == "2 histories"


def _emitted(value: object, capfdbinary: pytest.CaptureFixture[bytes]) -> tuple[bytes, Any]:
    emit_json(value)
    sys.stdout.flush()
    line = capfdbinary.readouterr().out
    return line, msgspec.json.decode(line) if b"\\ud" not in line else None


def test_json_is_one_line_of_utf_8(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    line, value = _emitted({"title": "漢字\n", "cost": float("nan")}, capfdbinary)

    assert line == '{"title":"漢字\\n","cost":null}\n'.encode()
    assert value == {"title": "漢字\n", "cost": None}


def test_json_keeps_a_lone_surrogate(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    line, _ = _emitted({"title": "\udc80", "costs": [float("inf"), 1.5]}, capfdbinary)

    assert line == b'{"title":"\\udc80","costs":[null,1.5]}\n'


def test_a_long_line_goes_on_under_itself_with_its_spaces_as_they_were() -> None:
    line = "  id  (telegram,  3 messages) and more of it"

    assert fold(line, 80, indent=4) == [line]
    assert fold(line, 24, indent=4) == ["  id  (telegram,  3", "    messages) and more", "    of it"]
    assert fold("  " + "x" * 30 + " y", 10, indent=4) == ["  " + "x" * 30, "    y"]
