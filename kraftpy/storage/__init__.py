"""The log, in Kafka's on-disk format: record batches, segments, indexes, epochs, recovery."""

from kraftpy.storage.directory import DataDirectory
from kraftpy.storage.file_layer import File, FileLayer, OsFiles
from kraftpy.storage.log import Log
from kraftpy.storage.log_config import LogConfig
from kraftpy.storage.log_slice import LogSlice
from kraftpy.storage.reader import FoundBatch, LogReader
from kraftpy.storage.record_batch import BatchHeader, Record, build_batch, iter_records
from kraftpy.storage.request import Appended, Request
from kraftpy.storage.segment import SegmentConfig

__all__ = [
    "Appended",
    "BatchHeader",
    "DataDirectory",
    "File",
    "FileLayer",
    "FoundBatch",
    "Log",
    "LogConfig",
    "LogReader",
    "LogSlice",
    "OsFiles",
    "Record",
    "Request",
    "SegmentConfig",
    "build_batch",
    "iter_records",
]
