"""Titles: cleaned, cut, numbered, matched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retold.domain.errors import BadTitle
from retold.domain.titles import (
    base_of,
    clean_title,
    cut_title,
    lineage_matches,
    lineage_number,
    next_in_lineage,
    spellings,
)

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("  a \n b\t c ", "a b c"),
        ("Alpha\u200bBeta", "Alpha Beta"),
        ("\u202ex", "x"),
        ("a\x00b\x7f", "ab"),
        ("\ufeffplan", "plan"),
        ("one\u2028two\x85three", "one two three"),
        ("a\u200db", "ab"),
        (FAMILY, FAMILY),
        ("\u2764\ufe0f\u200d\U0001f525", "\u2764\ufe0f\u200d\U0001f525"),
        ("\U0001f469\U0001f3fd\u200d\U0001f4bb", "\U0001f469\U0001f3fd\u200d\U0001f4bb"),
        ("\U0001f680 launch", "\U0001f680 launch"),
        ("重构认证模块", "重构认证模块"),
        ("déjà vu", "déjà vu"),
        ("a\ud800b", "a\ufffdb"),
        # A joiner stays where it holds an emoji together, and nowhere else.
        ("\U0001f642\u200d\u2194\ufe0f", "\U0001f642\u200d\u2194\ufe0f"),
        ("a\u200d\U0001f525", "a\U0001f525"),
        ("X\u200d\U0001f525", "X\U0001f525"),
        ("\u200d\U0001f525", "\U0001f525"),
        ("\U0001f469X\u200d\U0001f4bb", "\U0001f469X\U0001f4bb"),
        ("\U0001f525\u200d", "\U0001f525"),
        ("\u2764" + "\ufe0f" * 3 + "\u200d\U0001f525", "\u2764" + "\ufe0f" * 3 + "\u200d\U0001f525"),
        ("\u2764" + "\ufe0f" * 4 + "\u200d\U0001f525", "\u2764" + "\ufe0f" * 4 + "\U0001f525"),  # no emoji
    ],
)
def test_a_title_is_cleaned(text: str, title: str) -> None:
    assert clean_title(text) == title


@pytest.mark.parametrize("text", ["", "   ", "\u200b\u200d\ufeff", "\u202e\n", "\ufe0f", "\u3164"])
def test_a_title_with_nothing_to_read_is_refused(text: str) -> None:
    with pytest.raises(BadTitle):
        clean_title(text)
    with pytest.raises(BadTitle):
        cut_title(text)


def test_a_persons_title_over_100_characters_is_refused_and_never_cut() -> None:
    assert len(clean_title("x" * 100)) == 100

    with pytest.raises(BadTitle, match="101"):
        clean_title("x" * 101)


@pytest.mark.parametrize("text", ["cafe\u0301", "cafe\u200d\u0301", "caf\u00e9"])
def test_a_title_is_one_however_its_characters_are_written(text: str) -> None:
    assert clean_title(text) == cut_title(text) == "caf\u00e9"
    assert spellings("caf\u00e9") == ["caf\u00e9", "cafe\u0301"]
    assert spellings("cafe") == ["cafe"]


def test_an_automatic_title_is_cut_to_100_characters() -> None:
    assert cut_title("x" * 300) == cut_title("x" * 100) == "x" * 100
    assert cut_title("x" * 99 + " y") == "x" * 99
    assert cut_title("short") == "short"


CHARACTERS = [
    FAMILY,
    "x\u0301",  # of which there is none in one piece
    "1\u20e3",  # in a keycap
    "\u0915\u093e",  # a Devanagari syllable
    "\u2764\ufe0f",
    "\U0001f469\U0001f3fd",
    "\U0001f44d\U0001f3fb",  # the first and the last tone of skin
    "\U0001f44d\U0001f3ff",
    "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",  # England's flag
    "\U0001f3f4\U000e0020\U000e007f",  # of the first and the last tag
    "\U0001f1e9\U0001f1ea",
    "\U0001f1e6\U0001f1ff",  # Azerbaijan, South Africa: of the first and the last letter
    "\U0001f1ff\U0001f1e6",
    "\u1112\u1176",
    "\u1100\u1160",  # Hangul, of the first and the last jamo
    "\u1100\u1176\u11ff\u11ff",
]


@pytest.mark.parametrize("character", CHARACTERS)
def test_a_title_is_cut_where_a_character_ends_and_keeps_all_that_fit(character: str) -> None:
    for filling in range(95, 100):
        fit = (100 - filling) // len(character)

        assert cut_title("x" * filling + character * 9) == "x" * filling + character * fit


@pytest.mark.parametrize("character", [*CHARACTERS, "\U0001f1e9", "\u1161"])
def test_a_letter_is_no_part_of_the_character_beside_it(character: str) -> None:
    """Nor where that is half a flag, or a vowel alone."""
    before = "x" * (100 - len(character))

    assert cut_title(before + character + "x") == before + character
    assert cut_title("x" * 100 + character) == "x" * 100


@pytest.mark.parametrize("start", ["", "x"])
def test_a_title_that_is_one_endless_character_is_cut_nevertheless(start: str) -> None:
    assert cut_title(start + "\u0301" * 300) == (start + "\u0301" * 300)[:100]


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("x" * 101, "Title too long (101 characters, max 100)", "give a shorter title"),
        (" \u200b", "A title needs something to read", "give a title with visible characters"),
    ],
)
def test_a_refusal_says_what_is_wrong_and_what_would_do(text: str, message: str, hint: str) -> None:
    with pytest.raises(BadTitle) as refused:
        clean_title(text)

    assert (refused.value.message, refused.value.hint) == (message, hint)


@given(st.text())
def test_a_cleaned_title_is_clean(text: str) -> None:
    try:
        title = cut_title(text)
    except BadTitle:
        return

    assert 0 < len(title) <= 100
    assert clean_title(title) == title
    title.encode()


def test_the_next_title_of_a_lineage_is_the_first_free_number() -> None:
    assert next_in_lineage("Intro", []) == "Intro"
    assert next_in_lineage("Intro", ["Intro"]) == "Intro #2"
    assert next_in_lineage("Intro #2", ["Intro", "Intro #2"]) == "Intro #3"
    assert next_in_lineage("Intro", ["Intro #7"]) == "Intro #8"
    assert next_in_lineage("Intro", iter(["Intro", "Intro #bar", "Other #9"])) == "Intro #2"
    assert next_in_lineage("a_b", ["axb #2"]) == "a_b"


def test_a_numbered_title_stays_within_100_characters_and_free() -> None:
    long = "x" * 100
    second = next_in_lineage(long, [long])
    third = next_in_lineage(long, [long, second])

    assert second == "x" * 97 + " #2"
    assert third == "x" * 97 + " #3"
    assert next_in_lineage(long, []) == long
    assert next_in_lineage(long + "x", []) == second  # a source may have longer ones


def test_a_title_has_a_base_and_a_number() -> None:
    assert (base_of("plan #3"), lineage_number("plan #3")) == ("plan", 3)
    assert (base_of("plan"), lineage_number("plan")) == ("plan", 1)
    assert (base_of("p #bar"), lineage_number("p #bar")) == ("p #bar", 1)
    assert base_of("plan #2 #3") == "plan #2"
    assert lineage_number("p #" + "9" * 5000) == 1


@pytest.mark.parametrize(
    ("candidate", "matches"),
    [
        ("p", True),
        ("p #2", True),
        ("p #12", True),
        ("p #bar", False),
        ("p #", False),
        ("p #2 ", False),
        ("p #2\n", False),
        ("p #\uff12", False),
        ("p #2 #3", False),
        ("P #2", False),
        ("p #2x", False),
    ],
)
def test_a_lineage_is_matched_by_ascii_digits_only(candidate: str, matches: bool) -> None:
    assert lineage_matches("p", candidate) is matches


def test_an_imported_title_is_matched_as_it_is() -> None:
    assert lineage_matches("p #bar", "p #bar #2")
    assert lineage_matches(" odd ", " odd ")
    assert lineage_matches("p #2", "p #2")
