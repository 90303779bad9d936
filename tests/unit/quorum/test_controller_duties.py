"""What the controller does without being asked: sessions, no-op records, balance, elections."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from bench.controller_requests import heartbeat, registration, topics
from kraftpy.metadata_log import records as r
from kraftpy.quorum.control.api_table import CONTROL_APIS, merged
from kraftpy.quorum.duties import Duties
from kraftpy.types import NO_LEADER, BrokerId, uuid_text
from kraftpy.wire import apis
from tests.unit.control.makers import CLUSTER_ID, request
from tests.unit.quorum.fake_consensus import OTHER_ID, PUT, WRITE, Desk, code

SESSION_MS = 9000


class Cluster:
    """Brokers at the desk of a controller."""

    def __init__(self, *broker_ids: int, **settings: Any) -> None:
        self.desk = Desk(**settings)
        self.desk.lead()
        self.epochs: dict[int, int] = {}
        for broker_id in broker_ids:
            self.register(broker_id)

    def ask(self, api_key: int, **values: Any) -> list[Any]:
        api = CONTROL_APIS[api_key]
        answers: list[Any] = []
        message = request(api_key, api.versions.max_version, **values)
        self.desk.controller.submit(api, message, answers.append)
        return answers

    def register(self, broker_id: int) -> None:
        asked = registration(broker_id, uuid_text(CLUSTER_ID))
        answers = self.ask(apis.BROKER_REGISTRATION, **asked)
        self.desk.consensus.commit()
        self.epochs[broker_id] = answers[0]["broker_epoch"]
        assert code(self.beat(broker_id)) is ErrorCode.none

    def beat(self, broker_id: int, *, commit: bool = True, **changed: Any) -> list[Any]:
        values = heartbeat(broker_id, self.epochs[broker_id], **changed)
        answers = self.ask(apis.BROKER_HEARTBEAT, **values)
        if commit:
            self.desk.consensus.commit()
        return answers

    def create(self, name: str, replicas: int) -> None:
        asked = topics([name], partitions=6, replicas=replicas)
        answers = self.ask(apis.CREATE_TOPICS, **asked)
        self.desk.consensus.commit()
        assert [each["error_code"] for each in answers[0]["topics"]] == [ErrorCode.none]

    def fenced(self, broker_id: int) -> bool:
        return self.desk.consensus.image().brokers[BrokerId(broker_id)].fenced

    def leaders(self) -> set[int]:
        image = self.desk.consensus.image()
        return {p.leader for topic in image.topics.values() for p in topic.partitions.values()}

    def pass_time(self, ms: int, *alive: int) -> None:
        """Time with heartbeats of those who live, every second."""
        for _ in range(ms // 1000):
            self.desk.pass_time(1000)
            self.desk.consensus.commit()
            for broker_id in alive:
                self.beat(broker_id)


# -- sessions ---------------------------------------------------------------------------------


def test_a_silent_broker_is_fenced_when_its_session_is_over() -> None:
    cluster = Cluster(1, 2)
    cluster.pass_time(SESSION_MS, 1)
    assert not cluster.fenced(2)
    with capture_logs() as logged:
        cluster.pass_time(1000, 1)
    assert cluster.fenced(2)
    assert not cluster.fenced(1)
    (line,) = [each for each in logged if each["event"] == "broker_fenced"]
    assert (line["broker"], line["broker_epoch"]) == (2, cluster.epochs[2])


def test_brokers_that_fall_silent_together_leave_no_fenced_leader() -> None:
    """KAFKA-13173: each is fenced on an image that shows the ones before."""
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", replicas=3)
    assert cluster.leaders() == {1, 2, 3}
    cluster.pass_time(SESSION_MS + 1000, 3)
    assert cluster.fenced(1)
    assert cluster.fenced(2)
    assert cluster.leaders() == {3}


def test_a_new_controller_gives_every_broker_a_whole_session() -> None:
    cluster = Cluster(1, 2)
    cluster.pass_time(SESSION_MS - 1000, 1)
    cluster.desk.consensus.lose()
    cluster.desk.lead(epoch=3)
    cluster.pass_time(SESSION_MS, 1)
    assert not cluster.fenced(2)
    cluster.pass_time(1000, 1)
    assert cluster.fenced(2), "KAFKA-18138: also one that never spoke to this controller"


def test_a_heartbeat_that_waits_counts_from_when_it_came() -> None:
    cluster = Cluster(1)
    cluster.desk.ask(PUT, names=["a"])
    for _ in range(3):
        cluster.desk.pass_time(SESSION_MS - 1000)
        assert cluster.beat(1, commit=False) == [], "it waits for what it saw"
    assert not cluster.desk.controller.image.brokers[BrokerId(1)].fenced  # type: ignore[union-attr]


def test_a_process_that_stood_still_reads_heartbeats_before_it_fences() -> None:
    """A pause of the whole process, longer than a session: nobody could be heard."""
    cluster = Cluster(1, 2, metadata_max_idle_interval_ms=500)
    controller, clock = cluster.desk.controller, cluster.desk.clock
    assert controller.next_due_ms() is not None
    clock.advance(3 * SESSION_MS)
    with capture_logs() as logged:
        controller.tick(clock.monotonic_ms())
        cluster.beat(1)  # It was in the socket all the time.
    assert logged == [], "nobody was fenced, not even for a moment"
    cluster.pass_time(2000)
    assert not cluster.fenced(1)
    assert cluster.fenced(2), "who has nothing in the socket is fenced a moment later"


def test_a_process_that_is_always_late_fences_all_the_same() -> None:
    cluster = Cluster(1, 2)
    controller, clock = cluster.desk.controller, cluster.desk.clock
    for _ in range(25):
        assert controller.next_due_ms() is not None
        clock.advance(SESSION_MS)
        cluster.beat(1)
        controller.tick(clock.monotonic_ms())
        cluster.desk.consensus.commit()
    assert cluster.fenced(2)


# -- no-op records ----------------------------------------------------------------------------


def no_ops(desk: Desk) -> int:
    return sum(isinstance(record, r.NoOpRecord) for record in desk.consensus.records())


def test_an_idle_log_gets_a_no_op_record() -> None:
    desk = Desk(metadata_max_idle_interval_ms=500)
    desk.lead()
    for _ in range(4):
        desk.pass_time(500)
        desk.consensus.commit()
    assert no_ops(desk) == 4


def test_a_busy_log_gets_none() -> None:
    desk = Desk(metadata_max_idle_interval_ms=500)
    desk.lead()
    for number in range(10):
        desk.pass_time(400)
        desk.put(str(number))
        desk.consensus.commit()
    assert no_ops(desk) == 0


def test_no_op_records_do_not_pile_up_while_nothing_commits() -> None:
    desk = Desk(metadata_max_idle_interval_ms=500)
    desk.lead()
    desk.pass_time(60_000)
    assert no_ops(desk) == 1


def test_no_op_records_are_silent() -> None:
    desk = Desk(metadata_max_idle_interval_ms=500)
    desk.lead()
    with capture_logs() as logged:
        desk.pass_time(500)
        desk.consensus.commit()
    assert no_ops(desk) == 1
    assert logged == []


def test_a_standby_does_nothing_by_itself() -> None:
    desk = Desk(metadata_max_idle_interval_ms=500)
    assert desk.controller.next_due_ms() is None
    desk.lead()
    desk.consensus.lose()
    desk.controller.resign(OTHER_ID, 2)
    assert desk.controller.next_due_ms() is None
    desk.controller.tick(1 << 40)
    assert no_ops(desk) == 0


# -- balance and elections --------------------------------------------------------------------


def test_leadership_goes_back_to_preferred_replicas() -> None:
    cluster = Cluster(1, 2, 3, leader_imbalance_check_interval_ms=20_000)
    cluster.create("orders", replicas=3)
    cluster.pass_time(SESSION_MS + 1000, 2, 3)
    assert cluster.leaders() == {2, 3}
    cluster.beat(1)
    assert not cluster.fenced(1)
    join_isrs(cluster)
    cluster.pass_time(21_000, 1, 2, 3)
    assert cluster.leaders() == {1, 2, 3}


def join_isrs(cluster: Cluster) -> None:
    """As the leaders would report it, partition by partition."""
    image = cluster.desk.consensus.image()
    change = [
        r.PartitionChangeRecord(
            topic_id=topic_id,
            partition_id=partition_id,
            isr=found.replicas,
            leader_epoch=found.leader_epoch,
            partition_epoch=found.partition_epoch + 1,
        )
        for topic_id, topic in image.topics.items()
        for partition_id, found in topic.partitions.items()
    ]
    cluster.desk.ask(WRITE, records=change)
    cluster.desk.consensus.commit()


def test_balance_can_be_switched_off() -> None:
    cluster = Cluster(
        1, 2, 3, leader_imbalance_check_interval_ms=20_000, auto_leader_rebalance_enable=False
    )
    cluster.create("orders", replicas=3)
    cluster.pass_time(SESSION_MS + 1000, 2, 3)
    cluster.beat(1)
    join_isrs(cluster)
    cluster.pass_time(41_000, 1, 2, 3)
    assert cluster.leaders() == {2, 3}


def test_a_setting_that_allows_unclean_elections_is_acted_on_at_once() -> None:
    """Its only replica in sync is gone; later the cluster allows an unclean election."""
    cluster = Cluster(1, 2, unclean_leader_election_interval_ms=3_000_000)
    cluster.create("orders", replicas=2)
    cluster.pass_time(SESSION_MS + 1000, 2)
    cluster.pass_time(SESSION_MS + 1000)
    assert cluster.leaders() == {NO_LEADER}
    cluster.beat(1)
    assert cluster.leaders() == {NO_LEADER}, "broker 1 was not in sync"
    record = r.ConfigRecord(
        resource_type=r.TOPIC_RESOURCE,
        resource_name="orders",
        name="unclean.leader.election.enable",
        value="true",
    )
    cluster.desk.ask(WRITE, records=[record])
    cluster.desk.consensus.commit()
    cluster.pass_time(1000, 1)
    assert cluster.leaders() == {1}


# -- the table --------------------------------------------------------------------------------


def test_no_two_subjects_answer_the_same_api() -> None:
    assert merged([{1: PUT}, {2: PUT}]) == {1: PUT, 2: PUT}
    with pytest.raises(ValueError, match="two subjects answer API 1"):
        merged([{1: PUT}, {1: PUT}])


def test_only_heartbeats_may_be_answered_without_a_proof() -> None:
    assert [key for key, api in CONTROL_APIS.items() if not api.current] == [apis.BROKER_HEARTBEAT]


def test_time_begins_with_the_epoch() -> None:
    desk = Desk(metadata_max_idle_interval_ms=500)
    desk.pass_time(1_000_000)
    desk.lead()
    duties = Duties(desk.settings)
    duties.begin(1_000_000)
    assert list(duties.due(1_000_400, is_idle=True))[1:] == []
    assert no_ops(desk) == 0
