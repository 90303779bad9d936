"""What must hold of controllers, from outside of them; on top of what must hold of the quorum.

Of the log: the rule book (kraftpy.audit.rules) after each committed batch, with what only the
requester knew as evidence; every batch is one that a controller decided, and the image after it is
the one that this controller had; every node replays to the same. A metadata transaction is ended by
who began it or aborted by the next controller, first of all.

Of answers: what was acknowledged is committed, what was refused never is, one of unknown outcome
may be either; each request is answered once. What answers say of epochs, blocks of producer ids,
ISRs, topics and configs agrees with the log and with each other (answers.py, history.py).

Of time: nobody is fenced before a session without a word, counted since this controller leads.
"""

from collections import Counter, defaultdict
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from kraftpy.audit.rules import Defaults, LogAudit, check_image
from kraftpy.errors import FatalFault, NotController, OutcomeUnknown
from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.batches import metadata_records
from kraftpy.metadata_log.image import EMPTY, ClusterImage, Partition
from kraftpy.quorum.control.partition_index import PartitionIndex
from kraftpy.storage.record_batch import BatchHeader, read_header
from tests.sim.controller.answers import Answers
from tests.sim.controller.attempt import Attempt, Decided, code_of
from tests.sim.controller.evidence import evidence_of
from tests.sim.controller.history import Register
from tests.sim.oracles import Entry, NodeFacts, Oracles, Proposal

if TYPE_CHECKING:
    from tests.sim.controller.voter import ControllerNode

CLIENT_METRICS = 16  # As a type of resources.


