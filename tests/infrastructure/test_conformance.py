"""The eventsourcing library's own conformance cases, run on the log."""

from __future__ import annotations

import os
import shutil
import tempfile
from functools import cached_property
from pathlib import Path

from eventsourcing.persistence import Tracking
from eventsourcing.tests.application import ExampleApplicationTestCase
from eventsourcing.tests.persistence import (
    AggregateRecorderTestCase,
    ApplicationRecorderTestCase,
    InfrastructureFactoryTestCase,
    NonInterleavingNotificationIDsBaseCase,
    ProcessRecorderTestCase,
    TrackingRecorderTestCase,
)
from eventsourcing.tests.projection import (
    AggregateEventCountersProjectionTestCase,
    EventCountersView,
    EventCountersViewTestCase,
)
from eventsourcing.utils import Environment

from retold.infrastructure.log import Log
from retold.infrastructure.persistence import Factory
from retold.infrastructure.recorders import (
    LogAggregateRecorder,
    LogApplicationRecorder,
    LogProcessRecorder,
    LogTrackingRecorder,
    SnapshotRecorder,
    insert_tracking,
)
from retold.infrastructure.sqlite import one


class OnALog:
    """A folder and a log for each test."""

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.log = Log(self.folder / "events.db")
        super().setUp()  # type: ignore[misc]

    def tearDown(self) -> None:
        super().tearDown()  # type: ignore[misc]
        self.log.close()
        shutil.rmtree(self.folder)


class TestAggregateRecorder(OnALog, AggregateRecorderTestCase):
    def create_recorder(self) -> LogAggregateRecorder:
        return LogAggregateRecorder(self.log)


class TestSnapshotRecorder(OnALog, AggregateRecorderTestCase):
    def create_recorder(self) -> SnapshotRecorder:
        return SnapshotRecorder(self.log)


class TestApplicationRecorder(OnALog, ApplicationRecorderTestCase[LogApplicationRecorder]):
    def create_recorder(self) -> LogApplicationRecorder:
        return LogApplicationRecorder(self.log)


class TestTrackingRecorder(OnALog, TrackingRecorderTestCase):
    def create_recorder(self) -> LogTrackingRecorder:
        return LogTrackingRecorder(self.log)


class TestProcessRecorder(OnALog, ProcessRecorderTestCase):
    def create_recorder(self) -> LogProcessRecorder:
        return LogProcessRecorder(self.log)


class TestNonInterleavingNotificationIDs(OnALog, NonInterleavingNotificationIDsBaseCase):
    insert_num = 1000

    def create_recorder(self) -> LogApplicationRecorder:
        return LogApplicationRecorder(self.log)


class InEnvironment:
    """Names a log of its own in the process environment, where the library looks."""

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.kept = dict(os.environ)
        os.environ["PERSISTENCE_MODULE"] = "retold.infrastructure.persistence"
        os.environ["RETOLD_LOG"] = str(self.folder / "events.db")
        super().setUp()  # type: ignore[misc]

    def tearDown(self) -> None:
        super().tearDown()  # type: ignore[misc]
        os.environ.clear()
        os.environ.update(self.kept)
        shutil.rmtree(self.folder)


class OtherTracking(LogTrackingRecorder):
    pass


class TestFactory(InEnvironment, InfrastructureFactoryTestCase[Factory]):
    @property
    def env(self) -> Environment:  # type: ignore[override]  # as it is once setUp has named the log
        return self.made

    @cached_property
    def made(self) -> Environment:
        return Environment(env=dict(os.environ))

    def expected_factory_class(self) -> type[Factory]:
        return Factory

    def expected_aggregate_recorder_class(self) -> type[LogAggregateRecorder]:
        return LogAggregateRecorder

    def expected_application_recorder_class(self) -> type[LogApplicationRecorder]:
        return LogApplicationRecorder

    def expected_tracking_recorder_class(self) -> type[LogTrackingRecorder]:
        return LogTrackingRecorder

    def tracking_recorder_subclass(self) -> type[LogTrackingRecorder]:
        return OtherTracking

    def expected_process_recorder_class(self) -> type[LogProcessRecorder]:
        return LogProcessRecorder


class TestExampleApplication(InEnvironment, ExampleApplicationTestCase):
    expected_factory_topic = "retold.infrastructure.persistence:Factory"


class CountersInTheLog(LogTrackingRecorder, EventCountersView):
    """A view beside the tracking: its rows and the tracking commit together."""

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        with log.transaction() as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, n INTEGER)")

    def _get(self, name: str) -> int:
        return one(self.log.reader(), "SELECT n FROM counters WHERE name = ?", (name,)) or 0

    def _increment(self, name: str, tracking: Tracking) -> None:
        with self.log.transaction() as connection:
            insert_tracking(connection, tracking)
            connection.execute(
                "INSERT INTO counters VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET n = n + 1", (name,)
            )

    def get_created_event_counter(self) -> int:
        return self._get("created")

    def get_subsequent_event_counter(self) -> int:
        return self._get("subsequent")

    def incr_created_event_counter(self, tracking: Tracking) -> None:
        self._increment("created", tracking)

    def incr_subsequent_event_counter(self, tracking: Tracking) -> None:
        self._increment("subsequent", tracking)


class TestCountersView(OnALog, EventCountersViewTestCase):
    def construct_event_counters_view(self) -> EventCountersView:
        return CountersInTheLog(self.log)


class TestProjectionOfCounters(InEnvironment, AggregateEventCountersProjectionTestCase):
    view_class = CountersInTheLog


# The library's base classes are imported here by name; only the subclasses above are cases.
del (
    AggregateRecorderTestCase,
    ApplicationRecorderTestCase,
    InfrastructureFactoryTestCase,
    NonInterleavingNotificationIDsBaseCase,
    ProcessRecorderTestCase,
    TrackingRecorderTestCase,
    ExampleApplicationTestCase,
    AggregateEventCountersProjectionTestCase,
    EventCountersViewTestCase,
)
