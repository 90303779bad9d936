"""On disk: a snapshot at any batch's end and the tail behind it give what the whole log gives.

Method: any legal log is appended batch by batch; snapshots are written at some ends, retention
runs at some, the process is killed at some. What is loaded must equal the replay in memory.
"""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraftpy.clock import ManualClock
from kraftpy.metadata_log import EMPTY, MetadataRecord, replay_batch
from kraftpy.metadata_log.metadata_log import MetadataLog, MetadataLogConfig
from kraftpy.metadata_log.reader import MetadataReader
from kraftpy.metadata_log.verification import verify_log
from kraftpy.testing.simulated_files import SimulatedFiles
from tests.property.strategies import legal_logs

DIR = "/data/__cluster_metadata-0"
CONFIG = MetadataLogConfig(segment_bytes=1024, retention_bytes=3000, retention_ms=None)
STEPS = st.sampled_from(["go on", "snapshot", "retention", "kill"])


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(legal_logs(), st.data())
def test_what_is_loaded_is_what_was_decided(
    log_of_batches: list[list[MetadataRecord]], data: st.DataObject
) -> None:
    files, clock = SimulatedFiles(), ManualClock()
    log = MetadataLog(files, DIR, CONFIG, clock)
    image = EMPTY
    images = {0: image}
    for batch in log_of_batches:
        appended = log.append(batch, 1)
        image = replay_batch(image, batch, appended.base_offset, 1, clock.now_ms())
        images[appended.end_offset] = image
        clock.advance(1)
        match data.draw(STEPS):
            case "snapshot" if image.transaction is None:
                log.write_snapshot(image)
            case "retention":
                log.delete_old()
            case "kill":
                files = files.process_crash()
                log = MetadataLog(files, DIR, CONFIG, clock)
            case _:
                pass
    assert log.load_image() == image
    assert verify_log(files, DIR).problems == []
    reader = MetadataReader(files, DIR)
    oldest = log.snapshots[0].end_offset if log.log.start_offset else 0
    for offset, expected in images.items():
        if offset >= oldest:
            assert log.load_image(offset) == expected
            assert reader.image_at(offset) == expected
