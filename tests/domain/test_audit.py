"""What audit finds and, as important, what it leaves alone.

Over 400 lines because it is one table: each kind of finding has a section, with what it leaves alone.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from retold.domain.audit import Finding, Kind, audit, explain
from retold.domain.facts import ConflictFacts, World, keyless_by_nature
from retold.tests.domain.worlds import DAY, K, Story, world_of

FIXTURE = Path(__file__).resolve().parent.parent / "fixtures" / "hermes-home"
TRUTH: dict[str, dict[str, Any]] = json.loads((FIXTURE / "truth.json").read_text())["incident"]
SOUND = ["resumed_on_purpose", "resumed_and_silent", "thread", "slept"]


@pytest.fixture(scope="module")
def fixture_world(tmp_path_factory: pytest.TempPathFactory) -> World:
    home = tmp_path_factory.mktemp("home")
    shutil.copy(FIXTURE / "state.db", home / "state.db")
    return world_of(home)


@pytest.fixture
def story() -> Story:
    return Story()


def found(story: Story, **more: Any) -> list[Finding]:
    return audit(story.world(**more))


def kinds(story: Story, **more: Any) -> list[Kind]:
    return [finding.kind for finding in found(story, **more)]


def the(kind: Kind, findings: list[Finding]) -> Finding:
    one = [finding for finding in findings if finding.kind == kind]

    assert len(one) == 1, findings
    return one[0]


def ids_in(truth: dict[str, Any]) -> Iterator[str]:
    for name, value in truth.items():
        if name not in ("kind", "evidence", "adopts_key", "key"):
            yield from [value] if isinstance(value, str) else value if isinstance(value, list) else []


# --- the fixture -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, truth in TRUTH.items() if "kind" in truth])
def test_every_incident_is_found_with_the_sessions_it_names(name: str, fixture_world: World) -> None:
    truth = TRUTH[name]
    findings = [finding for finding in audit(fixture_world) if finding.kind == truth["kind"]]
    text = {msgspec.json.encode(finding).decode() for finding in findings}
    about = [finding for finding in text if any(session_id in finding for session_id in ids_in(truth))]

    assert about
    for session_id in ids_in(truth):
        assert any(session_id in finding for finding in about)


@pytest.mark.parametrize("name", [name for name, truth in TRUTH.items() if "adopts_key" in truth])
def test_an_orphan_is_found_under_the_key_that_it_would_take(name: str, fixture_world: World) -> None:
    truth = TRUTH[name]
    orphans = truth.get("orphans") or [truth["orphan"]]
    findings = [f for f in audit(fixture_world) if f.kind == "stranded" and f.session_id in orphans]

    assert [finding.key for finding in findings] == [truth["adopts_key"]] * len(orphans)


def test_sound_chats_and_all_other_sessions_are_not_reported(fixture_world: World) -> None:
    damaged = {i for n, t in TRUTH.items() if n not in SOUND and "kind" in t for i in ids_in(t)}
    text = msgspec.json.encode(audit(fixture_world)).decode()
    reported = {session_id for session_id in fixture_world.sessions if session_id in text}

    assert reported <= damaged


def test_a_second_history_does_not_hide_the_jump(fixture_world: World) -> None:
    truth = TRUTH["second_history"]
    jump = next(f for f in audit(fixture_world) if f.session_id == truth["orphan"])

    assert jump.kind == "jumped_back"
    assert jump.facts["second_history"] == 1
    assert jump.facts["leads_to"] == truth["routed_to_now"]
    assert "two histories" in jump.detail


def test_findings_have_evidence_and_a_command_that_exists(fixture_world: World) -> None:
    findings = audit(fixture_world)

    assert len({(f.kind, f.key, f.session_id) for f in findings}) == len(findings)
    for finding in findings:
        assert finding.evidence
        assert finding.evidence == tuple(sorted(set(finding.evidence)))
        assert finding.remedy.startswith(
            (
                "retold sessions repair-routing --apply ",
                "retold sessions route ",
                "retold sessions unroute ",
                "retold sessions continuation ",
            )
        )


def test_why_tells_of_a_jump_and_of_each_candidate(fixture_world: World) -> None:
    told = explain(fixture_world, "agent:main:telegram:dm:1001")
    truth = TRUTH["lineage"]
    verdicts = {candidate.session_id: candidate.verdict for candidate in told.candidates}

    assert told.route is not None
    assert told.route.session_id == truth["routed_to_now"]
    assert told.sessions == (truth["routed_to_now"], truth["predecessor"], truth["orphan"])
    assert [finding.kind for finding in told.findings] == ["jumped_back", "stranded"]
    assert "leads here" in verdicts[truth["routed_to_now"]]
    assert truth["orphan"] in verdicts[truth["predecessor"]]
    assert "no key" in verdicts[truth["orphan"]]


def test_why_of_a_key_tells_of_orphans_that_could_be_its_own(fixture_world: World) -> None:
    told = explain(fixture_world, "agent:main:matrix:dm:!room:example.org")

    assert {f.session_id for f in told.findings} == set(TRUTH["two_claimants"]["orphans"])


# --- jumped_back -----------------------------------------------------------------------------------


def test_a_chat_that_moved_forward_is_sound(story: Story) -> None:
    story.talk("old", K, 1, 2, ended=3, end_reason="session_reset")
    story.talk("new", K, 3, 4)
    story.route(K, "new")

    assert kinds(story) == []


def test_a_reset_that_left_the_old_session_open_is_sound(story: Story) -> None:
    story.talk("old", K, 1, 2)
    story.talk("new", K, 3, 4)
    story.route(K, "new")

    assert kinds(story) == []


def test_a_key_that_leads_past_a_later_session_jumped_back(story: Story) -> None:
    story.talk("old", K, 1, 2)
    story.talk("new", K, 3, 4, end_reason="agent_close", ended=5)
    story.route(K, "old")
    jump = the("jumped_back", found(story))

    assert (jump.key, jump.session_id, jump.facts["leads_to"]) == (K, "new", "old")
    assert {candidate.session_id for candidate in jump.candidates} == {"old", "new"}


def test_a2_a_session_that_started_later_but_lay_idle_is_a_jump_too(story: Story) -> None:
    story.talk("busy", K, 1, 2, 5)
    story.talk("idle", K, 3)
    story.route(K, "idle")

    assert the("jumped_back", found(story)).session_id == "busy"


def test_an_answer_that_came_late_is_no_jump(story: Story) -> None:
    story.talk("old", K, 1, 2.0001)
    story.talk("new", K, 2, 2.1)
    story.route(K, "new")

    assert kinds(story) == []


@pytest.mark.parametrize("days", [(1, 2), (1, 2, 9)])
def test_a_resume_explains_it_with_or_without_a_word_since(story: Story, days: tuple[float, ...]) -> None:
    story.talk("old", K, *days)
    story.talk("new", K, 3, 4, ended=5, end_reason="session_switch")
    story.route(K, "old")

    assert kinds(story) == []


def test_resumes_back_and_forth_are_sound(story: Story) -> None:
    story.talk("a", K, 1, 4, 8)
    story.talk("b", K, 2, 6, ended=7, end_reason="session_switch")
    story.talk("c", K, 3, 3.5, ended=3.8, end_reason="session_switch")
    story.route(K, "a")

    assert kinds(story) == []


def test_a_resume_explains_what_had_been_left_before_it(story: Story) -> None:
    story.talk("a", K, 1)
    story.talk("b", K, 2, 3, ended=3.1, end_reason="agent_close")
    story.talk("c", K, 4, ended=5, end_reason="session_switch")
    story.route(K, "a")

    assert kinds(story) == []


def test_a_jump_after_a_resume_is_not_explained_by_it(story: Story) -> None:
    story.talk("a", K, 1, 4)
    story.talk("b", K, 2, ended=3, end_reason="session_switch")
    story.talk("c", K, 5, 6)
    story.route(K, "a")

    assert the("jumped_back", found(story)).session_id == "c"


def test_a_jump_is_found_after_the_old_session_was_compressed_again(story: Story) -> None:
    story.talk("old", K, 1, 2, 9, ended=10, end_reason="compression")
    story.talk("old2", K, 10, 11, parent_id="old", parent_kind="continuation")
    story.talk("new", K, 3, 4)
    story.route(K, "old2")

    assert the("jumped_back", found(story)).session_id == "new"


def test_an_orphan_deep_in_a_chain_of_orphans_is_found(story: Story) -> None:
    story.talk("old", K, 1)
    story.talk("b", K, 2, ended=3, end_reason="compression")
    story.talk("c", None, 3, ended=4, end_reason="compression", parent_id="b", parent_kind="continuation")
    story.talk("d", None, 4, 5, parent_id="c", parent_kind="continuation")
    story.route(K, "old")
    findings = found(story)
    deep = next(f for f in findings if f.kind == "stranded" and f.session_id == "d")

    assert the("jumped_back", findings).session_id == "d"
    assert (deep.key, [c.session_id for c in deep.candidates]) == (K, ["b"])
    assert deep.remedy == "retold sessions repair-routing --apply c"
    assert the("jumped_back", findings).remedy == f"retold sessions route {K} d"


def test_a_key_back_at_the_compressed_parent_jumped_back(story: Story) -> None:
    story.talk("b", K, 2, ended=3, end_reason="compression")
    story.talk("c", None, 3, 5, parent_id="b", parent_kind="continuation")
    story.route(K, "b")

    assert kinds(story) == ["jumped_back", "stranded"]


def test_a_key_back_at_a_parent_that_was_opened_again_jumped_back(story: Story) -> None:
    """The end is gone, so the child is of no kind; that the entry was touched shows the way."""
    story.talk("b", K, 2)
    story.talk("c", None, 3, 5, parent_id="b", parent_kind="child")
    story.route(K, "b", created=2, updated=3)

    assert kinds(story) == ["jumped_back", "stranded"]


def test_a_second_history_in_the_parent_itself_is_found(story: Story) -> None:
    story.talk("b", K, 2, 9)
    story.talk("c", None, 3, 5, parent_id="b", parent_kind="child")
    story.route(K, "b", created=2, updated=9)

    assert kinds(story) == ["jumped_back", "stranded"]


def test_a_child_beside_its_parent_is_only_stranded(story: Story) -> None:
    story.talk("b", K, 2, 3.5, 6)
    story.talk("c", None, 3, 4, parent_id="b", parent_kind="child")
    story.route(K, "b", created=2, updated=6)

    assert kinds(story) == ["stranded"]


def test_an_orphan_of_a_key_that_never_moved_is_only_stranded(story: Story) -> None:
    story.talk("d", K, 1)
    story.talk("o", None, 1.001, 2)
    story.route(K, "d", created=1, updated=1)
    one = the("stranded", found(story))

    assert kinds(story) == ["stranded"]
    assert (one.key, one.session_id) == (K, "o")


def test_an_entry_read_in_another_zone_did_not_move(story: Story) -> None:
    """Hermes' entries name no zone: two hours off is not made anew."""
    story.talk("d", K, 1)
    story.talk("o", None, 1.001, 2)
    story.route(K, "d", created=1 + 2 / 24, updated=1 + 2 / 24)

    assert kinds(story) == ["stranded"]


