"""The table of folds that readers go by says what the folds say."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from retold.domain.events import Recorded
from retold.infrastructure.projector import PROJECTIONS
from retold.projections.base import Connection, Projection
from retold.projections.versions import FOLDS


def test_a_projection_without_a_fold_or_an_order_cannot_be_made() -> None:
    class Half(Projection):
        def fold(self, events: Sequence[Recorded], db: Connection) -> None: ...

    with pytest.raises(TypeError, match="ordered"):
        Half()  # type: ignore[abstract]  # which is what is asked


def test_the_table_names_every_fold_with_its_version() -> None:
    assert {each.name: each.version for each in PROJECTIONS} == FOLDS
