"""The `eventsourcing` library's persistence module: PERSISTENCE_MODULE=retold.infrastructure.persistence.

The environment names the file as RETOLD_LOG and how eagerly it is synced as RETOLD_SYNCHRONOUS
(FULL, the default, or NORMAL). The library's stock mapper works here too.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    InfrastructureFactory,
    InfrastructureFactoryError,
    ProcessRecorder,
    TrackingRecorder,
)
from eventsourcing.utils import Environment, EnvType, resolve_topic

from .log import Log
from .recorders import (
    LogAggregateRecorder,
    LogApplicationRecorder,
    LogProcessRecorder,
    LogTrackingRecorder,
    SnapshotRecorder,
)


class Factory(InfrastructureFactory[LogTrackingRecorder]):
    """Makes recorders that share one open log."""

    LOG = "RETOLD_LOG"
    SYNCHRONOUS = "RETOLD_SYNCHRONOUS"
    ACTOR = "RETOLD_ACTOR"

    def __init__(self, env: Environment | EnvType | None) -> None:
        super().__init__(env)
        path = self.env.get(self.LOG)
        if not path:
            raise InfrastructureFactoryError(f"'{self.LOG}' names no file: set it to the path of events.db")
        self.log = Log(
            Path(path),
            synchronous=self.env.get(self.SYNCHRONOUS) or "FULL",
            actor=self.env.get(self.ACTOR) or "cli",
        )

    def aggregate_recorder(self, purpose: str = "events") -> AggregateRecorder:
        """Streams of the log, or the snapshots beside it."""
        return LogAggregateRecorder(self.log) if purpose == "events" else SnapshotRecorder(self.log)

    def application_recorder(self) -> ApplicationRecorder:
        """Streams and positions; APPLICATION_RECORDER_TOPIC may name a subclass."""
        topic = self.env.get(self.APPLICATION_RECORDER_TOPIC)
        cls = resolve_topic(topic) if topic else LogApplicationRecorder
        return cast("ApplicationRecorder", cls(self.log))

    def tracking_recorder(
        self, tracking_recorder_class: type[LogTrackingRecorder] | None = None
    ) -> LogTrackingRecorder:
        """Tracking; a view is a subclass, given here or by TRACKING_RECORDER_TOPIC."""
        topic = self.env.get(self.TRACKING_RECORDER_TOPIC)
        cls = tracking_recorder_class or (resolve_topic(topic) if topic else LogTrackingRecorder)
        made: TrackingRecorder = cls(self.log)
        return cast("LogTrackingRecorder", made)

    def process_recorder(self) -> ProcessRecorder:
        """Events and tracking in one transaction; PROCESS_RECORDER_TOPIC may name a subclass."""
        topic = self.env.get(self.PROCESS_RECORDER_TOPIC)
        cls = resolve_topic(topic) if topic else LogProcessRecorder
        return cast("ProcessRecorder", cls(self.log))

    def close(self) -> None:
        """Close the log."""
        self.log.close()