def test_an_orphan_of_a_key_that_came_anew_to_its_predecessor_is_a_jump(story: Story) -> None:
    story.talk("d", K, 1)
    story.talk("o", None, 1.001, 2)
    story.route(K, "d", created=3, updated=3)

    assert kinds(story) == ["jumped_back", "stranded"]


def test_an_orphan_with_one_candidate_elsewhere_jumped_back(story: Story) -> None:
    story.talk("old", K, 1)
    story.talk("d", K, 3, ended=3.0001, end_reason="agent_close")
    story.talk("o", None, 3.001, 4)
    story.route(K, "old")

    assert the("jumped_back", found(story)).session_id == "o"


def test_a_session_that_lost_its_key_is_still_of_the_chat(story: Story) -> None:
    story.talk("old", K, 1)
    story.talk("new", None, 3, 4, lost_key=K, lost_position=77)
    story.route(K, "old")
    findings = found(story)

    assert the("jumped_back", findings).session_id == "new"
    assert 77 in the("identity_lost", findings).evidence
    assert "stranded" in [finding.kind for finding in findings]


@pytest.mark.parametrize("cause", ["reset", "idle", "daily", "resume", "handoff", "repair"])
def test_a_route_on_record_explains_where_the_key_leads(story: Story, cause: str) -> None:
    story.talk("old", K, 1)
    story.talk("new", K, 2, 3)
    story.route(K, "new", 2, "first_message")
    story.route(K, "old", 4, cause, previous_id="new")

    assert kinds(story) == []


