"""Apache Kafka's own coordinator classes read __consumer_offsets as kraftpy wrote it."""

import os
import re
import subprocess

import pytest

from bench.apache_kafka_jars import available, class_path
from tests.interop.clusters import Served
from tests.interop.group_processes import Group, create_topic, group, produce
from tests.interop.programs import HERE, RUN_S, built, cache_dir, need

PARTITIONS = 3
RECORDS = 10
OF_A_CONSUMER_GROUP = (
    "ConsumerGroupMetadata",
    "ConsumerGroupPartitionMetadata",
    "ConsumerGroupMemberMetadata",
    "ConsumerGroupTargetAssignmentMetadata",
    "ConsumerGroupTargetAssignmentMember",
    "ConsumerGroupCurrentMemberAssignment",
)


def their_lines(bootstrap: str) -> list[str]:
    need("java", "javac")
    if (why := available()) is not None:
        pytest.skip(why)
    jars = os.pathsep.join(class_path())
    source = HERE / "java" / "Offsets.java"
    directory = cache_dir("java-server") / built([source])
    if not (directory / "Offsets.class").exists():
        command = ["javac", "-cp", jars, "-d", str(directory), str(source)]
        subprocess.run(command, check=True, capture_output=True, timeout=RUN_S)
    path = os.pathsep.join((str(directory), jars))
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", path, "Offsets", bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    lines = done.stdout.splitlines()
    assert (done.returncode, lines[-1:]) == (0, ["done"]), (done.stdout + done.stderr)[-4000:]
    return lines[:-1]


def read_all(served: Served, kind: str, strategy: str) -> Group:
    """A group that has read a topic, and has left."""
    topic = create_topic(served, PARTITIONS)
    with group(served, topic, strategy, kind) as members:
        members.start()
        members.wait_for_all(produce(served, topic, range(PARTITIONS), RECORDS))
        wanted = {(topic, each): RECORDS for each in range(PARTITIONS)}
        members.wait("all commits", lambda: members.committed() == wanted)
        members.members[0].leave()
    return members


def test_apache_kafka_reads_what_groups_left(dev: Served) -> None:
    classic, consumer = (
        read_all(dev, "confluent", "range"),
        read_all(dev, "confluent_consumer", "uniform"),
    )
    lines = their_lines(dev.bootstrap)
    for members in (classic, consumer):
        offsets = {}
        for line in lines:
            found = re.match(
                rf"OffsetCommitKey\(group='{members.name}', topic='(.*)', partition=(\d+)\) "
                r"OffsetCommitValue\(offset=(\d+),",
                line,
            )
            if found is not None:  # The last one counts.
                offsets[found[1], int(found[2])] = int(found[3])
        assert offsets == {(members.topic, each): RECORDS for each in range(PARTITIONS)}
    of_classic = [each for each in lines if f"GroupMetadataKey(group='{classic.name}')" in each]
    with_member = [each for each in of_classic if "clientId='confluent-member'" in each]
    assert with_member
    assert "protocolType='consumer'" in with_member[0]
    assert "protocol='range'" in with_member[0]
    assert "members=[]" in of_classic[-1]
    of_consumer = [each for each in lines if f"groupId='{consumer.name}'" in each]
    for kind in OF_A_CONSUMER_GROUP:
        found_values = [each for each in of_consumer if each.startswith(f"{kind}Key(")]
        assert [each for each in found_values if f" {kind}Value(" in each], kind
    # Its member has left: what was written of it is taken back.
    for kind in ("MemberMetadata", "TargetAssignmentMember", "CurrentMemberAssignment"):
        last = [each for each in of_consumer if each.startswith(f"ConsumerGroup{kind}Key(")][-1]
        assert last.endswith(" null"), last