class ControllerOracles(Oracles):
    """All rules of both modes."""

    def __init__(self, facts: dict[int, NodeFacts], defaults: Defaults, session_ms: int) -> None:
        super().__init__(facts)
        self.attempts: list[Attempt] = []
        self.topics: defaultdict[str, Register] = defaultdict(Register)
        self.configs: defaultdict[str, Register] = defaultdict(Register)
        # Every state that a partition ever had, by its epoch, and every life of a broker.
        self.partition_states: dict[tuple[Any, int, int], Partition] = {}
        self.lives: dict[int, tuple[int, Any]] = {}
        self.unknown = 0
        self.refusals = 0
        self.counts: Counter[str] = Counter()
        self._defaults = defaults
        self._session_ms = session_ms
        self._audit = LogAudit(defaults=defaults)
        self._decided: dict[tuple[int, int], list[Decided]] = defaultdict(list)
        self._transaction_epoch = -1
        self._answers = Answers(self)

    @property
    def image(self) -> ClusterImage:
        return self.ledger[-1].image if self.ledger else EMPTY

    # -- what controllers do --------------------------------------------------------------

    def begins_to_lead(
        self, node_id: int, epoch: int, image: ClusterImage, index: PartitionIndex
    ) -> None:
        due = self.image_at(image.end_offset)
        if due != image or image.epoch != epoch:
            self.violate(
                "leads with all that is committed",
                f"node {node_id} leads in epoch {epoch} with an image of {image.epoch} that ends "
                f"at {image.end_offset}",
            )
        fresh = PartitionIndex(image)
        for name in ("leaderless", "reassigning", "not_preferred"):
            if index.image != image or getattr(index, name)() != getattr(fresh, name)():
                self.violate("leads with the index of its image", f"node {node_id}: {name}")

    def replayed(self, node_id: int, image: ClusterImage) -> None:
        due = self.image_at(image.end_offset)
        if image.end_offset and due != image:
            found = "no such offset" if due is None else str(due.diff(image))
            self.violate("all replay the same", f"node {node_id} at {image.end_offset}: {found}")

    def decided(self, node: "ControllerNode", data: bytes, epoch: int, base_offset: int) -> Decided:
        """A controller proposes a batch, and has replayed it."""
        host = node.host
        assert host is not None
        image = host.controller.image
        assert image is not None
        proposal = Proposal(f"{node.id}/{node.life}/{epoch}/{base_offset}", node.id, epoch, 0)
        decided = Decided(proposal, data, host.attempt, image)
        self._decided[epoch, base_offset].append(decided)
        if host.attempt is not None:
            host.attempt.decided.append(decided)
        else:
            self._check_sessions(node, data)
        return decided

    def _check_sessions(self, node: "ControllerNode", data: bytes) -> None:
        assert node.host is not None
        for record in metadata_records(read_header(data), memoryview(data)):
            if not isinstance(record, r.BrokerRegistrationChangeRecord) or record.fenced != r.FENCE:
                continue
            self.counts["fences"] += 1
            silent_ms = node.host.silent_ms(record.broker_id)
            if silent_ms <= self._session_ms:
                self.violate(
                    "a session is given to all",
                    f"node {node.id} fences broker {record.broker_id} after {silent_ms} ms",
                )

    def settled(self, decided: Decided, future: Future[int]) -> None:
        """The engine says what became of a batch."""
        error = future.exception(0)
        if error is None:
            self.acknowledged(decided.proposal, future.result(0))
        elif isinstance(error, NotController):
            self.refused(decided.proposal)
        elif not isinstance(error, OutcomeUnknown | FatalFault):
            self.violate("no surprises", f"{decided.proposal}: {error!r}")

    def barrier(self, node_id: int, epoch: int) -> Proposal:
        return Proposal("", node_id, epoch, -1, self.acked_end)

    def read_settled(self, barrier: Proposal, future: Future[int]) -> None:
        if future.exception(0) is None:
            self.read(barrier, future.result(0))

    # -- what is committed ----------------------------------------------------------------

    def identify(self, header: BatchHeader, data: bytes, entry: Entry) -> None:
        place = (header.leader_epoch, header.base_offset)
        found = [each for each in self._decided[place] if each.data == data]
        if not found:
            self.violate("somebody decided it", f"epoch {place[0]}, offset {place[1]}")
            return
        decided = found[-1]
        if decided.proposal.id in self.refused_ids:
            self.violate("definite", f"{decided.proposal.id} was refused and is committed")
        self.committed_ids[decided.proposal.id] = entry
        before = self.ledger[-2].image if len(self.ledger) > 1 else EMPTY
        if decided.image.end_offset == entry.end and decided.image != entry.image:
            self.violate(
                "speculative is committed",
                f"{decided.proposal.id}: {decided.image.diff(entry.image)}",
            )
        records = list(metadata_records(header, memoryview(data)))
        self.counts["decisions"] += decided.image.end_offset == entry.end
        self._check_transaction(before, records[0], header.leader_epoch)
        self._check_rules(before, entry, records, decided.attempt)
        self._remember(before, entry, records)

    def _check_transaction(self, before: ClusterImage, first: Any, epoch: int) -> None:
        if before.transaction is None:
            self._transaction_epoch = epoch
        elif epoch != self._transaction_epoch and not isinstance(first, r.AbortTransactionRecord):
            self.violate("an open transaction is aborted", f"epoch {epoch} begins with {first}")

    def _check_rules(
        self,
        before: ClusterImage,
        entry: Entry,
        records: list[r.MetadataRecord],
        attempt: Attempt | None,
    ) -> None:
        broken = self._audit.batch(
            records,
            base_offset=entry.base,
            epoch=entry.place[0],
            evidence=evidence_of(before, attempt),
        )
        for violation in broken:
            self.violate(f"{violation.rule.code} {violation.rule.name}", str(violation))

    def check_image(self) -> None:
        for violation in check_image(self.image, defaults=self._defaults):
            self.violate(f"{violation.rule.code} {violation.rule.name}", str(violation))

    def _remember(
        self, before: ClusterImage, entry: Entry, records: list[r.MetadataRecord]
    ) -> None:
        for record in records:
            self.counts[f"committed {type(record).__name__}"] += 1
            self._remember_record(before, entry, record)
        if before.topics is entry.image.topics:
            return
        for topic_id, topic in entry.image.topics.items():
            if before.topics.get(topic_id) is not topic:
                for number, partition in topic.partitions.items():
                    key = (topic_id, number, partition.partition_epoch)
                    self.partition_states[key] = partition

    def _remember_record(self, before: ClusterImage, entry: Entry, record: Any) -> None:
        match record:
            case r.TopicRecord():
                self.topics[record.name].write(entry.base, record.topic_id)
            case r.RemoveTopicRecord():
                name = before.topics[record.topic_id].name
                self.topics[name].write(entry.base, None)
            case r.ConfigRecord() if record.resource_type == CLIENT_METRICS:
                self.configs[record.resource_name].write(entry.base, record.value)
            case r.RegisterBrokerRecord():
                life = (record.broker_id, record.incarnation_id)
                if self.lives.setdefault(record.broker_epoch, life) != life:
                    self.violate("epochs are unique", f"{record.broker_epoch}: {life}")

    # -- requests and answers -------------------------------------------------------------

    def asked(self, node: "ControllerNode", api_key: int, message: Any) -> Attempt:
        attempt = Attempt(len(self.attempts), api_key, message, node.id, node.life, self.now_us)
        self.attempts.append(attempt)
        register = self._answers.register_of(attempt)
        if register is not None:
            attempt.floor = register.floor
        return attempt

    def answered(self, attempt: Attempt, response: Any) -> None:
        if attempt.is_answered:
            self.violate("answered once", f"{attempt.message}: {response}")
        attempt.is_answered = True
        self.counts["answers"] += 1
        code = code_of(response)
        missing = [
            each.proposal.id
            for each in attempt.decided
            if each.proposal.id not in self.committed_ids
        ]
        if code is ErrorCode.none:
            if missing:
                self.violate("acknowledged is committed", f"{missing} of {attempt.message}")
        elif code is ErrorCode.request_timed_out:
            self.unknown += 1
            return
        else:
            self.refusals += 1
            self._refuse(attempt, code)
        self._answers.check(attempt, code, response)

    def _refuse(self, attempt: Attempt, code: ErrorCode) -> None:
        for each in attempt.decided:
            if each.proposal.id in self.committed_ids:
                self.violate("definite", f"{attempt.message} has {code}, and is committed")
            self.refused_ids.add(each.proposal.id)