def test_a_recovery_on_record_that_chose_the_older_one_is_a_jump(story: Story) -> None:
    story.talk("old", K, 1, 6)
    story.talk("new", K, 2, 3, 7)
    story.route(K, "new", 2, "first_message")
    story.route(K, "old", 4, "recovery", previous_id="new")
    jump = the("jumped_back", found(story))

    assert (jump.session_id, jump.facts["belongs_last_us"]) == ("new", 3 * DAY)


def test_a_recovery_is_not_explained_by_the_resume_before_it(story: Story) -> None:
    story.talk("old", K, 1)
    story.talk("chosen", K, 2, 3)
    story.talk("left", K, 4, ended=5, end_reason="session_switch")
    story.route(K, "chosen", 5, "resume", previous_id="left")
    story.route(K, "old", 6, "recovery", previous_id="chosen")

    assert the("jumped_back", found(story)).session_id == "chosen"


def test_a_recovery_of_the_most_recent_one_is_sound(story: Story) -> None:
    story.talk("old", K, 1, 3)
    story.talk("new", K, 2, 2.5, 9)
    story.route(K, "old", 4, "recovery", previous_id="new")

    assert kinds(story) == []


def test_a_route_seen_elsewhere_by_an_earlier_import_is_on_record(story: Story) -> None:
    story.talk("old", K, 1)
    story.talk("new", None, 2, 3)
    story.route(K, "new", 4)
    story.route(K, "old", 5, previous_id="new")

    assert the("jumped_back", found(story)).session_id == "new"


