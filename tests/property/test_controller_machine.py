"""Whatever is asked of the controller, in whatever order, the rule book holds after each batch.

Method: any sequence of requests of brokers and admins, right and wrong, of silences, failovers and
the controller's own duties, against the pure decisions. The driver judges each decision (see
controller_driver.py). Batches are so small in some lives that decisions of the controller's own
become metadata transactions of several batches.

PROPERTY_EXAMPLES is how many lives are tried.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from kraftpy.metadata_log import batches
from kraftpy.metadata_log.image import Partition
from kraftpy.quorum import proposal
from kraftpy.quorum.control.activity import is_active
from kraftpy.quorum.control.partition_index import PartitionKey
from kraftpy.types import NO_LEADER, BrokerId
from tests.property import controller_actions as act
from tests.property.controller_driver import Driver
from tests.unit.control.cluster import directory, wire

EXAMPLES_MAX = int(os.environ.get("PROPERTY_EXAMPLES", "200"))
STEPS_MAX = 40

BROKERS = st.integers(1, 5)
SEVERAL = st.lists(BROKERS, min_size=1, max_size=4, unique=True)
NAMES = st.sampled_from(["orders", "logs", "a.b", "a_b"])
LIVES = st.integers(1, 3)
# Mostly what a correct peer says.
SELDOM = st.sampled_from([False, False, False, True])
OFF = st.sampled_from([0, 0, 0, 0, -1, 1])
NUMBERS = st.integers(0, 99)
MIN_INSYNC = st.sampled_from(["1", "2", "3", None])
BOOLEAN = st.sampled_from(["true", "false", None])


@contextmanager
def batches_of(records_max: int) -> Iterator[None]:
    """Batches of at most so many records."""
    with (
        patch.object(proposal, "BATCH_RECORDS_MAX", records_max),
        patch.object(batches, "BATCH_RECORDS_MAX", records_max),
    ):
        yield


class ControllerMachine(RuleBasedStateMachine):
    driver: Driver

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver()
        self._records_max = 10_000

    @initialize(
        min_insync=st.sampled_from([1, 2]),
        unclean=SELDOM,
        elr=st.booleans(),
        running=st.sampled_from([5, 5, 5, 4, 3, 1, 0]),
        records_max=st.sampled_from([10_000, 10_000, 3]),
        topics=st.sampled_from([2, 2, 1, 0]),
        seed=st.integers(0, 3),
    )
    def begin(
        self,
        min_insync: int,
        unclean: bool,
        elr: bool,
        running: int,
        records_max: int,
        topics: int,
        seed: int,
    ) -> None:
        self.driver = Driver(
            seed, min_insync_replicas=min_insync, unclean_leader_election_enable=unclean
        )
        if not elr:
            act.set_elr(self.driver, False)
        act.start(self.driver, *range(1, running + 1))
        for name in ("orders", "logs")[:topics]:
            act.create(self.driver, name, partitions=3, factor=min(3, running) or 1)
        self._records_max = records_max

    def do(self, action: Any, *args: Any, **kwargs: Any) -> Any:
        with batches_of(self._records_max):
            return action(self.driver, *args, **kwargs)

    def pick(self, number: int) -> tuple[PartitionKey, Partition]:
        found = self.driver.partitions()
        return found[number % len(found)]

    def has_partitions(self) -> bool:
        return bool(self.driver.image.topics)

    # -- brokers ----------------------------------------------------------------------------------

    @rule(broker=BROKERS, life=LIVES, clean=st.booleans(), version=st.integers(0, 4), alone=SELDOM)
    def register(self, broker: int, life: int, clean: bool, version: int, alone: bool) -> None:
        self.do(act.register, broker, life, clean=clean, version=version, dirs=1 if alone else 2)

    @rule(broker=BROKERS, life=LIVES, clean=st.booleans())
    def restart(self, broker: int, life: int, clean: bool) -> None:
        """After its session: else the registration is a duplicate."""
        self.do(act.silence, broker)
        self.do(act.register, broker, life, clean=clean)
        self.do(act.heartbeat, broker)

    @rule(broker=BROKERS, dirs_taken=SELDOM, wrong_cluster=SELDOM)
    def register_wrongly(self, broker: int, dirs_taken: bool, wrong_cluster: bool) -> None:
        changed: dict[str, Any] = {}
        if dirs_taken:
            changed["log_dirs"] = [wire(directory(broker % 5 + 1))]
        if wrong_cluster:
            changed["cluster_id"] = "another"
        self.do(act.register, broker, 3, **changed)

    @rule(broker=BROKERS, behind=SELDOM, fence=SELDOM, stop=SELDOM, off=OFF)
    def heartbeat(self, broker: int, behind: bool, fence: bool, stop: bool, off: int) -> None:
        epoch = act.epoch_of(self.driver, broker)
        self.do(
            act.heartbeat,
            broker,
            offset=epoch - 1 if behind else act.NEWEST,
            want_fence=fence,
            want_shut_down=stop,
            epoch=epoch + off,
        )

    @rule(broker=BROKERS)
    def unfence(self, broker: int) -> None:
        self.do(act.heartbeat, broker)

    @rule(broker=BROKERS, offline=st.sampled_from([[0], [1], [0, 1]]), fence=SELDOM)
    def lose_directories(self, broker: int, offline: list[int], fence: bool) -> None:
        self.do(act.heartbeat, broker, offline=offline, want_fence=fence)

    @precondition(has_partitions)
    @rule(number=NUMBERS, directory=st.integers(0, 2), who=NUMBERS)
    def assign_directory(self, number: int, directory: int, who: int) -> None:
        key, partition = self.pick(number)
        broker = partition.replicas[who % len(partition.replicas)]
        self.do(act.assign, broker, key, directory)

    @rule(silent=SEVERAL)
    def silence(self, silent: list[int]) -> None:
        self.do(act.silence, *silent)

    @rule(broker=BROKERS, really=SELDOM)
    def unregister(self, broker: int, really: bool) -> None:
        if really:
            self.do(act.unregister, broker)

    @rule()
    def fail_over(self) -> None:
        self.driver.fail_over()

    # -- topics -----------------------------------------------------------------------------------

    @rule(
        names=st.lists(NAMES, min_size=1, max_size=2),
        partitions=st.integers(0, 3),
        factor=st.integers(0, 4),
        version=st.integers(2, 7),
        validate_only=SELDOM,
        min_insync=MIN_INSYNC,
    )
    def create(
        self,
        names: list[str],
        partitions: int,
        factor: int,
        version: int,
        validate_only: bool,
        min_insync: str | None,
    ) -> None:
        configs = [("min.insync.replicas", min_insync)] if min_insync else []
        self.do(
            act.create,
            *names,
            partitions=partitions,
            factor=factor,
            version=version,
            validate_only=validate_only,
            configs=configs,
        )

    @rule(name=NAMES, placed=st.lists(SEVERAL, min_size=1, max_size=2))
    def create_manually(self, name: str, placed: list[list[int]]) -> None:
        self.do(act.create, name, placed=placed)

    @rule(name=NAMES, by_id=st.booleans(), really=SELDOM)
    def delete(self, name: str, by_id: bool, really: bool) -> None:
        if really:
            self.do(act.delete, name, by_id=by_id)

    @rule(name=NAMES, count=st.integers(1, 4))
    def grow(self, name: str, count: int) -> None:
        self.do(act.grow, name, count)

    @rule(name=NAMES, min_insync=MIN_INSYNC, whole=st.booleans())
    def set_min_insync(self, name: str, min_insync: str | None, whole: bool) -> None:
        if whole:
            configs = [("min.insync.replicas", min_insync)] if min_insync else []
            self.do(act.replace_configs, name, configs)
        else:
            self.do(act.configure, name, "min.insync.replicas", min_insync)

    @rule(name=NAMES, allowed=BOOLEAN)
    def allow_unclean(self, name: str, allowed: str | None) -> None:
        self.do(act.configure, name, "unclean.leader.election.enable", allowed)

    @rule(min_insync=MIN_INSYNC)
    def set_cluster_min_insync(self, min_insync: str | None) -> None:
        self.do(act.configure, "", "min.insync.replicas", min_insync, resource_type=4)

    # -- partitions -------------------------------------------------------------------------------

    @precondition(has_partitions)
    @rule(number=NUMBERS)
    def catch_up(self, number: int) -> None:
        """What a healthy leader does: all active replicas join, and recovery ends."""
        key, partition = self.pick(number)
        if partition.leader == NO_LEADER:
            return
        image = self.driver.image
        isr = [each for each in partition.replicas if is_active(image, each)]
        self.do(act.alter, key, isr, member_epoch=0, recovery=0)

    @precondition(has_partitions)
    @rule(
        number=NUMBERS,
        members=SEVERAL,
        epochs=st.tuples(OFF, OFF),
        member_epoch=st.sampled_from([0, 0, None, -1, 1]),
        recovery=st.sampled_from([None, None, 0, 1]),
        version=st.sampled_from([2, 3]),
        leader=st.sampled_from([None, None, None, 1, 2]),
    )
    def alter(
        self,
        number: int,
        members: list[int],
        epochs: tuple[int, int],
        member_epoch: int | None,
        recovery: int | None,
        version: int,
        leader: int | None,
    ) -> None:
        key, partition = self.pick(number)
        isr = sorted({*members, max(partition.leader, 1)})
        if number % 2:
            isr = [each for each in isr if each in partition.replicas]
        self.do(
            act.alter,
            key,
            isr,
            leader=leader,
            epochs=epochs,
            member_epoch=member_epoch,
            recovery=recovery,
            version=version,
        )

    @precondition(has_partitions)
    @rule(number=NUMBERS, unclean=st.booleans(), everything=st.booleans())
    def elect(self, number: int, unclean: bool, everything: bool) -> None:
        keys = None if everything else [self.pick(number)[0]]
        self.do(act.elect, keys, unclean=unclean)

    @precondition(has_partitions)
    @rule(number=NUMBERS, wanted=SEVERAL)
    def reassign(self, number: int, wanted: list[int]) -> None:
        self.do(act.reassign, self.pick(number)[0], wanted)

    @precondition(has_partitions)
    @rule(number=NUMBERS, wanted=SEVERAL)
    def reassign_and_catch_up(self, number: int, wanted: list[int]) -> None:
        alive = [each for each in wanted if is_active(self.driver.image, BrokerId(each))]
        self.reassign(number, alive or wanted)
        self.catch_up(number)

    @rule(life=LIVES)
    def heal(self, life: int) -> None:
        """Everybody comes back, and all replicas catch up."""
        for broker in range(1, 6):
            self.do(act.register, broker, life)
            self.do(act.heartbeat, broker)
        for number in range(len(self.driver.partitions())):
            self.catch_up(number)

    @precondition(has_partitions)
    @rule(dying=st.permutations([1, 2, 3, 4, 5]), back=BROKERS, clean=st.booleans())
    def outage(self, dying: list[int], back: int, clean: bool) -> None:
        """All go, one after the other, and one comes back."""
        for broker in dying:
            self.do(act.silence, broker)
        self.do(act.register, back, 4, clean=clean)
        self.do(act.heartbeat, back)

    @precondition(has_partitions)
    @rule(number=NUMBERS)
    def shrink_to_the_leader(self, number: int) -> None:
        key, partition = self.pick(number)
        if partition.leader != NO_LEADER:
            self.do(act.alter, key, [partition.leader], member_epoch=0)

    @precondition(has_partitions)
    @rule(number=NUMBERS)
    def cancel(self, number: int) -> None:
        keys = self.driver.index.reassigning() or [self.pick(number)[0]]
        self.do(act.reassign, keys[number % len(keys)], None)

    @rule(duty=st.sampled_from([act.balance, act.elect_unclean]))
    def do_a_duty(self, duty: Any) -> None:
        self.do(duty)

    # -- the rest of the image --------------------------------------------------------------------

    @rule(broker=BROKERS, off=OFF)
    def producer_ids(self, broker: int, off: int) -> None:
        self.do(act.producer_ids, BrokerId(broker), off)

    @rule(is_on=st.booleans())
    def set_elr(self, is_on: bool) -> None:
        self.do(act.set_elr, is_on)

    @rule(user=st.sampled_from([None, "alice"]), remove=st.booleans(), kind=st.integers(0, 3))
    def set_users(self, user: str | None, remove: bool, kind: int) -> None:
        if kind == 0:
            self.do(act.set_quota, user, 1000.0, remove)
        elif kind == 1:
            self.do(act.set_scram, user or "bob", 1 + int(remove), not remove)
        elif kind == 2:
            self.do(act.create_acl, user or "orders", 3 + int(remove))
        else:
            self.do(act.delete_acls, user)


TestController = ControllerMachine.TestCase
TestController.settings = settings(
    max_examples=EXAMPLES_MAX,
    stateful_step_count=STEPS_MAX,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
