"""A text is taken out of a payload however it is written there, and what is left reads on."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from retold.domain import events as e
from retold.domain.masking import MASK, Masker, emptied_calls

letters = st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Mn", "Mc", "Me"))
secrets = st.text(letters | st.sampled_from('"\\/\n\t'), min_size=4, max_size=12)


def nested(text: str, depth: int, ascii_only: bool) -> str:
    for _ in range(depth):
        text = json.dumps({"a": [text]}, ensure_ascii=ascii_only)
    return text


@given(secrets, st.integers(0, 4), st.booleans())
@example('qz7secretq9 鍵"\\', 4, True)
@example("🛶🛶🛶🛶", 3, True)
@example("\u0344\u0344aé", 2, False)
def test_however_deep_in_json_it_is_found_and_the_json_stays_json(
    secret: str, depth: int, ascii_only: bool
) -> None:
    text = nested(f"before {secret} after", depth, ascii_only)
    payload = e.MessageAppended("user", text)
    masker = Masker(secret)
    masked = masker.masked(payload)

    assert masker.holds(msgspec.msgpack.encode(payload))
    assert masked != payload
    found: Any = masked.content
    for _ in range(depth):
        found = json.loads(found)["a"][0]
    assert MASK in found
    assert secret not in found


@given(secrets, st.text(letters, max_size=30))
def test_what_does_not_hold_it_stays_as_it_is(secret: str, text: str) -> None:
    payload = e.MessageAppended("user", text, seen=b"digest", columns={"n": 5, "t": text})
    forms = {unicodedata.normalize(form, secret) for form in ("NFC", "NFD")} | {secret}
    if any(each in text for each in forms):
        return
    masker = Masker(secret)

    assert not masker.holds(msgspec.msgpack.encode(payload))


def test_composed_or_not_it_is_the_same_text() -> None:
    written = "caf\u00e9 noir"
    for other in (unicodedata.normalize("NFD", written), written):
        masked = Masker(written).masked(e.MessageAppended("user", f"a {other}!"))

        assert masked.content == f"a {MASK}!"


def test_names_of_things_are_left_and_told() -> None:
    payload = e.SessionCreated("telegram", session_key="agent:main:telegram:dm:483921", chat_id="483921")
    masker = Masker("483921")
    masked = masker.masked(payload)

    assert masked.session_key == payload.session_key
    assert (masked.chat_id, masker.named) == (MASK, {"session_key"})


def test_a_digest_that_it_could_be_guessed_from_goes() -> None:
    masked = Masker("483921").masked(e.MessageAppended("user", "483921", seen=b"digest"))

    assert (masked.content, masked.seen) == (MASK, None)


@pytest.mark.parametrize(
    ("calls", "left"),
    [
        (
            [{"id": "c1", "type": "function", "function": {"name": "pay", "arguments": '{"pin": 1}'}}],
            [{"id": "c1", "type": "function", "function": {"name": "pay", "arguments": "{}"}}],
        ),
        ([{"id": "c1", "extra": [1, 2], "n": 5}], [{"id": "c1", "extra": [], "n": None}]),
        ("no list", []),
    ],
)
def test_calls_keep_what_their_results_belong_to(calls: object, left: object) -> None:
    assert json.loads(emptied_calls(json.dumps(calls))) == left