def test_a_closed_route_leads_nowhere(story: Story) -> None:
    story.talk("old", K, 1)
    story.talk("new", K, 2, 3)
    story.route(K, "old", 4, closed=True)

    assert kinds(story) == []
    assert explain(story.world(), K).route is None


def test_runs_of_cron_and_delegates_under_a_key_are_no_rivals(story: Story) -> None:
    story.talk("talk", K, 1)
    story.talk("run", K, 2, 3, source="cron", ended=3, end_reason="cron_complete")
    story.talk("other run", None, 2, 3, source="cron")
    story.talk("part", K, 2, 3, parent_id="talk", parent_kind="delegate")
    story.route(K, "talk")

    assert kinds(story) == []


def test_a_branch_without_a_key_is_no_rival_and_not_stranded(story: Story) -> None:
    story.talk("talk", K, 1)
    story.talk("branch", None, 2, 3, parent_id="talk", parent_kind="branch")
    story.route(K, "talk")

    assert kinds(story) == []


def test_a_branch_that_bore_the_key_later_is_a_rival(story: Story) -> None:
    story.talk("talk", K, 1)
    story.talk("branch", K, 2, 3, parent_id="talk", parent_kind="branch")
    story.route(K, "talk")

    assert the("jumped_back", found(story)).session_id == "branch"


