"""How `retold audit` reads: what was found, kind by kind, and what to run next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ...domain.audit import Finding
from ...domain.facts import World
from ...domain.keys import describe
from ..output import cell_width, plural, visible
from ..paragraphs import ranges, short, text_width, wrap
from .verdicts import headline, verdict


def lines(
    world: World, findings: Sequence[Finding], chats: int, *, now_us: int, home: str = ""
) -> Iterator[str]:
    """Every finding, a short block each, then the counts."""
    if not findings:
        yield f"{plural(chats, 'chat')}, no findings"
        return
    width = text_width()
    jumped = {each.session_id: each.key for each in findings if each.kind == "jumped_back"}
    kinds: Counter[str] = Counter(each.kind for each in findings)
    for kind, count in kinds.items():
        yield f"{headline(kind)} ({count})"
        for finding in (each for each in findings if each.kind == kind):
            again = kind == "stranded" and finding.session_id in jumped
            yield from _block(world, finding, now_us, width, home, jumped_back=again)
        yield ""
    yield from _closing(findings, kinds, chats, width, home)


def _block(
    world: World, finding: Finding, now_us: int, width: int, home: str, *, jumped_back: bool = False
) -> Iterator[str]:
    yield from _who(world, finding, width)
    text = verdict(finding, world, now_us).removeprefix(f"{headline(finding.kind)}: ")
    if jumped_back:
        text = "the talk that a chat jumped back from, above."
    said = f"{text[:1].upper()}{text[1:]} ({ranges(finding.evidence)})"
    yield from (f"    {line}" for line in wrap(said, width - 4))
    yield f"    → {visible(finding.remedy)}{home}"


def _who(world: World, finding: Finding, width: int) -> Iterator[str]:
    """The chat, or the session where there is none, and the key or id at the right."""
    session = world.sessions.get(finding.session_id or "")
    if finding.key is not None:
        bears = [each for each in world.by_key.get(finding.key, []) if each.user_id]
        known = bears[-1] if bears else None
        left = describe(
            finding.key,
            user_id=known.user_id if known else None,
            thread_id=known.thread_id if known else None,
        )
        right = finding.key
    elif session is not None:
        left = short(session.title or f"a {session.source} session", 40)
        right = session.id
    else:
        left, right = finding.session_id or "the store", ""
    left, right = visible(left), visible(right)
    gap = width - 2 - cell_width(left) - cell_width(right)
    if left == right or not right:
        yield f"  {left}"
    elif gap >= 2:
        yield f"  {left}{' ' * gap}{right}"
    else:
        yield from (f"  {short(left, width - 2)}", f"  {right}")


def _closing(
    findings: Sequence[Finding], kinds: Counter[str], chats: int, width: int, home: str
) -> Iterator[str]:
    counted = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in kinds.items())
    yield from wrap(f"{plural(len(findings), 'finding')} in {plural(chats, 'chat')}: {counted}.", width)
    repairable = any(each.remedy.startswith("retold sessions repair-routing") for each in findings)
    if repairable:
        yield from wrap(
            f"Next: retold sessions repair-routing{home} shows which keys could be given back;", width
        )
        yield from wrap(f"retold why KEY{home} tells the story of one chat.", width)
    else:
        yield from wrap(
            f"Next: retold why KEY{home} (KEY may be a session's id) tells the story of one.", width
        )
