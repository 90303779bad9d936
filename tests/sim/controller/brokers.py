"""Simulated brokers: they register, heartbeat, follow the log with a lag, and lead partitions.

A broker has lives, each with an incarnation id of its own. It is down; it starts and registers; it
serves; it stops in good order and knows its epoch afterwards, or it dies and knows nothing. What it
sent in an earlier life may still be under way, and sometimes an earlier life goes on beside the
next. It asks whichever node it takes for the active controller, and asks wrongly now and then.
"""

import random
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.image import EMPTY, ClusterImage, Partition
from kraftpy.quorum.control.features import supported_features
from kraftpy.types import BrokerId, TopicId, Uuid, to_wire_uuid, uuid_text
from kraftpy.wire import apis
from tests.sim.controller.voter import CLUSTER_ID
from tests.sim.plan import MS

if TYPE_CHECKING:
    from tests.sim.controller.parties import Parties

_WRONG = 0.12
_AGAIN = 0.4
# What a broker may hear in answer to a registration; anything else is a surprise.
_REGISTRATION_CODES = (
    ErrorCode.none,
    ErrorCode.duplicate_broker_registration,
    ErrorCode.not_controller,
    ErrorCode.request_timed_out,
    ErrorCode.throttling_quota_exceeded,
)
_UNKNOWN_TO_CONTROLLER = (ErrorCode.stale_broker_epoch, ErrorCode.broker_id_not_registered)


