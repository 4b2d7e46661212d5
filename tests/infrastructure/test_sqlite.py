"""SQLite's errors as ours: in words that say what is wrong."""

from __future__ import annotations

import apsw
import pytest

from retold.domain.errors import NoRoom
from retold.infrastructure.sqlite import translated, words


def test_a_copy_that_meets_a_full_disk_says_so() -> None:
    with pytest.raises(NoRoom, match=r"no room to write copy\.db: the disk is full$"), translated("copy.db"):
        raise apsw.FullError("not an error")

    assert words(apsw.IOError("not an error")) == "IOError"
    assert words(apsw.FullError("database or disk is full")) == "database or disk is full"
