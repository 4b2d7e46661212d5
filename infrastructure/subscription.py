"""Events as they are saved: at once in this process, by watching the file for those of others."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import apsw
from eventsourcing.persistence import ListenNotifySubscription

from .sqlite import READ_ONLY, connect, one

if TYPE_CHECKING:
    from .log import Log
    from .recorders import LogApplicationRecorder

POLL_INTERVAL_S = 0.02


class LogSubscription(ListenNotifySubscription["LogApplicationRecorder"]):
    """Yields notifications after `gt`, waiting for more at the end."""

    def __init__(
        self, recorder: LogApplicationRecorder, gt: int | None = None, topics: Sequence[str] = ()
    ) -> None:
        super().__init__(recorder=recorder, gt=gt, topics=topics)
        self._watcher = Watcher(recorder.log, self._has_been_notified)

    def stop(self) -> None:
        """End the iteration."""
        super().stop()
        watcher: Watcher | None = getattr(self, "_watcher", None)  # None: failed while starting
        if watcher is not None:
            watcher.stop()


class Watcher:
    """Sets an event whenever the log has grown, by whomever.

    Another process's commit changes `PRAGMA data_version` of a connection that stays open
    (https://sqlite.org/pragma.html#pragma_data_version); a file that was replaced changes its
    inode, and is opened anew.
    """

    def __init__(self, log: Log, news: threading.Event) -> None:
        self._log, self._news = log, news
        self._stopped = threading.Event()
        log.listen(news)
        self._thread = threading.Thread(target=self._watch, name="retold-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """No longer watch."""
        self._log.unlisten(self._news)
        self._stopped.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _watch(self) -> None:
        connection: apsw.Connection | None = None
        seen: tuple[int, int, int] | None = None
        while not self._stopped.wait(POLL_INTERVAL_S):
            try:
                stat = os.stat(self._log.path)
                if connection is None or seen is None or seen[:2] != (stat.st_dev, stat.st_ino):
                    if connection is not None:
                        connection.close()
                    connection = connect(self._log.path, flags=READ_ONLY)
                now = (stat.st_dev, stat.st_ino, one(connection, "PRAGMA data_version"))
            except (OSError, apsw.Error):
                continue  # the file is away or locked for a moment; look again
            if now != seen:
                seen = now
                self._news.set()
        if connection is not None:
            with contextlib.suppress(apsw.Error):
                connection.close()
