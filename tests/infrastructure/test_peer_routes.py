"""The real Hermes, on a home that a repair was carried into, routes the chats to the right sessions."""

from __future__ import annotations

from pathlib import Path

import pytest

from retold.infrastructure.engine import open_home
from retold.infrastructure.exporters.hermes_repair import carry_repairs
from retold.infrastructure.importers.hermes import import_hermes
from retold.tests.infrastructure.importing import edit
from retold.tests.infrastructure.repairing import TRUTH
from retold.tests.peer import routed_by_peer

pytestmark = pytest.mark.slow
DM = {"platform": "telegram", "chat_id": "1001", "chat_type": "dm", "user_id": "501"}
GROUP = {"platform": "discord", "chat_id": "2002", "chat_type": "group", "user_id": "777"}
TWICE = {"platform": "telegram", "chat_id": "1003", "chat_type": "dm", "user_id": "504"}
CASES = {"lineage": DM, "contiguity": GROUP, "second_history": TWICE}


@pytest.mark.parametrize("scope", ["as it was", "the home's own"])
def test_hermes_goes_on_where_the_repair_says(home: Path, hermes_home: Path, scope: str) -> None:
    if scope == "the home's own":
        own = str((hermes_home / "sessions").resolve())
        edit(hermes_home, "UPDATE gateway_routing SET scope = ?", own)
    wrong = routed_by_peer(hermes_home, *CASES.values())
    with open_home(home) as engine:
        import_hermes(engine, hermes_home)
        for name in CASES:
            engine.repair(TRUTH[name]["orphan"], choose=TRUTH[name]["orphan"])
        carry_repairs(engine, hermes_home)
    right = routed_by_peer(hermes_home, *CASES.values())

    assert wrong == {TRUTH[name]["adopts_key"]: TRUTH[name]["routed_to_now"] for name in CASES}
    assert right == {TRUTH[name]["adopts_key"]: TRUTH[name]["orphan"] for name in CASES}
