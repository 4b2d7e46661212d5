"""What else the people of WhatsApp are known as, by the files that its bridge keeps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from ..domain.keys import Linked


def linked_in(folder: Path) -> Linked:
    """The mapping in a bridge's folder: `lid-mapping-<id>.json` and `lid-mapping-<id>_reverse.json`.

    A file that cannot be read links to nothing.
    """

    def linked(identifier: str) -> Iterator[str]:
        for suffix in ("", "_reverse"):
            try:
                value = msgspec.json.decode((folder / f"lid-mapping-{identifier}{suffix}.json").read_bytes())
            except (OSError, ValueError):  # msgspec's errors are ValueErrors
                continue
            if isinstance(value, str | int):
                yield str(value)

    return linked