class SimBroker:
    """One broker through all its lives."""

    def __init__(self, parties: "Parties", broker_id: int) -> None:
        self.id = broker_id
        self.name = f"broker-{broker_id}"
        self.life = 0
        self.epoch: int | None = None
        self.is_up = False
        self.is_gone = False  # For good.
        self.image: ClusterImage = EMPTY
        self._parties = parties
        self._sim = parties.sim
        self._rng = random.Random(f"{parties.sim.plan.seed}/broker/{broker_id}")
        self._known_epoch = -1  # From a stop in good order.
        self._stopping = False
        self._down_us = 0
        self._is_asking = False
        self._paused_until_us = 0
        self._lag_until_us = 0
        self._target = 1

    @property
    def is_serving(self) -> bool:
        return self.is_up and self.epoch is not None and not self._stopping

    # -- lives ----------------------------------------------------------------------------

    def start(self) -> None:
        if self.is_up or self.is_gone:
            return
        self.life += 1
        self.is_up, self._stopping, self._is_asking = True, False, False
        self.epoch, self.image = None, EMPTY
        life = self.life
        self._every(life, self._sim.knobs.broker_heartbeat_ms, self._beat)
        self._every(life, max(20, self._sim.knobs.replay_delay_ms), self._replay)
        self._every(life, 2 * self._sim.knobs.broker_heartbeat_ms, self._lead)
        self._sim.trace("broker", self.id, self.life, self._known_epoch)

    def die(self, for_us: int) -> None:
        """As kill -9: what it had is in doubt."""
        if self.is_up:
            self._sim.counts["broker deaths"] += 1
            self._go_down(for_us, known_epoch=-1)

    def begin_to_stop(self, for_us: int) -> None:
        if self.is_serving:
            self._stopping, self._down_us = True, for_us

    def pause(self, until_us: int) -> None:
        self._paused_until_us = until_us

    def lag(self, until_us: int) -> None:
        self._lag_until_us = until_us

    def come_back_beside_itself(self) -> None:
        """The next life begins while requests of this one are still being sent."""
        if not self.is_serving:
            return
        zombie = SimBroker(self._parties, self.id)
        zombie.life, zombie.epoch, zombie.image = self.life, self.epoch, self.image
        zombie.is_up, zombie.is_gone = True, True
        zombie._rng = random.Random(f"{self._sim.plan.seed}/zombie/{self.id}/{self.life}")
        zombie._target = self._target
        for _ in range(6):
            wait_us = int(zombie._rng.random() * 3000 * MS)
            self._sim.at(self._sim.now_us + wait_us, zombie._haunt)
        self.die(10 * MS)

    def _haunt(self) -> None:
        if self._rng.random() < 0.5:
            self._heartbeat(self.life)
        else:
            self._lead(self.life)

    def leave(self) -> None:
        """For good, without a word."""
        self.is_gone = True
        self.die(0)

    def heal(self) -> None:
        self._paused_until_us = self._lag_until_us = 0
        self.start()

    def _go_down(self, for_us: int, *, known_epoch: int) -> None:
        self.is_up = False
        self.life += 1
        self.epoch = None
        self._known_epoch = known_epoch
        self._sim.at(self._sim.now_us + for_us + 50 * MS, self.start)

    def _every(self, life: int, interval_ms: int, action: Any) -> None:
        wait_us = int(interval_ms * MS * (0.5 + self._rng.random()))
        due_us = max(self._sim.now_us + wait_us, self._paused_until_us)

        def run() -> None:
            if life != self.life or not self.is_up:
                return
            if self._paused_until_us <= self._sim.now_us:
                action(life)
            self._every(life, interval_ms, action)

        self._sim.at(due_us, run)

    # -- the controller -------------------------------------------------------------------

    def _ask(self, api: tuple[int, int], values: dict[str, Any], done: Any) -> None:
        self._parties.network.ask(self.name, self._target, api, values, done)

    def _look_elsewhere(self, code: ErrorCode | None) -> None:
        if code in (None, ErrorCode.not_controller, ErrorCode.request_timed_out):
            self._target = self._parties.believed(self._rng)

    def _beat(self, life: int) -> None:
        if self._is_asking:
            return
        self._is_asking = True
        if self.epoch is None:
            self._register(life)
        else:
            self._heartbeat(life)

    def _register(self, life: int) -> None:
        features = [
            {
                "name": each.name,
                "min_supported_version": each.min_supported_version,
                "max_supported_version": each.max_supported_version,
            }
            for each in supported_features()
        ]
        values = {
            "broker_id": self.id,
            "cluster_id": uuid_text(CLUSTER_ID),
            "incarnation_id": to_wire_uuid(incarnation(self.id, life)),
            "listeners": [],
            "features": features,
            "rack": f"rack-{self.id % 2}",
            "log_dirs": [to_wire_uuid(Uuid(b"D" * 15 + bytes([self.id])))],
            "previous_broker_epoch": self._known_epoch,
            "is_migrating_zk_broker": False,
        }
        self._ask((apis.BROKER_REGISTRATION, 4), values, lambda r: self._registered(life, r))

    def _registered(self, life: int, response: Any) -> None:
        if life != self.life:
            return
        self._is_asking = False
        code = None if response is None else response.error_code
        if code is ErrorCode.none:
            self.epoch = response.broker_epoch
        elif code is not None and code not in _REGISTRATION_CODES:
            self._sim.oracles.violate("no surprises", f"broker {self.id} registers: {code}")
        self._look_elsewhere(code)

    def _heartbeat(self, life: int) -> None:
        values: dict[str, Any] = {
            "broker_id": self.id,
            "broker_epoch": self.epoch,
            "current_metadata_offset": self.image.end_offset - 1,
            "want_fence": self._rng.random() < 0.01 and not self._parties.is_quiet,
            "want_shut_down": self._stopping,
            "offline_log_dirs": [],
            "cordoned_log_dirs": None,
        }
        self._ask((apis.BROKER_HEARTBEAT, 2), values, lambda r: self._heard(life, r))

    def _heard(self, life: int, response: Any) -> None:
        if life != self.life:
            return
        self._is_asking = False
        code = None if response is None else response.error_code
        if code in _UNKNOWN_TO_CONTROLLER and not self.is_gone:
            self.die(0)  # Another life of it registered, or an operator removed it.
        elif code is ErrorCode.none and response.should_shut_down and self._stopping:
            self._sim.counts["broker stops"] += 1
            assert self.epoch is not None
            self._go_down(self._down_us, known_epoch=self.epoch)
        self._look_elsewhere(code)

    def _replay(self, _life: int) -> None:
        """What is committed, some of it or all."""
        ledger = self._sim.oracles.ledger
        if self._lag_until_us > self._sim.now_us or not ledger:
            return
        behind = 1
        if self._rng.random() < 0.3 and not self._parties.is_quiet:
            behind = self._rng.randint(1, min(20, len(ledger)))
        image = ledger[-behind].image
        if image.end_offset > self.image.end_offset:
            self.image = image

    # -- what it leads --------------------------------------------------------------------

    def _lead(self, _life: int) -> None:
        rng, quiet = self._rng, self._parties.is_quiet
        if self.epoch is None:
            return
        if rng.random() < 0.15 and not quiet:
            wrong = rng.random() < _WRONG
            values = {"broker_id": self.id, "broker_epoch": self.epoch - int(wrong)}
            for _ in range(rng.choice((1, 1, 3))):
                self._ask((apis.ALLOCATE_PRODUCER_IDS, 0), values, lambda _: None)
        led = [
            (topic.topic_id, number, partition)
            for topic in sorted(self.image.topics.values(), key=lambda each: each.topic_id)
            for number, partition in sorted(topic.partitions.items())
            if partition.leader == self.id
        ]
        if quiet:
            led = [each for each in led if self._wanted_isr(each[2]) != set(each[2].isr)]
        elif led:
            led = [rng.choice(led)]
        for topic_id, number, partition in led:
            self._alter(topic_id, number, partition)

    def _wanted_isr(self, partition: Partition) -> set[BrokerId]:
        if partition.leader_recovery_state != r.RECOVERED:
            return {BrokerId(self.id), BrokerId(-1)}  # Never what it is: recovery comes first.
        return {
            each
            for each in partition.replicas
            if each in self.image.brokers
            and not self.image.brokers[each].fenced
            and not self.image.brokers[each].in_controlled_shutdown
        } | {BrokerId(self.id)}

    def _alter(self, topic_id: TopicId, number: int, partition: Partition) -> None:
        rng, quiet = self._rng, self._parties.is_quiet
        isr = self._wanted_isr(partition) - {BrokerId(-1)}
        if rng.random() < 0.4 and not quiet:
            isr -= {each for each in sorted(isr) if each != self.id and rng.random() < 0.6}
        off = {"leader": 0, "partition": 0, "member": 0, "broker": 0}
        if rng.random() < _WRONG and not quiet:
            off[rng.choice(sorted(off))] = rng.choice((-1, -1, 1))
        brokers = self.image.brokers
        change = {
            "partition_index": number,
            "leader_epoch": partition.leader_epoch + off["leader"],
            "new_isr_with_epochs": [
                {
                    "broker_id": each,
                    "broker_epoch": brokers[each].broker_epoch + off["member"]
                    if each in brokers
                    else -1,
                }
                for each in sorted(isr)
            ],
            "leader_recovery_state": r.RECOVERED,
            "partition_epoch": partition.partition_epoch + off["partition"],
        }
        assert self.epoch is not None
        values = {
            "broker_id": self.id,
            "broker_epoch": self.epoch + off["broker"],
            "topics": [{"topic_id": to_wire_uuid(topic_id), "partitions": [change]}],
        }
        self._send_alter(self.life, values)

    def _send_alter(self, life: int, values: dict[str, Any]) -> None:
        def done(response: Any) -> None:
            code = None if response is None else response.error_code
            is_unsure = code in (None, ErrorCode.request_timed_out)
            if is_unsure and life == self.life and self._rng.random() < _AGAIN:
                self._send_alter(life, values)

        self._ask((apis.ALTER_PARTITION, 3), values, done)


def incarnation(broker_id: int, life: int) -> Uuid:
    return Uuid(b"I" * 8 + broker_id.to_bytes(2, "big") + life.to_bytes(6, "big"))
