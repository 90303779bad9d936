"""`spark.read.format("kraft_log")`: metadata logs as tables, for pipelines and for people's SQL.

Options: `path` (or `.load(path)`), or `paths`, a JSON list; `table`: batches, control, records,
snapshots or sharded; `split_mb` (64): how much of a segment one task reads; `shards` (the number of
tasks of the table sharded); `nodes`: only these, as "1,2". Directories may be live: what is there
when the tasks are planned is read, and damage is passed over (it is in `batches`).

The objects here travel to the tasks, so they hold plain values; what is heavy is imported there.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from kraftpy.audit.source.directories import LogDirectory, find_logs
from kraftpy.audit.source.splits import Split, splits_of
from kraftpy.audit.source.stores import from_anywhere
from kraftpy.errors import ConfigError

_MB: Final = 1024 * 1024
_SHARDS: Final = 2


class KraftLog(DataSource):
    """The data source."""

    @classmethod
    def name(cls) -> str:
        return "kraft_log"

    def schema(self) -> str:
        from kraftpy.audit.source.tables import SCHEMAS

        table = self.options.get("table", "records")
        if table not in SCHEMAS:
            known = ", ".join(sorted(SCHEMAS))
            raise ConfigError(f"kraft_log has no table {table!r}, only {known}")
        return SCHEMAS[table]

    def reader(self, schema: StructType) -> "KraftReader":
        # Their names come in lower case, whatever the user wrote.
        return KraftReader({name: self.options[name] for name in self.options}, schema)


class SplitPartition(InputPartition):
    """One task: a range of a segment, a snapshot, or a shard."""

    def __init__(self, split: Split | None = None, log: LogDirectory | None = None, at: int = 0):
        super().__init__(None)
        self.split = split
        self.log = log
        self.at = at


class KraftReader(DataSourceReader):
    """Plans tasks on the driver, reads in them."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = dict(options)
        self._schema = schema
        self._table = self._options.get("table", "records")

    def _logs(self) -> list[LogDirectory]:
        paths = self._options.get("paths")
        wanted = json.loads(paths) if paths else [self._options["path"]]
        found = find_logs([from_anywhere(path) for path in wanted])
        if found.problems:
            raise ConfigError("; ".join(found.problems))
        nodes = self._options.get("nodes")
        if nodes:
            chosen = {int(each) for each in nodes.split(",")}
            return [log for log in found.logs if log.node in chosen]
        return found.logs

    def partitions(self) -> list[InputPartition]:
        logs = self._logs()
        if self._table == "sharded":
            count = int(self._options.get("shards", str(_SHARDS)))
            return [SplitPartition(log=log, at=at) for log in logs[:1] for at in range(count)]
        if self._table == "snapshots":
            return [
                SplitPartition(log=log, at=n) for log in logs for n in range(len(log.snapshots))
            ]
        size = int(float(self._options.get("split_mb", "64")) * _MB)
        return [SplitPartition(split=split) for split in splits_of(logs, size)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, SplitPartition):
            return iter(())  # Spark's own, if there was nothing to plan.
        from kraftpy.audit.spark import table_reading

        schema = to_arrow_schema(self._schema, timezone="UTC")
        if partition.split is not None:
            return table_reading.of_split(self._table, partition.split, schema)
        assert partition.log is not None
        if self._table == "snapshots":
            return table_reading.of_snapshot(partition.log, partition.at, schema)
        shards = int(self._options.get("shards", str(_SHARDS)))
        return table_reading.of_shard(partition.log, partition.at, shards, schema)