def test_sessions_without_a_word_are_no_rivals(story: Story) -> None:
    story.talk("talk", K, 1)
    story.talk("empty", K, began=2)
    story.route(K, "talk")

    assert kinds(story) == []


def test_an_open_silent_session_is_no_finding(story: Story) -> None:
    story.talk("talk", K, 1, 400)
    story.route(K, "talk", created=1, updated=1)

    assert kinds(story) == []


def test_another_chat_is_no_rival(story: Story) -> None:
    story.talk("talk", K, 1)
    story.talk("other", "agent:main:telegram:dm:2", 2, 3)
    story.route(K, "talk")
    story.route("agent:main:telegram:dm:2", "other")

    assert kinds(story) == []


def test_cyclic_and_missing_parents_do_no_harm(story: Story) -> None:
    story.talk("a", None, 1, parent_id="b", parent_kind="continuation")
    story.talk("b", None, 2, parent_id="a", parent_kind="continuation")
    story.talk("c", K, 3, parent_id="nowhere", parent_kind="continuation")
    story.talk("self", None, 4, parent_id="self", parent_kind="child")
    story.route(K, "c")
    findings = found(story)

    assert {(f.kind, f.session_id) for f in findings} == {
        ("stranded", "a"),
        ("stranded", "b"),
        ("stranded", "self"),
    }


# --- reset_undone, routed_to_ended, dangling_route ----------------------------------------------


def test_a4_a_reset_of_the_key_fences_what_is_older(story: Story) -> None:
    story.talk("old", K, 1)
    story.talk("new", K, 2, 20, ended=26, end_reason="session_reset")
    story.route(K, "old")
    undone = the("reset_undone", found(story))

    assert (undone.session_id, undone.facts["fence"]) == ("old", "new")
    assert kinds(story) == ["reset_undone"]


def test_a_key_that_leads_back_to_what_a_reset_left_is_found_though_the_old_session_was_opened_again() -> (
    None
):
    """Nothing was said in the new one, and the end of the old one is gone: the route still tells."""
    story = Story()
    story.talk("old", K, 1, 2)
    story.talk("new", K, began=3)
    story.route(K, "old", at=1, cause="first_message")
    story.route(K, "new", at=3, cause="reset", previous_id="old")
    story.route(K, "old", at=4, cause="recovery", previous_id="new")

    undone = the("reset_undone", found(story))
    assert undone.session_id == "old"
    assert "a reset of this chat had left for new" in undone.detail


def test_a_resume_of_what_a_reset_left_is_a_persons_choice() -> None:
    story = Story()
    story.talk("old", K, 1, 2)
    story.talk("new", K, began=3)
    story.route(K, "old", at=1, cause="first_message")
    story.route(K, "new", at=3, cause="reset", previous_id="old")
    story.route(K, "old", at=4, cause="resume", previous_id="new")

    assert kinds(story) == []


def test_words_after_it_do_not_hide_an_undone_reset(story: Story) -> None:
    story.talk("old", K, 1, 30)
    story.talk("new", K, 2, 20, ended=26, end_reason="new_session")
    story.route(K, "old")

    assert kinds(story) == ["reset_undone"]


def test_a_resume_after_the_reset_explains_it(story: Story) -> None:
    story.talk("old", K, 1)
    story.talk("new", K, 2, 20, ended=26, end_reason="session_reset")
    story.talk("newest", K, 26, 27, ended=28, end_reason="session_switch")
    story.route(K, "old")

    assert kinds(story) == []


def test_the_session_after_a_reset_undoes_nothing(story: Story) -> None:
    story.talk("old", K, 1, ended=2, end_reason="daily")
    story.talk("new", K, began=2)
    story.route(K, "new", 2, "daily", previous_id="old")

    assert kinds(story) == []


