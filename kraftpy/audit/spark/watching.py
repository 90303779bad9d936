"""Stages of an audit on Spark: how long each took, and how many of its tasks are done.

A thread asks Spark twice a second and tells whoever watches; it ends with `end`. What always holds:
the audit never waits for it, and what it cannot learn it leaves out.
"""

from threading import Event, Thread
from typing import Final

from pyspark.sql import SparkSession

from kraftpy.audit.local import Options
from kraftpy.audit.spark.session import SPARK_ERRORS
from kraftpy.audit.violations import AuditResult

_EVERY_S: Final = 0.5


class Stages:
    """Call `begin` with the name of each, and `end` behind the last."""

    def __init__(self, spark: SparkSession, result: AuditResult, options: Options) -> None:
        self._context = spark.sparkContext
        self._result, self._options = result, options
        self._began = 0
        self._name: str | None = None
        self._ended = Event()
        self._thread = Thread(target=self._watch, name="kraftpy-audit-progress", daemon=True)

    def begin(self, name: str) -> None:
        self._note()
        self._name, self._began = name, self._options.clock.monotonic_ms()
        self._context.setJobGroup(self._group(name), f"kraftpy audit: {name}")
        self._options.progress(name, 0, 0)
        if not self._thread.is_alive():
            self._thread.start()

    def end(self) -> None:
        self._note()
        self._ended.set()
        self._thread.join()

    def _note(self) -> None:
        if self._name is not None:
            took = self._options.clock.monotonic_ms() - self._began
            self._result.timings[self._name] = took / 1000
            self._name = None

    def _group(self, name: str) -> str:
        return f"{self._result.run}-{name}"

    def _watch(self) -> None:
        while not self._ended.wait(_EVERY_S):
            name = self._name
            if name is None:
                continue
            try:
                done, whole = self._tasks(name)
            except SPARK_ERRORS:
                return  # The session is being stopped.
            if name == self._name:
                self._options.progress(name, done, whole)

    def _tasks(self, name: str) -> tuple[int, int]:
        """Of all jobs so far: how many are done, and how many there are."""
        tracker = self._context.statusTracker()
        done = whole = 0
        for job in tracker.getJobIdsForGroup(self._group(name)):
            found = tracker.getJobInfo(job)
            for stage in () if found is None else found.stageIds:
                told = tracker.getStageInfo(stage)
                if told is not None:
                    done += told.numCompletedTasks
                    whole += told.numTasks
        return done, whole
