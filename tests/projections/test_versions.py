"""The table of folds that readers go by says what the folds say."""

from __future__ import annotations

from retold.infrastructure.projector import PROJECTIONS
from retold.projections.versions import FOLDS


def test_the_table_names_every_fold_with_its_version() -> None:
    assert {each.name: each.version for each in PROJECTIONS} == FOLDS