def test_an_old_session_reset_late_undoes_nothing(story: Story) -> None:
    """A sweep ends what had long been left; the key was elsewhere by then."""
    story.talk("old", K, 1, 2, ended=9, end_reason="session_reset")
    story.talk("new", K, 3, 8)
    story.route(K, "new")

    assert kinds(story) == []


def test_a_key_that_leads_to_a_reset_session_is_found(story: Story) -> None:
    story.talk("talk", K, 1, ended=2, end_reason="session_reset")
    story.route(K, "talk")

    assert kinds(story) == ["routed_to_ended"]


@pytest.mark.parametrize(
    ("cause", "ended_position", "expected"),
    [
        ("first_message", 900, []),  # it ended here: the next message begins a new one
        ("import", 900, ["routed_to_ended"]),
        ("recovery", 2, ["routed_to_ended"]),  # it was led there after the end
    ],
)
def test_a1_an_end_here_that_leaves_the_key_is_no_fault(
    story: Story, cause: str, ended_position: int, expected: list[str]
) -> None:
    story.talk("talk", K, 1, ended=2, end_reason="session_reset", ended_position=ended_position)
    story.route(K, "talk", cause=cause)

    assert kinds(story) == expected


@pytest.mark.parametrize("reason", ["agent_close", "compression", "superseded_by_repair", "new one"])
def test_a_key_that_leads_to_a_softly_ended_session_is_sound(story: Story, reason: str) -> None:
    story.talk("talk", K, 1, ended=2, end_reason=reason)
    story.route(K, "talk")

    assert kinds(story) == []


def test_a_route_to_nowhere_names_the_last_known_session(story: Story) -> None:
    story.talk("one", K, 1)
    story.talk("two", K, 2)
    story.route(K, "nowhere")
    dangling = the("dangling_route", found(story))

    assert (dangling.key, dangling.session_id, dangling.facts["last_known"]) == (K, "nowhere", "two")


def test_a_route_to_a_session_that_the_source_lost_is_dangling(story: Story) -> None:
    story.talk("gone", K, 1, source_gone=True)
    story.route(K, "gone")

    assert kinds(story) == ["dangling_route"]


# --- lineage and identity -------------------------------------------------------------------------


def test_two_continuations_are_one_finding_and_no_jump(story: Story) -> None:
    story.talk("p", K, 1, ended=2, end_reason="compression")
    story.talk("x", K, 2, parent_id="p", parent_kind="continuation")
    story.talk("y", K, 3, 4, parent_id="p", parent_kind="continuation")
    story.route(K, "x")
    twins = the("two_continuations", found(story))

    assert kinds(story) == ["two_continuations"]
    assert (twins.key, twins.session_id, twins.facts["most_recent"]) == (K, "p", "y")


@pytest.mark.parametrize(
    "identity",
    [
        {"key": "agent:main:telegram:dm:9"},
        {"key": K, "chat_id": "9"},
        {"key": K, "user_id": "9", "chat_type": "dm"},
    ],
)
def test_a_continuation_of_another_identity_is_crossed(story: Story, identity: dict[str, Any]) -> None:
    identity = dict(identity)
    key = identity.pop("key")
    story.talk("p", K, 1, ended=2, end_reason="compression", chat_id="1001", user_id="501")
    story.talk("c", key, 2, parent_id="p", parent_kind="continuation", **identity)

    assert kinds(story) == ["crossed_key"]


def test_a_thread_shared_by_two_people_is_not_crossed(story: Story) -> None:
    room = "agent:main:telegram:group:-1:42"
    told: dict[str, Any] = {"chat_id": "-1", "chat_type": "group", "thread_id": "42"}
    story.talk("p", room, 1, ended=2, end_reason="compression", user_id="503", **told)
    story.talk("c", room, 2, parent_id="p", parent_kind="continuation", user_id="504", **told)
    story.route(room, "c")

    assert kinds(story) == []


