"""The line that lists show for a session."""

from __future__ import annotations

import pytest

from retold.projections.preview import PREVIEW_CHARS, preview_of


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("hello\n  there", "hello there"),
        (None, None),
        (" \n\t", None),
        ("[CONTEXT COMPACTION] what was said", None),
        ("[CONTEXT SUMMARY]: what was said", None),
        ('\0json:[{"type":"text","text":"look at this"}]', "look at this"),
        ('\0json:{"s":"\\ud83d"}', "\ufffd"),
    ],
)
def test_a_preview_is_one_line_of_what_was_said(content: str | None, line: str | None) -> None:
    assert preview_of(content) == line


def test_a_long_message_is_cut() -> None:
    preview = preview_of("x" * 1_000)

    assert preview is not None
    assert preview == "x" * PREVIEW_CHARS + "…"
