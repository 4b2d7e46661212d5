"""The labelled set of tests/fixtures/redaction: secrets by kind, and text in which there is none."""

from __future__ import annotations

import re
from typing import NamedTuple

from retold.tests.conftest import FIXTURES, ROOT

_FOLDER = FIXTURES / "redaction"


class Labelled(NamedTuple):
    """A text, and what in it has to go."""

    kind: str
    text: str
    secrets: list[str]


def labelled(kind: str, marked: str) -> Labelled:
    """A text with ‹ and › around what has to go; ¦ is nothing."""
    marked = marked.replace("¦", "")
    return Labelled(kind, re.sub("[‹›]", "", marked), re.findall("‹(.*?)›", marked, re.DOTALL))


def kinds() -> list[Labelled]:
    """Every kind of secret with its text."""
    blocks = (_FOLDER / "secrets.txt").read_text("utf-8").split("\n## ")[1:]
    return [labelled(name, text.strip("\n")) for name, _, text in (each.partition("\n") for each in blocks)]


def harmless() -> dict[str, str]:
    """Texts without a secret by name: what looks like some, and code of ours."""
    code = [each for layer in ("domain", "projections") for each in (ROOT / layer).glob("*.py")]
    return {path.name: path.read_text("utf-8") for path in (_FOLDER / "harmless.txt", *code)}