def test_a_continuation_that_lost_its_identity_is_not_crossed(story: Story) -> None:
    story.talk("p", K, 1, ended=2, end_reason="compression", chat_id="1001")
    story.talk("c", None, 2, parent_id="p", parent_kind="continuation")

    assert kinds(story) == ["stranded"]


def test_a_conflict_with_the_source_is_one_finding_a_session(story: Story) -> None:
    story.talk("s", K, 1)
    story.conflicts += [
        ConflictFacts(session_id="s", column="title", ours="a", theirs="b", position=5),
        ConflictFacts(session_id="s", column="archived", ours="1", theirs="0", position=6),
    ]
    conflict = the("source_conflict", found(story))

    assert (conflict.session_id, conflict.evidence) == ("s", (5, 6))
    assert (conflict.facts["ours_title"], conflict.facts["theirs_title"]) == ("a", "b")


# --- stranded ------------------------------------------------------------------------------------------


def test_sources_that_never_have_keys_are_not_stranded(story: Story) -> None:
    story.talk("keyed", K, 1)
    story.talk("shell", None, 1.001, 2, source="cli")
    story.talk("run", None, 1.001, 2, source="cron")
    story.route(K, "keyed")
    world = story.world()

    assert audit(world) == []
    assert keyless_by_nature(world, "cli")
    assert not keyless_by_nature(world, "telegram")


def test_a_run_that_reports_to_a_chat_makes_no_keyed_source_of_cron(story: Story) -> None:
    story.talk("run", K, 1, source="cron")

    assert keyless_by_nature(story.world(), "cron")


def test_a_source_whose_only_key_was_lost_is_a_keyed_one(story: Story) -> None:
    story.talk("new", None, 3, lost_key=K)

    assert set(kinds(story)) == {"identity_lost", "stranded"}


def test_an_orphan_out_of_the_window_gets_the_window_that_would_do(story: Story) -> None:
    story.talk("d", K, 1)
    story.talk("o", None, 1 + 2400 / 86400, 2)
    one = the("stranded", found(story))

    assert (one.key, one.facts["last_keyed"]) == (None, "d")
    assert [(each.session_id, each.verdict) for each in one.candidates] == [
        ("d", "fell quiet 2400 s before it began; outside the window")
    ]
    assert one.remedy == "retold sessions repair-routing --apply o --max-gap-seconds 2400"
    assert found(story, gap_seconds=2400)[0].key == K


def test_a_chat_outside_the_window_of_a_stranded_session_is_sound(story: Story) -> None:
    story.talk("d", K, 1)
    story.route(K, "d")
    story.talk("o", None, 5)

    assert explain(story.world(), K).findings == ()


def test_two_that_claim_one_predecessor_name_each_other_and_it(story: Story) -> None:
    story.talk("d", K, 1)
    story.talk("one", None, 1 + 60 / 86400, 2)
    story.talk("two", None, 1 + 120 / 86400, 2)
    first, second = found(story)

    assert [each.session_id for each in (*first.candidates, *second.candidates)] == ["d", "d"]
    assert [each.session_id for each in (*first.rivals, *second.rivals)] == ["two", "one"]
    assert "It could go on from d, and so could two." in first.detail


def test_a_remedy_spells_out_what_would_harm_a_terminal(story: Story) -> None:
    story.talk("d", K, 1)
    story.talk("o\x1b[31m\n", None, 1.0001, 2)
    story.talk("other", None, 1.0002, 2)

    remedy = r"retold sessions repair-routing --apply $'o\x1b[31m\n' --from SESSION"
    assert found(story)[0].remedy == remedy


def test_empty_and_vanished_sessions_are_not_stranded(story: Story) -> None:
    story.talk("keyed", K, 1)
    story.talk("empty", None, began=1.001)
    story.talk("vanished", None, 5, source_gone=True)
    story.talk("tool", None, 5, source="tool")

    assert kinds(story) == []
