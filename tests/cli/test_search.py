"""`retold search` as a person or a program sees it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from retold.infrastructure.clock import now_us
from retold.tests.histories import DAY_US, history
from retold.tests.terminal import on_a_terminal

if TYPE_CHECKING:
    from retold.tests.conftest import Run


@pytest.fixture
def chats(home: Path) -> Path:
    now = now_us()
    with history(home) as h:
        h.session("s1", source="telegram", title="boat repair", at_us=now - 3 * DAY_US)
        h.say("s1", "the boat leaks")
        h.say("s1", "tar the boat", "assistant")
        h.session("s2", at_us=now - DAY_US // 2)
        undone = h.say("s2", "another boat\nis \x1b[2Jhere")
        h.rewind("s2", [undone])
    return home


@pytest.mark.usefixtures("chats")
def test_a_hit_has_a_heading_its_snippet_and_the_command_that_shows_it(run: Run) -> None:
    done = run("search", "boat")

    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == (
        "boat repair  2d ago  telegram  s1\n"
        "  assistant: tar the >>>boat<<<\n"
        "  retold sessions show s1  (and 1 further hit there)\n"
        "\n"
        "—  11h ago  cli  s2  [rewound]\n"
        "  user: another >>>boat<<< is [2Jhere\n"
        "  retold sessions show s2\n"
    )


def test_on_a_terminal_the_match_is_bold_and_no_text_has_power_over_it(chats: Path) -> None:
    env = {"RETOLD_HOME": str(chats), "NO_COLOR": "", "TERM": "xterm"}

    assert on_a_terminal("search", "tar", env=env) == (
        "\x1b[1mboat repair\x1b[0m  2d ago  telegram  s1\n"
        "  assistant: \x1b[1mtar\x1b[0m the boat\n"
        "  retold sessions show s1\n"
    )
    assert "\x1b[1mboat\x1b[0m is [2Jhere" in on_a_terminal("search", "another boat", env=env)
    assert ">>>tar<<<" in on_a_terminal("search", "tar", env=env | {"NO_COLOR": "1"})


@pytest.mark.parametrize("color", ["", "1"])
def test_a_hit_fits_the_terminal(home: Path, color: str) -> None:
    with history(home) as h:
        h.session("20260504_080000_b33d43d5", title="a long title " * 8)
        h.say("20260504_080000_b33d43d5", "words " * 50 + "needle " + "words " * 50, "assistant")
    env = {"RETOLD_HOME": str(home), "NO_COLOR": color, "TERM": "xterm"}
    for columns in (60, 80, 140):
        told = on_a_terminal("search", "needle", env=env, columns=columns)
        lines = told.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()

        assert max(map(len, lines)) <= columns
        assert "needle" in lines[1]
        assert ("20260504_080000_b33d43d5" in lines[0]) == (columns > 60)


@pytest.mark.usefixtures("chats")
def test_a_role_or_source_that_is_not_here_is_named(run: Run) -> None:
    role, source = run("search", "tar", "--role", "nosuch"), run("search", "tar", "--source", "nosuch")

    assert role.stderr == "no message here is of role 'nosuch'; there are: assistant, user\n"
    assert source.stderr == "no session here is of source 'nosuch'; there are: cli, telegram\n"
    assert run("search", "zebra", "--role", "user", "--source", "cli").stderr == ""


@pytest.mark.usefixtures("chats")
def test_no_hits_are_a_sentence_and_no_failure(run: Run) -> None:
    words, answer = run("search", "zebra"), run("search", "zebra", "--json")

    assert (words.exit_code, words.stdout) == (0, "Nothing was found for 'zebra'.\n")
    assert (answer.exit_code, answer.json) == (0, {"hits": [], "ranked_over": 0})


@pytest.mark.usefixtures("chats")
def test_a_title_that_was_meant_is_pointed_to(run: Run) -> None:
    done = run("search", "repair")

    assert done.stdout == "Nothing was found for 'repair'.\n"
    assert done.stderr == "'boat repair' has it in its title: retold sessions show s1\n"


@pytest.mark.usefixtures("chats")
def test_words_need_no_quotes_and_what_looks_like_an_option_is_a_word(run: Run, home: Path) -> None:
    with history(home) as h:
        h.session("s3")
        h.say("s3", "git push --force -x")

    assert run("search", "tar", "boat").stdout.startswith("boat repair")
    for query in (["--force"], ["-x"], ["push", "--force"], ["--", "--force"]):
        assert "retold sessions show s3" in run("search", *query).stdout


@pytest.mark.usefixtures("chats")
def test_a_slip_in_an_option_is_not_searched_for(run: Run) -> None:
    done = run("search", "boat", "--limt", "3")

    assert done.exit_code == 2
    assert "Did you mean '--limit'?" in done.stderr


@pytest.mark.usefixtures("chats")
def test_what_is_left_is_told_with_the_option_that_shows_it(run: Run) -> None:
    first, second = run("search", "boat", "--limit", "1"), run("search", "boat", "--offset", "1")

    assert first.stderr == "\n1 more conversation: --offset 1\n"
    assert second.stdout.startswith("—")
    assert (
        run("search", "boat", "--offset", "7").stdout == "Nothing was found for 'boat' beyond the first 7.\n"
    )


@pytest.mark.usefixtures("chats")
def test_a_home_named_by_hand_is_named_in_the_command(run: Run, home: Path) -> None:
    done = run("search", "tar", "--home", home)

    assert f"retold sessions show s1 --home {home}\n" in done.stdout.replace("  (and", "\n")


@pytest.mark.usefixtures("chats")
def test_search_as_of_a_position_knows_nothing_later(run: Run) -> None:
    assert run("search", "boat", "--at", "#3", "--json").json["ranked_over"] == 1


def test_options_narrow_and_order(run: Run, home: Path) -> None:
    with history(home) as h:
        h.session("a", source="cli")
        h.say("a", "needle")
        h.say("a", "needle", "assistant")
        h.session("b", source="telegram")
        h.say("b", "needle")

    def found(*options: str) -> list[tuple[str, int]]:
        hits = run("search", "needle", *options, "--json").json["hits"]
        return [(each["session_id"], each["more"]) for each in hits]

    assert found("--sort", "oldest") == [("a", 1), ("b", 0)]
    assert found("--sort", "newest") == [("b", 0), ("a", 1)]
    assert found("--source", "cli") == [("a", 1)]
    assert found("--role", "assistant") == [("a", 0)]
    assert run("search", "needle", "--sort", "best").exit_code == 2
