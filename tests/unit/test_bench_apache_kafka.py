"""Apache Kafka for benchmarks and tests: what is asked of Maven, what nodes are told, one start."""

import os
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import apache_kafka, apache_kafka_jars
from bench.apache_kafka import ApacheKafka
from kraftpy.wire.apis import METADATA

REASON = "Apache Kafka cannot be run: {}"


@pytest.fixture
def some_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apache_kafka, "class_path", lambda: ("a.jar", "b.jar"))


def test_maven_is_asked_for_kafka_4_and_something_that_writes_its_log() -> None:
    names = [
        each.text for each in ElementTree.fromstring(apache_kafka_jars.pom()).iter("artifactId")
    ]
    assert names == ["apache-kafka", "kafka_2.13", "slf4j-simple"]


def test_a_class_path_counts_only_while_every_jar_is_there(tmp_path: Path) -> None:
    jars = [tmp_path / "kafka_2.13-4.1.0.jar", tmp_path / "other-1.jar"]
    for jar in jars:
        jar.write_bytes(b"")
    file = tmp_path / "class-path"
    assert apache_kafka_jars.read_class_path(file) is None
    file.write_text(os.pathsep.join(map(str, jars)) + "\n")
    found = apache_kafka_jars.read_class_path(file)
    assert found == tuple(map(str, jars))
    assert apache_kafka_jars.version_in(found) == "4.1.0"
    jars[1].unlink()
    assert apache_kafka_jars.read_class_path(file) is None
    file.write_text("")
    assert apache_kafka_jars.read_class_path(file) is None


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_202"', 8),
        ("what?", None),
    ],
)
def test_releases_of_java_are_read_as_they_are_told(text: str, release: int | None) -> None:
    assert apache_kafka_jars.java_version_in(text) == release


def test_without_java_the_reason_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    apache_kafka_jars._outcome.cache_clear()
    monkeypatch.setattr("shutil.which", lambda _: None)
    try:
        assert apache_kafka_jars.available() == "Java is missing: install version 17 or newer"
        with pytest.raises(apache_kafka_jars.Unavailable, match="Java is missing"):
            apache_kafka_jars.class_path()
    finally:
        apache_kafka_jars._outcome.cache_clear()


@pytest.mark.usefixtures("some_jars")
def test_a_combined_node_is_broker_and_controller_at_once(tmp_path: Path) -> None:
    kafka = ApacheKafka(str(tmp_path), properties={"num.partitions": "4"})
    told = kafka.properties_of(1)
    assert told["process.roles"] == "broker,controller"
    assert told["controller.quorum.voters"] == f"1@{kafka.controller_bootstrap}"
    listeners = f"PLAINTEXT://{kafka.bootstrap},CONTROLLER://{kafka.controller_bootstrap}"
    assert told["listeners"] == listeners
    assert told["num.partitions"] == "4"
    assert told["offsets.topic.replication.factor"] == "1"
    assert kafka.command(1)[:3] == ["java", "-Xmx1G", "-Xms1G"]


@pytest.mark.usefixtures("some_jars")
def test_controllers_beside_brokers_have_ports_and_roles_of_their_own(tmp_path: Path) -> None:
    kafka = ApacheKafka(str(tmp_path), brokers=3, controllers=3)
    assert list(kafka.node_ids) == [1, 2, 3, 101, 102, 103]
    told = {node_id: kafka.properties_of(node_id) for node_id in kafka.node_ids}
    assert {told[n]["process.roles"] for n in (1, 2, 3)} == {"controller"}
    assert {told[n]["process.roles"] for n in (101, 102, 103)} == {"broker"}
    assert told[101]["listeners"] == f"PLAINTEXT://127.0.0.1:{kafka.ports[101]}"
    assert told[1]["transaction.state.log.min.isr"] == "2"
    assert len({*kafka.ports.values(), *kafka.controller_ports.values()}) == 6


def test_it_starts_answers_and_ends(tmp_path: Path) -> None:
    if (reason := apache_kafka.available()) is not None:
        pytest.skip(REASON.format(reason))
    with ApacheKafka(str(tmp_path), heap="512M") as kafka:
        answer = apache_kafka.ask("127.0.0.1", kafka.ports[1], METADATA, {"topics": []}, version=1)
        assert [broker.port for broker in answer.brokers] == [kafka.ports[1]]
        pid = kafka.pid(1)
        assert os.path.exists(os.path.join(kafka.log_dir(1), "__cluster_metadata-0"))
    assert not os.path.exists(f"/proc/{pid}")
