"""What is masked on the way out, what is left, and what it costs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from retold.domain.errors import BadConfig, RedactionFailed
from retold.infrastructure.redaction.finding import Finder
from retold.infrastructure.redaction.redactor import Redactor
from retold.infrastructure.redaction.rules import OURS, load_rules
from retold.tests.conftest import FIXTURES
from retold.tests.redaction_set import Labelled, harmless, kinds, labelled

TOKEN = "ghp" + "_Wm4kT8vN2xR6yB0cF3hJ7qL1sD5gP9zA4eU8"
FINDER = Finder(load_rules(None))
RULES = {each.rule.name: each.rule for each in load_rules(None).each}


def changed(redactor: Redactor, **fields: Any) -> dict[str, Any]:
    return redactor("message", {"id": 7, "session_id": "s1"} | fields)


@pytest.fixture
def redactor(tmp_path: Path) -> Redactor:
    return Redactor(tmp_path)


# --- the labelled set -------------------------------------------------------------------------------


def test_at_least_32_of_36_kinds_of_secrets_are_caught() -> None:
    found = kinds()
    missed = [each.kind for each in found if any(s in FINDER.mask(each.text)[0] for s in each.secrets)]

    assert len({each.kind for each in found}) == 36
    assert all(each.secrets for each in found)
    assert len(missed) <= 36 - 32, missed
    assert missed == []  # all are today


@pytest.mark.parametrize("each", kinds(), ids=lambda each: str(each.kind))
def test_nothing_around_a_secret_goes_with_it(each: Labelled) -> None:
    masked, _ = FINDER.mask(each.text)
    before, after = each.text.split(each.secrets[0])[0], each.text.split(each.secrets[-1])[-1]

    assert masked.startswith(before)
    assert masked.endswith(after)


def test_nothing_harmless_is_changed_in_2_700_lines_of_code() -> None:
    texts = harmless()
    found = {name: rules for name, text in texts.items() if (rules := FINDER.mask(text)[1])}

    assert sum(text.count("\n") for text in texts.values()) >= 2_700
    assert found == {}


@pytest.mark.parametrize("name", RULES)
def test_each_rule_masks_its_examples_and_leaves_what_is_harmless(name: str) -> None:
    rule = RULES[name]

    assert rule.examples
    for example in rule.examples:
        _, text, secrets = labelled(name, example)
        spans = [each for each in FINDER.by_rules(text.encode()) if each.rule == name]
        assert [text.encode()[each.start : each.end].decode() for each in spans] == secrets
    for text in rule.harmless:
        assert FINDER.mask(text) == (text, [])


@pytest.mark.parametrize("text", [each.text for each in kinds()], ids=[each.kind for each in kinds()])
def test_what_was_masked_once_is_left_as_it_is(text: str) -> None:
    once, _ = FINDER.mask(text)

    assert FINDER.mask(once) == (once, [])


FAMILIES = (
    [
        (each, 10)
        for each in (
            "sk-",
            "ghp_",
            "gho_",
            "ghu_",
            "ghs_",
            "ghr_",
            "github_pat_",
            "xapp-1-",
            "xoxb-",
            "xoxp-",
        )
    ]
    + [
        (each, 10)
        for each in ("fal_", "bb_live_", "sk_live_", "sk_test_", "rk_live_", "SG.", "hf_", "r8_", "npm_")
    ]
    + [
        (each, 10)
        for each in ("pypi-", "dop_v1_", "doo_v1_", "am_", "sk_", "exa_", "gsk_", "syt_", "retaindb_")
    ]
    + [(each, 10) for each in ("mem0_", "brv_", "ntn_")]
    + [(each, 16) for each in ("pplx-", "fc-", "tvly-", "hsk-", "AKIA")]
    + [(each, 30) for each in ("AIza", "xai-", "fw-", "fw_", "fpk_", "gAAAA")]
)
"""Beginnings of keys in REFERENCE.md 5.7, and the least that has to follow."""


@pytest.mark.parametrize(("beginning", "least"), FAMILIES, ids=[each for each, _ in FAMILIES])
def test_each_family_of_keys_that_hermes_masks_is_masked(beginning: str, least: int) -> None:
    tail = ("Q7W2M5K8R3T6Y9P4" * 2)[:least]

    assert tail not in FINDER.mask(f"it is {beginning}{tail} today")[0]


@pytest.mark.parametrize(
    "name", ["apiKey", "token", "secret", "password", "access_token", "refresh_token", "auth_token", "bearer"]
)
def test_each_field_of_json_that_hermes_masks_is_masked(redactor: Redactor, name: str) -> None:
    text = json.dumps({name: "Zx9kq2LmW4a7Rt5"})

    assert "kq2LmW4a" not in changed(redactor, content=text)["content"]
    assert "kq2LmW4a" not in changed(redactor, content=f"it answered {text} twice")["content"]


@pytest.mark.parametrize(
    "text",
    [
        "пароль: Zx9kq2LmW4",
        "密码是Zx9kq2LmW4。",
        "la contraseña es Zx9kq2LmW4",
        "パスワードは「Zx9kq2LmW4」です",
        "비밀번호: Zx9kq2LmW4",
        "machine api.example.org login app password Zx9kq2LmW4",
        "mysql -u root -pZx9kq2LmW4 shop",
        "sshpass -p 'Zx9kq2LmW4' ssh host",
        "https://example.org/cb#access_token=Zx9kq2LmW4&state=1",
        "go=https%3A%2F%2Fexample.org%2F%3Ftoken%3DZx9kq2LmW4",
    ],
)
def test_what_is_said_or_typed_as_a_password_is_masked(text: str) -> None:
    assert "kq2L" not in FINDER.mask(text)[0]


@pytest.mark.parametrize(
    "text",
    [
        "ssl_keyfile_password=ssl_keyfile_password,",
        "    Token:                  '#ABB2BF',",
        "mysql -p shop2024",
        "mysql -u root -p$MYSQL_PASSWORD2 shop",
        "密码是什么? пароль: password1",
        "https://example.org/#token2=",
    ],
)
def test_what_only_stands_like_a_secret_is_left(text: str) -> None:
    assert FINDER.mask(text) == (text, [])


def test_what_stands_in_every_row_is_looked_at_once(tmp_path: Path) -> None:
    finder = Finder(load_rules(None))
    looked = list[str]()
    scan = finder._scan

    def looking(text: str) -> list[Any]:
        looked.append(text)
        return scan(text)

    finder._scan = looking
    for each in ("session_id", "user", TOKEN, "x" * 1000) * 50:
        finder.mask(each)

    assert looked.count("session_id") == 1
    assert looked.count("x" * 1000) == 50  # what is long is not kept


# --- where a secret can hide ------------------------------------------------------------------------


def test_a_secret_goes_from_any_depth_and_from_names(redactor: Redactor) -> None:
    inner = json.dumps({"deep": [{TOKEN: [f"line\n{TOKEN}"]}]})
    row = {
        "content": [{"text": TOKEN}],
        "tool_calls": [{"function": {"arguments": inner}}],
        "blob": TOKEN.encode(),
    }
    found = changed(redactor, **row)

    assert TOKEN not in str(found)
    assert json.loads(found["tool_calls"][0]["function"]["arguments"])  # still JSON
    assert TOKEN in row["tool_calls"][0]["function"]["arguments"]  # type: ignore[index] # the row is left as it is
    assert {each.field for each in redactor.report} == {
        "content[0].text",
        "tool_calls[0].function.arguments.deep[0].(name)",
        "tool_calls[0].function.arguments.deep[0].ghp_Wm...4eU8[0]",
        "blob",
    }
    assert TOKEN not in str(redactor.report)


def test_two_names_that_were_secrets_stay_two(redactor: Redactor) -> None:
    names = [f"password={letter}9kq2LmW4x7" for letter in "ab"]

    assert len(changed(redactor, content=dict.fromkeys(names, 1))["content"]) == 2


def test_a_field_named_for_a_secret_is_masked_whatever_it_looks_like(redactor: Redactor) -> None:
    found = changed(
        redactor, extra={"password": "blue otter", "token": "word", "max_tokens": 12, "apiKey": None}
    )

    assert found["extra"] == {"password": "***", "token": "word", "max_tokens": 12, "apiKey": None}


@pytest.mark.parametrize(
    "text",
    [
        f"\0 {TOKEN}",
        f"{TOKEN} # gitleaks:allow",
        f"\\n{TOKEN}",
        f"é{TOKEN}é",
        f"\ud800 {TOKEN}",
        f"세션{TOKEN}을",
    ],
)
def test_nothing_beside_a_secret_saves_it(redactor: Redactor, text: str) -> None:
    assert TOKEN not in changed(redactor, content=text)["content"]


def test_an_escape_in_json_hides_nothing_and_stays_whole(redactor: Redactor) -> None:
    token = TOKEN.replace("g", "\\u0067", 1)
    text = f'{{"a": "{token}", "password": "ab\\"9c\\\\defghijklmnopqrstuv"}}'
    found = json.loads(changed(redactor, content=text)["content"])

    assert found == {"a": "ghp_Wm...4eU8", "password": "***"}


def test_what_betterleaks_alone_knows_is_masked_too(redactor: Redactor) -> None:
    key = "AGE-SECRET-" + "KEY-1QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7LQPZRY9X8GF2TVDW0S3JN54KHCE"
    found = changed(redactor, content=f"it is {key}, twice: {key}")

    assert key not in found["content"]
    assert [(each.rule, each.count) for each in redactor.report] == [("age-secret-key", 2)]


# --- nothing leaves that was not looked through -----------------------------------------------------


def test_what_fails_fails_closed(redactor: Redactor, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_self: Finder, _text: str) -> Any:
        raise ValueError(TOKEN)

    monkeypatch.setattr(Finder, "mask", broken)
    with pytest.raises(RedactionFailed, match="refusing to export") as refused:
        changed(redactor, content="hello")

    assert (refused.value.session_id, refused.value.message_id) == ("s1", 7)
    assert TOKEN not in str(refused.value)


@pytest.mark.parametrize("value", [object(), {"a": {1, 2}}])
def test_what_cannot_be_looked_through_does_not_leave(redactor: Redactor, value: object) -> None:
    with pytest.raises(RedactionFailed):
        changed(redactor, content=value)


def test_what_is_nested_without_end_does_not_leave(redactor: Redactor) -> None:
    nested: Any = []
    for _ in range(5_000):
        nested = [nested]
    with pytest.raises(RedactionFailed):
        changed(redactor, content=nested)


# --- a file of the user's ---------------------------------------------------------------------------


def test_a_home_has_rules_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "redaction.yaml").write_text(
        "rules:\n"
        "  - {name: ticket, pattern: 'TKT-[0-9]{6}', mask: '[TICKET]'}\n"
        "without: [phone]\n"
        f"allow: [{TOKEN}]\n"
    )
    found = changed(Redactor(tmp_path), content=f"TKT-123456 +491511234567 {TOKEN}")

    assert found["content"] == f"[TICKET] +491511234567 {TOKEN}"


def test_the_configuration_names_another_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("rules: [{name: phone, pattern: 'TKT-[0-9]{6}', mask: stars}]")
    found = changed(Redactor(tmp_path, "mine.yaml"), content="TKT-123456 +491511234567")

    assert found["content"] == "*** +491511234567"  # a rule of the same name replaces ours


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rules: [{name: a, pattern: '('}]", "rule `a`: missing \\)"),
        ("rules: [{name: a, pattern: 'x*'}]", "rule `a`: its pattern finds the empty text"),
        ("rules: [{name: a, pattern: '(?=x)'}]", "rule `a`: invalid perl operator"),
        ("rules: [{name: a}]", "rule `a`: Object missing required field `pattern`"),
        ("rules: [{name: a, patern: x, pattern: x}]", "rule `a`: .*unknown field `patern`"),
        ("rules: [{name: a, pattern: x}, {name: a, pattern: y}]", "rule `a` stands there twice"),
        ("rule: []", "unknown field `rule`"),
        ("rules: [", "line 1"),
        ("rules: 5", "Expected `array`, got `int`"),
        ("rules:", "Expected `array`, got `null`"),
        ("rules: sk-demo", "Expected `array`, got `str`"),
        ("[]", "Expected `object`"),
    ],
)
def test_a_bad_file_is_refused_in_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "redaction.yaml").write_text(text)
    with pytest.raises(BadConfig, match=said) as refused:
        Redactor(tmp_path)

    assert str(tmp_path / "redaction.yaml") in refused.value.message


def test_a_file_that_is_named_and_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=r"none\.yaml cannot be read"):
        Redactor(tmp_path, "none.yaml")


@pytest.mark.parametrize("path", [OURS, FIXTURES / "redaction" / "secrets.txt"], ids=lambda each: each.name)
def test_a_scanner_of_repositories_finds_nothing_in_the_files_of_this_one(path: Path) -> None:
    from betterleaks import scan_string

    assert [each.rule_id for each in scan_string(path.read_text("utf-8")) if each.confidence == "high"] == []


# --- what it costs ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    [
        "password=", "token: ", "sk-", "a_b_c_", "x-", "-----BEGIN PRIVATE KEY-----", "curl ",
        "\n+123456789012", "https://", "eyJ.", 'password: "Zx9kq2LmW4"\n', "QUJDREVG", "\\", '{"a":', "api-", "https://a:b",
    ],
)  # fmt: skip
def test_no_text_takes_more_than_its_length_in_time(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    begun = time.process_time()
    FINDER.mask(text)

    assert time.process_time() - begun < 8  # a second or less; one that is squared takes minutes
