"""What brokers and admins ask of a controller, in one line each, right unless told otherwise.

Each action makes the evidence that a judge of the log would need from whoever asked: an unclean
shutdown, the epochs in an AlterPartition, the offset in a heartbeat, a request for an unclean
election.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from kraftpy.audit.rules import IsrRequest
from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.features import GROUP_VERSION
from kraftpy.quorum.control import elections, fencing
from kraftpy.quorum.control.partition_index import PartitionKey
from kraftpy.types import BrokerId, uuid_text
from kraftpy.wire import apis
from tests.property.controller_driver import Driver
from tests.unit.control.cluster import directory, incarnation, wire
from tests.unit.control.makers import CLUSTER_ID

TIMEOUT = timedelta(seconds=30)
ELR_FEATURE = "eligible.leader.replicas.version"
NEWEST = 10**9  # A metadata offset that has everything.


def _range(name: str, low: int, high: int) -> dict[str, Any]:
    return {"name": name, "min_supported_version": low, "max_supported_version": high}


FEATURES = [
    _range(r.METADATA_VERSION, 1, 40),
    _range(ELR_FEATURE, 0, 1),
    _range(GROUP_VERSION, 0, 1),
]


def epoch_of(driver: Driver, broker_id: int) -> int:
    broker = driver.image.brokers.get(BrokerId(broker_id))
    return -1 if broker is None else broker.broker_epoch


# -- brokers ---------------------------------------------------------------------------------------


def register(
    driver: Driver,
    broker_id: int,
    life: int = 1,
    *,
    clean: bool = True,
    version: int = 4,
    dirs: int = 2,
    **changed: Any,
) -> Any:
    """`clean`: it knows its last epoch, and so proves that it was shut down in order."""
    existing = driver.image.brokers.get(BrokerId(broker_id))
    # Versions 0 to 2 cannot tell, and so do not count as clean.
    was_clean = existing is not None and clean and version >= 3
    is_same = existing is not None and existing.incarnation_id == incarnation(broker_id, life)
    unclean = frozenset() if was_clean or is_same else frozenset({BrokerId(broker_id)})
    known: dict[str, Any] = {
        "broker_id": broker_id,
        "cluster_id": uuid_text(CLUSTER_ID),
        "incarnation_id": wire(incarnation(broker_id, life)),
        "listeners": [
            {"name": "PLAINTEXT", "host": "localhost", "port": 9092, "security_protocol": 0}
        ],
        "features": FEATURES,
        "rack": f"rack-{broker_id % 2}",
        "log_dirs": [wire(directory(broker_id, number)) for number in range(dirs)],
        "previous_broker_epoch": epoch_of(driver, broker_id) if clean else -1,
        "is_migrating_zk_broker": False,
    }
    return driver.ask(
        apis.BROKER_REGISTRATION,
        version,
        evidence=lambda _answer: {"unclean_restarts": unclean},
        **(known | changed),
    )


def heartbeat(
    driver: Driver,
    broker_id: int,
    *,
    offset: int = NEWEST,
    want_fence: bool = False,
    want_shut_down: bool = False,
    offline: Sequence[int] = (),
    version: int = 2,
    epoch: int | None = None,
) -> Any:
    broker_epoch = epoch_of(driver, broker_id) if epoch is None else epoch
    driver.heartbeats.contact(BrokerId(broker_id), broker_epoch, offset, driver.now_ms)
    return driver.ask(
        apis.BROKER_HEARTBEAT,
        version,
        evidence=lambda _answer: {"caught_up": {BrokerId(broker_id): offset}},
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        current_metadata_offset=offset,
        want_fence=want_fence,
        want_shut_down=want_shut_down,
        offline_log_dirs=[wire(directory(broker_id, number)) for number in offline],
        cordoned_log_dirs=None,
    )


def start(driver: Driver, *broker_ids: int, life: int = 1, **changed: Any) -> None:
    """Registered and unfenced."""
    for broker_id in broker_ids:
        register(driver, broker_id, life, **changed)
        heartbeat(driver, broker_id)


def silence(driver: Driver, *broker_ids: int) -> None:
    """A session passes in which all but these are heard of."""
    half = driver.settings.broker_session_timeout_ms // 2 + 1
    for _ in range(2):
        driver.now_ms += half
        for broker_id, broker in sorted(driver.image.brokers.items()):
            if broker_id not in broker_ids:
                driver.heartbeats.contact(broker_id, broker.broker_epoch, NEWEST, driver.now_ms)
    for _ in range(len(driver.image.brokers) + 1):
        if not driver.duty(fencing.fence_expired):
            return


def unregister(driver: Driver, broker_id: int) -> Any:
    return driver.ask(
        apis.UNREGISTER_BROKER,
        0,
        evidence=lambda _answer: {"unclean_restarts": frozenset({BrokerId(broker_id)})},
        broker_id=broker_id,
    )


def assign(driver: Driver, broker_id: int, key: PartitionKey, number: int) -> Any:
    return driver.ask(
        apis.ASSIGN_REPLICAS_TO_DIRS,
        0,
        broker_id=broker_id,
        broker_epoch=epoch_of(driver, broker_id),
        directories=[
            {
                "id_": wire(directory(broker_id, number)),
                "topics": [{"topic_id": wire(key[0]), "partitions": [{"partition_index": key[1]}]}],
            }
        ],
    )


# -- topics ----------------------------------------------------------------------------------------


def create(
    driver: Driver,
    *names: str,
    partitions: int = 1,
    factor: int = 3,
    placed: Iterable[Iterable[int]] = (),
    validate_only: bool = False,
    version: int = 7,
    configs: Iterable[tuple[str, str]] = (),
) -> Any:
    manual = [list(replicas) for replicas in placed]
    topic = {
        "num_partitions": -1 if manual else partitions,
        "replication_factor": -1 if manual else factor,
        "assignments": [
            {"partition_index": number, "broker_ids": replicas}
            for number, replicas in enumerate(manual)
        ],
        "configs": [{"name": name, "value": value} for name, value in configs],
    }
    return driver.ask(
        apis.CREATE_TOPICS,
        version,
        topics=[{"name": name, **topic} for name in names],
        timeout=TIMEOUT,
        validate_only=validate_only,
    )


def delete(driver: Driver, *names: str, by_id: bool = False) -> Any:
    ids = driver.image.topic_ids
    topics = [
        {"name": None, "topic_id": wire(ids[name])}
        if by_id and name in ids
        else {"name": name, "topic_id": None}
        for name in names
    ]
    return driver.ask(apis.DELETE_TOPICS, 6, topics=topics, timeout=TIMEOUT)


def grow(
    driver: Driver, name: str, count: int, placed: Iterable[Iterable[int]] | None = None
) -> Any:
    assignments = None if placed is None else [{"broker_ids": list(each)} for each in placed]
    return driver.ask(
        apis.CREATE_PARTITIONS,
        3,
        topics=[{"name": name, "count": count, "assignments": assignments}],
        timeout=TIMEOUT,
        validate_only=False,
    )


def configure(
    driver: Driver, name: str, key: str, value: str | None, *, resource_type: int = 2
) -> Any:
    """None removes the key."""
    operation = 1 if value is None else 0
    resource = {
        "resource_type": resource_type,
        "resource_name": name,
        "configs": [{"name": key, "config_operation": operation, "value": value}],
    }
    return driver.ask(apis.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)


def replace_configs(driver: Driver, name: str, configs: Iterable[tuple[str, str]]) -> Any:
    resource = {
        "resource_type": 2,
        "resource_name": name,
        "configs": [{"name": key, "value": value} for key, value in configs],
    }
    return driver.ask(apis.ALTER_CONFIGS, 2, resources=[resource], validate_only=False)


# -- partitions ------------------------------------------------------------------------------------


def alter(
    driver: Driver,
    key: PartitionKey,
    isr: Sequence[int],
    *,
    leader: int | None = None,
    epochs: tuple[int, int] = (0, 0),
    member_epoch: int | None = None,
    recovery: int | None = None,
    version: int = 3,
) -> Any:
    """AlterPartition by the leader; `epochs` are added to what the leader and the partition have,
    `member_epoch` to what each member has, None leaves them out."""
    old = driver.image.topics[key[0]].partitions[key[1]]
    by = old.leader if leader is None else BrokerId(leader)
    leader_epoch, partition_epoch = old.leader_epoch + epochs[0], old.partition_epoch + epochs[1]
    added = 0 if member_epoch is None else member_epoch
    known = {
        BrokerId(each): -1 if member_epoch is None else epoch_of(driver, each) + added
        for each in isr
    }
    partition = {
        "partition_index": key[1],
        "leader_epoch": leader_epoch,
        "new_isr": list(isr),
        "new_isr_with_epochs": [
            {"broker_id": each, "broker_epoch": known[BrokerId(each)]} for each in isr
        ],
        "leader_recovery_state": old.leader_recovery_state if recovery is None else recovery,
        "partition_epoch": partition_epoch,
    }

    def evidence(answer: Any) -> dict[str, Any]:
        members = known if version >= 3 else {}
        request = IsrRequest(by, leader_epoch, partition_epoch, members)
        answered = {}
        for each in answer.topics[0].partitions if answer.topics else ():
            if each.error_code is ErrorCode.none:
                answered[key] = each.partition_epoch
        return {"isr_requests": {key: request}, "partition_epochs": answered}

    return driver.ask(
        apis.ALTER_PARTITION,
        version,
        evidence=evidence,
        broker_id=by,
        broker_epoch=epoch_of(driver, by),
        topics=[{"topic_id": wire(key[0]), "partitions": [partition]}],
    )


def elect(driver: Driver, keys: Iterable[PartitionKey] | None, *, unclean: bool = False) -> Any:
    """None: all partitions."""
    found = [key for key, _ in driver.partitions()] if keys is None else list(keys)
    asked = frozenset(found) if unclean else frozenset()
    topics = [{"topic": driver.name_of(key), "partitions": [key[1]]} for key in found]
    return driver.ask(
        apis.ELECT_LEADERS,
        2,
        evidence=lambda _answer: {"unclean_elections": asked},
        election_type=int(unclean),
        topic_partitions=None if keys is None else topics,
        timeout=TIMEOUT,
    )


def reassign(driver: Driver, key: PartitionKey, replicas: Sequence[int] | None) -> Any:
    """None cancels."""
    partition = {"partition_index": key[1], "replicas": replicas}
    return driver.ask(
        apis.ALTER_PARTITION_REASSIGNMENTS,
        1,
        timeout=TIMEOUT,
        allow_replication_factor_change=True,
        topics=[{"name": driver.name_of(key), "partitions": [partition]}],
    )


def balance(driver: Driver) -> bool:
    return driver.duty(elections.decide_balance)


def elect_unclean(driver: Driver) -> bool:
    return driver.duty(elections.decide_unclean)


# -- the rest of the image -------------------------------------------------------------------------


def producer_ids(driver: Driver, broker_id: int, epoch: int = 0) -> Any:
    broker_epoch = epoch_of(driver, broker_id) + epoch
    return driver.ask(apis.ALLOCATE_PRODUCER_IDS, 0, broker_id=broker_id, broker_epoch=broker_epoch)


def set_elr(driver: Driver, is_on: bool) -> Any:
    update = {
        "feature": ELR_FEATURE,
        "max_version_level": int(is_on),
        "upgrade_type": 1 if is_on else 2,
    }
    return driver.ask(
        apis.UPDATE_FEATURES, 2, timeout=TIMEOUT, feature_updates=[update], validate_only=False
    )


def set_quota(driver: Driver, user: str | None, value: float, remove: bool) -> Any:
    entry = {
        "entity": [{"entity_type": "user", "entity_name": user}],
        "ops": [{"key": "producer_byte_rate", "value": value, "remove": remove}],
    }
    return driver.ask(apis.ALTER_CLIENT_QUOTAS, 1, entries=[entry], validate_only=False)


def create_acl(driver: Driver, name: str, operation: int) -> Any:
    acl = {
        "resource_type": 2,
        "resource_name": name,
        "resource_pattern_type": 3,
        "principal": "User:alice",
        "host": "*",
        "operation": operation,
        "permission_type": 3,
    }
    return driver.ask(apis.CREATE_ACLS, 3, creations=[acl])


def delete_acls(driver: Driver, name: str | None) -> Any:
    matching = {
        "resource_type_filter": 2,
        "resource_name_filter": name,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    return driver.ask(apis.DELETE_ACLS, 3, filters=[matching])


def set_scram(driver: Driver, user: str, mechanism: int, is_set: bool) -> Any:
    upsertion = {
        "name": user,
        "mechanism": mechanism,
        "iterations": 4096,
        "salt": b"salt",
        "salted_password": b"p" * (32 if mechanism == 1 else 64),
    }
    deletion = {"name": user, "mechanism": mechanism}
    return driver.ask(
        apis.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        deletions=[] if is_set else [deletion],
        upsertions=[upsertion] if is_set else [],
    )
