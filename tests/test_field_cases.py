"""docs/field-cases.md and docs/hermes-parity.md: each row names tests that exist."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "field-cases.md").read_text(encoding="utf-8")
CASES = re.findall(r"^\| ([A-Z]\d+) \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE)
EVERY = Counter(
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^\s*def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
)


def test_every_row_of_the_page_is_read() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "---" not in line]

    assert len(CASES) == len(rows) - 1  # but for the heading


@pytest.mark.parametrize(("case", "tests"), CASES)
def test_a_case_is_held_by_tests_that_exist(case: str, tests: str) -> None:
    named = re.findall(r"`(test_\w+)`", tests)

    assert named, case
    assert set(named) <= EVERY.keys(), set(named) - EVERY.keys()
    assert any(name.startswith(f"test_{case.lower()}_") for name in named), case


def test_every_case_that_a_test_is_named_after_has_a_row() -> None:
    named = {found[1].upper() for name in EVERY if (found := re.match(r"test_([a-k]\d+)_", name))}

    assert named - {case for case, _ in CASES} == set()


def test_a_test_of_a_case_has_a_name_of_its_own() -> None:
    assert [name for name, count in EVERY.items() if count > 1 and re.match(r"test_[a-k]\d+_", name)] == []


def test_a_row_of_the_parity_page_is_held_by_tests_that_exist() -> None:
    page = (ROOT / "docs" / "hermes-parity.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    rows = [line for line in rows if not line.startswith("| flag or behaviour |")]
    unheld = [line for line in rows if not re.search(r"`test_\w+`", line)]

    assert rows
    assert unheld == []
    assert set(re.findall(r"`(test_\w+)`", page)) - EVERY.keys() == set()
