"""Verify: every kind of damage is named with its position and its cure, and nothing sound is.

Over 400 lines because it is one catalogue: a kind of damage a test, all done to one home.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from retold.domain import events as e
from retold.domain.errors import BadUsage, LogDamaged, NoSuchHome
from retold.infrastructure.home import Home
from retold.infrastructure.projector import Projector
from retold.infrastructure.rebuild import rebuild
from retold.infrastructure.verify import Verified, verify
from retold.infrastructure.verify_log import Expected
from retold.tests.infrastructure import damage
from retold.tests.infrastructure.filled import copy_of, draft, drafts, events_file, execute, fill, state_file


@pytest.fixture
def filled(home: Path) -> Path:
    fill(home)
    return home


def kinds(found: Verified) -> dict[str, list[list[int]]]:
    return {problem.kind: problem.positions for problem in found.log.problems}


def told(found: Verified) -> set[str]:
    return {problem.kind for problem in found.problems}


def rebuild_all(home: Path) -> None:
    with Home(home) as opened:
        rebuild(opened.projector, list(opened.projector.projections))


# --- sound homes ----------------------------------------------------------------------------------


def test_a_sound_home_is_clean(filled: Path) -> None:
    found = verify(filled)

    assert (found.exit_code, found.log.problems, found.problems, found.lag) == (0, [], [], 0)
    assert found.position == found.log.head.position == found.log.events == 307


def test_an_empty_home_is_clean(home: Path) -> None:
    Home(home).close()

    assert verify(home).exit_code == 0


def test_no_home_is_refused_and_nothing_is_made(home: Path) -> None:
    with pytest.raises(NoSuchHome):
        verify(home)

    assert not home.exists()


def test_lag_is_reported_as_it_was_found_and_is_no_damage(filled: Path) -> None:
    fill(filled, 20, prefix="later", fold=False)

    found = verify(filled)

    assert (found.exit_code, found.lag, found.position) == (0, 27, 307)


def test_an_index_that_trails_is_no_damage(filled: Path) -> None:
    with Home(filled) as home:
        home.log.append(drafts(10, prefix="later"))
        home.catch_up()

    assert verify(filled).problems == []


def test_an_erased_payload_that_an_event_names_is_no_damage(filled: Path) -> None:
    with Home(filled) as home:
        home.log.erase([50, 51], draft("gateway:test", 1, e.PayloadsErased([50, 51], "asked for")))
        home.catch_up()
        home.projector.settle()

    assert verify(filled).exit_code == 0


def test_an_erasure_that_is_not_folded_yet_is_no_damage(filled: Path) -> None:
    with Home(filled) as home:
        home.log.erase([50, 51], draft("gateway:test", 1, e.PayloadsErased([50, 51], "asked for")))

    found = verify(filled)

    assert (found.exit_code, found.lag) == (0, 1)


def test_nothing_is_left_behind(filled: Path) -> None:
    before = set(os.listdir(filled))
    verify(filled)

    assert set(os.listdir(filled)) - before <= {
        f"{each}.db-{tail}" for each in ("events", "state.1") for tail in ("wal", "shm")
    }


# --- the log --------------------------------------------------------------------------------------


def test_a_flipped_byte_in_a_payload_is_named_by_its_position(filled: Path) -> None:
    events_file(filled)
    execute(
        filled / "events.db",
        "UPDATE events SET payload = CAST(substr(payload, 1, 9) || x'01' || substr(payload, 11) AS BLOB)"
        " WHERE position = 57",
    )

    found = verify(filled)

    assert (found.exit_code, kinds(found)) == (5, {"payload": [[57, 57]]})
    assert "restore a backup" in found.log.problems[0].cure


def test_a_flipped_chain_value_blames_its_own_row_alone(filled: Path) -> None:
    execute(filled / "events.db", "UPDATE events SET chain = randomblob(32) WHERE position = 100")

    assert kinds(verify(filled)) == {"chain": [[100, 100]]}


def test_a_changed_column_breaks_the_chain_there(filled: Path) -> None:
    execute(filled / "events.db", "UPDATE events SET at_us = at_us + 1 WHERE position IN (100, 102, 103)")

    assert kinds(verify(filled)) == {"chain": [[100, 100], [102, 103]]}


def test_a_deleted_row_is_a_gap(filled: Path) -> None:
    execute(filled / "events.db", "DELETE FROM events WHERE position IN (20, 21, 99)")

    found = verify(filled)

    assert (found.exit_code, kinds(found)) == (5, {"gap": [[20, 21], [99, 99]]})


def test_two_swapped_rows_are_found(filled: Path) -> None:
    execute(filled / "events.db", "UPDATE events SET position = -1 WHERE position = 40")
    execute(filled / "events.db", "UPDATE events SET position = 40 WHERE position = 41")
    execute(filled / "events.db", "UPDATE events SET position = 41 WHERE position = -1")

    found = verify(filled)

    assert found.exit_code == 5
    assert kinds(found)["chain"] == [[40, 42]]


def test_an_emptied_payload_that_no_event_names_is_tampering(filled: Path) -> None:
    execute(filled / "events.db", "UPDATE events SET payload = NULL, salt = NULL WHERE position IN (30, 31)")

    found = verify(filled)

    assert (found.exit_code, kinds(found)) == (5, {"emptied": [[30, 31]]})


def test_a_rewritten_tail_is_found_by_the_head_that_was_printed(filled: Path) -> None:
    printed = verify(filled).log.head
    for path in filled.iterdir():
        path.unlink()
    fill(filled, 300, seed=2)

    expected = Expected.parse(str(printed))

    assert verify(filled).exit_code == 0
    assert kinds(verify(filled, expect=expected)) == {"expected": [[307, 307]]}
    assert not verify(filled, expect=expected).as_expected


def test_an_expected_head_may_be_cut_short_and_without_its_sign(filled: Path) -> None:
    head = verify(filled).log.head
    short = f"{head.position}:{head.chain.hex()[:8].upper()}"

    found = verify(filled, expect=Expected.parse(short))

    assert (found.exit_code, found.as_expected) == (0, True)


def test_a_head_beyond_the_end_is_expected_in_vain(filled: Path) -> None:
    found = verify(filled, expect=Expected(308, "00000000"))

    assert (found.exit_code, kinds(found)) == (5, {"expected": [[308, 308]]})


@pytest.mark.parametrize("text", ["", "#5", "5:abc", "#x:01234567", "#5:0123456g", "5", "#-1:01234567"])
def test_a_malformed_head_is_bad_usage(text: str) -> None:
    with pytest.raises(BadUsage, match="not of the form"):
        Expected.parse(text)


def test_b21_a_damaged_range_never_hides_what_follows(filled: Path) -> None:
    path = events_file(filled)
    leaves = damage.tree(path, "events").leaves
    damaged = damage.rowids(path, leaves[3])
    execute(path, "UPDATE events SET payload = zeroblob(40) WHERE position = 300")
    damage.overwrite(path, leaves[3])

    found = verify(filled)

    assert found.exit_code == 5
    assert kinds(found)["unreadable"] == [[damaged[0], damaged[-1]]]
    assert kinds(found)["payload"] == [[300, 300]]
    assert found.log.events == 307 - len(damaged)
    assert any("table events" in problem.detail for problem in found.log.problems)


def test_b21_each_torn_record_is_told_once_and_all_whole_ones_load(filled: Path) -> None:
    path = events_file(filled)
    bytes_of = dict(execute(path, "SELECT position, payload FROM events"))
    torn = {
        100: bytes_of[100][: len(bytes_of[100]) // 2] + bytes_of[101],
        200: bytes(300),
        250: bytes_of[250] + bytes_of[251],
    }
    for position, written in torn.items():
        execute(path, "UPDATE events SET payload = ? WHERE position = ?", (written, position))
    (filled / "state.db").unlink()

    with Home(filled, read_only=True) as home:
        lag = home.catch_up(wait_ms=10_000)
        ids = {row[0] for row in home.state.reader().execute("SELECT id FROM messages")}

    assert lag.damaged == [(position, position) for position in torn]
    assert ids == set(range(6, 306)) - set(torn)
    assert kinds(verify(filled))["payload"] == [[position, position] for position in torn]


def test_b21_events_after_a_damaged_range_are_still_told(filled: Path) -> None:
    path = events_file(filled)
    leaf = damage.tree(path, "events").leaves[3]
    damaged = damage.rowids(path, leaf)
    damage.overwrite(path, leaf)
    (filled / "state.db").unlink()

    with Home(filled, read_only=True) as home:
        lag = home.catch_up(wait_ms=10_000)
        ids = {row[0] for row in home.state.reader().execute("SELECT id FROM messages")}

    assert lag.events == 0
    assert lag.damaged == [(damaged[0], damaged[-1])]
    assert ids == {n for n in range(6, 306) if n not in damaged}


def test_what_was_passed_over_is_told_once_it_can_be_read_again(filled: Path) -> None:
    path = events_file(filled)
    sound = path.read_bytes()
    damage.overwrite(path, damage.tree(path, "events").leaves[3])
    (filled / "state.db").unlink()
    with Home(filled, read_only=True) as home:
        home.catch_up(wait_ms=10_000)

    path.write_bytes(sound)
    with Home(filled, read_only=True) as home:
        lag = home.catch_up(wait_ms=10_000)

    assert "can be read now" in lag.told_again["transcripts"]
    assert verify(filled).exit_code == 0


def test_a_rebuild_never_drops_what_the_log_has_lost(filled: Path) -> None:
    path = events_file(filled)
    damage.overwrite(path, damage.tree(path, "events").leaves[3])

    with Home(filled) as home:
        with pytest.raises(LogDamaged, match="stays as it is"):
            rebuild(home.projector, ["transcripts"])
        count = home.state.reader().execute("SELECT count(*) FROM messages").fetchone()

    assert count == (300,)


def test_a_rebuild_never_drops_what_is_missing_from_the_log(filled: Path) -> None:
    execute(filled / "events.db", "DELETE FROM events WHERE position BETWEEN 100 AND 120")

    with Home(filled) as home, pytest.raises(LogDamaged, match="#100-120"):
        rebuild(home.projector, ["transcripts"])


def test_a_log_restored_under_a_newer_wal_is_read_as_far_as_it_goes(home: Path, tmp_path: Path) -> None:
    fill(home, 1_000)
    older = copy_of(home / "events.db", tmp_path / "older.db").read_bytes()
    fill(home, 1_000, prefix="mid")
    events_file(home)
    with Home(home) as opened:
        opened.log.append(drafts(100, prefix="last"))
        opened.catch_up()
        wal = (home / "events.db-wal").read_bytes()
    (home / "events.db-shm").unlink(missing_ok=True)
    (home / "events.db").write_bytes(older)
    (home / "events.db-wal").write_bytes(wal)

    found = verify(home)
    with Home(home) as opened:
        with pytest.raises(LogDamaged, match="stays as it is"):
            rebuild(opened.projector, ["transcripts"])
        (home / "state.db").unlink()
        lag = opened.catch_up(wait_ms=10_000)

    assert found.exit_code == 5
    assert lag.events == 0
    assert found.log.head.position == 2_121
    assert sum(last - first + 1 for first, last in lag.damaged) == 2_121 - found.log.events


def test_b22_a_parent_that_is_missing_hides_no_message_of_its_children(home: Path) -> None:
    with Home(home) as opened:
        opened.log.append(drafts(10, sessions=1, prefix="parent"))
        child = e.SessionCreated(source="cli", parent_session_id="parent0", parent_kind="continuation")
        said = e.MessageAppended(role="user", content="the newest")
        opened.log.append([draft("session:child", 1, child), draft("session:child", 2, said)])
    execute(home / "events.db", "DELETE FROM events WHERE position = 1")
    with Home(home) as opened:
        lag = opened.catch_up()
        last = opened.state.reader().execute("SELECT session_id, content FROM messages ORDER BY id DESC")

        assert last.fetchone() == ("child", "the newest")
    assert lag.damaged == [(1, 1)]
    assert kinds(verify(home)) == {"gap": [[1, 1]]}


def test_a_damaged_index_of_the_log_is_named_and_hides_no_event(filled: Path) -> None:
    path = events_file(filled)
    leaf = damage.tree(path, "events_by_stream").leaves[0]
    damage.overwrite(path, leaf)

    found = verify(filled)

    assert (found.exit_code, found.log.events) == (5, 307)
    assert "index" in kinds(found)
    assert any("events_by_stream" in problem.detail for problem in found.log.problems)


def test_the_end_of_the_log_may_be_what_is_damaged(filled: Path) -> None:
    path = events_file(filled)
    leaf = damage.tree(path, "events").leaves[-1]
    damaged = damage.rowids(path, leaf)
    damage.overwrite(path, leaf)

    found = verify(filled)

    assert kinds(found)["unreadable"] == [[damaged[0], 307]]
    assert found.log.head.position == 307


# --- the projections ------------------------------------------------------------------------------


def test_d17_a_corrupt_segment_is_found_by_verify_and_cured_by_rebuild(filled: Path) -> None:
    path = state_file(filled)
    execute(
        path,
        "UPDATE search_data SET block = substr(block, 1, 50) || x'ffffffff' || substr(block, 55)"
        " WHERE id = (SELECT max(id) FROM search_data)",
    )
    before = verify(filled)
    rebuild_all(filled)

    assert (before.exit_code, told(before)) == (1, {"search_index"})
    assert "retold projections rebuild transcripts" in {problem.cure for problem in before.problems}
    assert before.log.ok
    assert verify(filled).exit_code == 0


def test_g5_a_damaged_page_of_the_index_degrades_search_alone(filled: Path) -> None:
    path = state_file(filled)
    damage.overwrite(path, damage.tree(path, "search_data").leaves[-1])

    found = verify(filled)

    assert (found.exit_code, found.log.ok) == (1, True)
    assert "rows" not in told(found)


def test_d14_a_row_deleted_with_another_text_than_was_indexed_is_found(filled: Path) -> None:
    execute(
        state_file(filled), "INSERT INTO search (search, rowid, text) VALUES ('delete', 50, 'another text')"
    )
    before = verify(filled)
    rebuild_all(filled)

    assert (before.exit_code, told(before)) == (1, {"search_index"})
    assert before.problems[0].positions == [[50, 50]]
    assert verify(filled).exit_code == 0


def test_d14_ghost_terms_are_found_though_every_row_is_counted(filled: Path) -> None:
    path = state_file(filled)
    size = execute(path, "SELECT sz FROM search_docsize WHERE id = 50")[0][0]
    execute(path, "INSERT INTO search (search, rowid, text) VALUES ('delete', 50, 'other')")
    execute(path, "INSERT INTO search (rowid, text) VALUES (50, 'ghost')")
    execute(path, "UPDATE search_docsize SET sz = ? WHERE id = 50", (size,))

    found = verify(filled)

    assert told(found) == {"search_index"}
    assert "term" in found.problems[0].detail


def test_d15_a_forged_checkpoint_is_found(filled: Path) -> None:
    execute(state_file(filled), "DELETE FROM messages WHERE id > 245")

    found = verify(filled)

    assert found.exit_code == 1
    assert {"rows", "search_index"} <= told(found)
    assert any("60 missing" in problem.detail for problem in found.problems)


def test_d15_a_checkpoint_that_claims_more_than_was_told_is_found(home: Path) -> None:
    with Home(home) as opened:
        opened.log.append(drafts(239))
        opened.catch_up()
        opened.log.append(drafts(761, prefix="later"))
        head = opened.log.head()
    execute(state_file(home), "UPDATE checkpoints SET position = ?, chain = ?", (head.position, head.chain))

    found = verify(home)

    assert found.exit_code == 1
    assert any("761 missing" in problem.detail for problem in found.problems)


def test_a_message_changed_by_hand_is_named(filled: Path) -> None:
    execute(state_file(filled), "UPDATE messages SET content = 'no' WHERE id = 77")

    found = verify(filled)

    assert found.exit_code == 1
    assert [[77, 77]] in [problem.positions for problem in found.problems if problem.kind == "rows"]


def test_a_session_row_changed_by_hand_is_named(filled: Path) -> None:
    execute(state_file(filled), "UPDATE sessions SET title = 'mine' WHERE id = 's2'")

    found = verify(filled)

    assert [(p.kind, p.detail.split("; ")[-1]) for p in found.problems] == [("rows", "first s2")]


def test_a_route_changed_by_hand_is_named_with_its_projection(filled: Path) -> None:
    execute(state_file(filled), "UPDATE routes SET session_id = 's4'")

    found = verify(filled)

    assert [p.cure for p in found.problems] == ["retold projections rebuild routing"]


def test_a_damaged_page_of_messages_is_named_and_cured_in_a_new_file(filled: Path) -> None:
    path = state_file(filled)
    damage.overwrite(path, damage.tree(path, "messages").leaves[4])
    before = verify(filled)
    rebuild_all(filled)

    assert before.exit_code == 1
    assert {"file", "rows"} <= told(before)
    assert state_file(filled) != path
    assert verify(filled).exit_code == 0


def test_a_file_that_is_none_is_named_and_left_as_it_is(filled: Path) -> None:
    state_file(filled).write_bytes(b"garbage" * 4000)

    found = verify(filled)

    assert (found.exit_code, told(found)) == (1, {"file"})
    assert "state.db is damaged" in found.problems[0].detail


def test_a_restored_older_log_is_no_longer_what_the_projections_were_told_from(filled: Path) -> None:
    path = events_file(filled)
    older = path.read_bytes()
    fill(filled, 30, prefix="later")
    events_file(filled)
    for tail in ("-wal", "-shm"):
        Path(f"{path}{tail}").unlink(missing_ok=True)
    path.write_bytes(older)

    found = verify(filled)

    assert (found.exit_code, told(found)) == (1, {"no_fold"})


def test_a_projection_that_was_set_aside_is_named(filled: Path) -> None:
    execute(
        state_file(filled), "UPDATE checkpoints SET detached = 'ValueError: no' WHERE projection = 'usage'"
    )

    assert [(p.kind, p.cure) for p in verify(filled).problems] == [
        ("detached", "retold projections rebuild usage")
    ]


def test_verify_goes_on_while_a_writer_does(filled: Path) -> None:
    with Home(filled) as home:

        def write(what: str, done: int, total: int) -> None:
            home.log.append(drafts(3, sessions=1, prefix=f"w{home.log.head().position}-"))
            home.catch_up()

        found = verify(filled, progress=write)

    assert (found.exit_code, found.log.events) == (0, 307)


def test_projector_is_untouched_by_verify(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Projector, wait_ms: int = 0) -> None:
        raise AssertionError

    monkeypatch.setattr(Projector, "transaction", refuse)

    assert verify(filled).exit_code == 0
