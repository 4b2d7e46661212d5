"""The findings of a story, one by one."""

from __future__ import annotations

from typing import Any

from retold.domain.audit import audit
from retold.domain.findings import Finding, Kind
from retold.tests.domain.worlds import DAY, MINUTE, Story

OTHER = "agent:main:telegram:dm:2"
OPEN = "open, bears the key"
LEADS = "the key leads here"
UNSEEN = "no key, so routing cannot see it"
MINUTES = MINUTE / DAY


def found(story: Story, kind: Kind) -> list[Finding]:
    findings = [finding for finding in audit(story.world()) if finding.kind == kind]
    for finding in findings:
        for each in finding.candidates:
            assert each.last_active_us == story.sessions[each.session_id].last_active_us
    return findings


def the(story: Story, kind: Kind) -> Finding:
    (finding,) = found(story, kind)
    return finding


def says(
    finding: Finding,
    about: tuple[str | None, str | None],
    detail: str,
    evidence: tuple[int, ...],
    candidates: dict[str, str],
    remedy: str,
    facts: dict[str, Any],
) -> bool:
    assert (finding.key, finding.session_id) == about
    assert finding.detail == detail
    assert finding.evidence == evidence
    assert [(each.session_id, each.verdict) for each in finding.candidates] == list(candidates.items())
    assert finding.remedy == f"retold sessions {remedy}"
    assert finding.facts == facts
    return True
