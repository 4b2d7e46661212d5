"""Reads the routing mirror that a gateway keeps beside its database."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec


class Mirror(msgspec.Struct, frozen=True):
    """sessions/sessions.json: what the gateway last wrote there, entry by entry.

    Attributes:
        entries: key -> the entry as it is (an object); keys that begin with "_" are notes.
    """

    present: bool
    entries: dict[str, dict[str, Any]]
    problems: list[str]


def read_mirror(path: Path) -> Mirror:
    """Take in what can be read; what cannot is named entry by entry."""
    twice: dict[str, None] = {}

    def one_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            counts = Counter(name for name, _ in pairs)
            twice.update(dict.fromkeys(name for name, count in counts.items() if count > 1))
        return found

    try:
        text = path.read_bytes().decode("utf-8-sig")
        content = json.loads(text, object_pairs_hook=one_each)
    except (FileNotFoundError, NotADirectoryError):
        return Mirror(False, {}, [])
    except OSError as error:
        return Mirror(True, {}, [f"{path.name} cannot be read: {error.strerror or error}"])
    except UnicodeDecodeError:
        return Mirror(True, {}, [f"{path.name} is no UTF-8 text"])
    except (ValueError, RecursionError) as error:
        return Mirror(True, {}, [f"{path.name} is no JSON: {error}"])
    if not isinstance(content, dict):
        return Mirror(True, {}, [f"{path.name} holds no object of entries"])
    entries = {k: v for k, v in content.items() if not k.startswith("_") and isinstance(v, dict)}
    problems = [
        f"{path.name}: the entry {key} is no object"
        for key, value in content.items()
        if not key.startswith("_") and not isinstance(value, dict)
    ]
    problems += [f"{path.name}: {key} stands twice in one object; the last one counts" for key in twice]
    return Mirror(True, entries, problems)
