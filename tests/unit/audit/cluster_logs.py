"""Logs about brokers, topics, producer ids, features and transactions."""

from kraftpy.audit.rules.view import ELR_FEATURE
from kraftpy.metadata_log import records as r
from kraftpy.types import NO_LEADER, BrokerId
from tests.unit.audit.cases import breaks, keeps
from tests.unit.audit.logs import (
    ORDERS,
    OTHER,
    Log,
    brokers,
    cluster,
    config,
    directory,
    ids,
    level,
    new_partition,
    topic,
)

# -- brokers ---------------------------------------------------------------------------------------


@breaks(26)
def an_epoch_from_elsewhere() -> Log:
    log = cluster()
    log.write(log.register(5, broker_epoch=500))
    return log


@breaks(26)
def the_same_incarnation_with_a_new_epoch() -> Log:
    log = cluster()
    log.write(log.register(4))
    return log


@keeps(26)
def clean_up_before_the_registration() -> Log:
    log = cluster()
    log.write(log.change(isr=ids(1, 2)), log.register(3, 2))
    return log


@keeps(26, 45)
def a_registration_in_a_transaction_of_two_batches() -> Log:
    log = cluster()
    begun_at = log.end_offset
    log.write(r.BeginTransactionRecord(), log.change(isr=ids(1, 2)))
    log.write(log.register(3, 2, broker_epoch=begun_at), r.EndTransactionRecord())
    return log


@keeps(26, 28)
def the_same_incarnation_again() -> Log:
    log = cluster()
    log.write(log.register(4, broker_epoch=log.epoch_of(4), fenced=False))
    return log


@breaks(27)
def two_brokers_with_one_epoch() -> Log:
    log = cluster()
    log.write(log.register(5), log.register(6))
    return log


@breaks(27, 26)
def an_epoch_that_falls_after_unregistration() -> Log:
    log = cluster()
    epoch = log.epoch_of(4)
    log.write(r.UnregisterBrokerRecord(broker_id=BrokerId(4), broker_epoch=epoch))
    log.write(log.register(4, 2, broker_epoch=epoch))
    return log


@keeps(27)
def a_new_incarnation_with_a_later_epoch() -> Log:
    log = cluster()
    log.write(log.register(4, 2))
    return log


@breaks(28)
def a_new_incarnation_that_is_not_fenced() -> Log:
    log = cluster()
    log.write(log.register(5, fenced=False))
    return log


@breaks(29)
def a_fence_for_a_stale_epoch() -> Log:
    log = cluster()
    log.write(log.broker(4, broker_epoch=log.epoch_of(4) - 1, fenced=r.FENCE))
    return log


@breaks(29)
def an_unregistration_of_nobody() -> Log:
    log = cluster()
    log.write(r.UnregisterBrokerRecord(broker_id=BrokerId(9), broker_epoch=1))
    return log


@keeps(29)
def fences_of_both_kinds() -> Log:
    log = cluster()
    log.write(r.FenceBrokerRecord(id=BrokerId(4), epoch=log.epoch_of(4)))
    log.write(r.UnfenceBrokerRecord(id=BrokerId(4), epoch=log.epoch_of(4)))
    log.write(log.fence(4))
    return log


@breaks(30)
def a_fence_before_its_changes() -> Log:
    log = cluster()
    log.write(log.fence(2), log.change(isr=ids(1, 3)))
    return log


@breaks(30)
def an_election_before_its_unfence() -> Log:
    log = cluster(1)
    log.write(log.change(leader=NO_LEADER), log.fence(1))
    log.write(log.change(leader=BrokerId(1)), log.unfence(1))
    return log


@breaks(30)
def a_registration_before_its_clean_up() -> Log:
    log = cluster()
    log.write(log.register(3, 2), log.change(isr=ids(1, 2)))
    return log


@keeps(30, 32)
def a_controlled_shutdown() -> Log:
    log = cluster()
    log.write(
        log.broker(1, in_controlled_shutdown=r.SHUTTING_DOWN),
        log.change(isr=ids(2, 3), leader=BrokerId(2)),
    )
    log.write(log.fence(1))
    return log


@breaks(31)
def an_unfence_too_early() -> Log:
    log = cluster()
    log.write(log.register(5))
    log.write(log.unfence(5), caught_up={BrokerId(5): log.epoch_of(5) - 1})
    return log


@keeps(31)
def an_unfence_when_caught_up() -> Log:
    log = cluster()
    log.write(log.register(5))
    log.write(log.unfence(5), caught_up={BrokerId(5): log.epoch_of(5)})
    return log


@breaks(32)
def a_shutdown_that_is_taken_back() -> Log:
    log = cluster()
    log.write(log.broker(4, in_controlled_shutdown=r.SHUTTING_DOWN))
    log.write(log.register(4, broker_epoch=log.epoch_of(4), fenced=False))
    return log


@breaks(32)
def a_shutdown_that_is_unfenced() -> Log:
    log = cluster()
    log.write(log.broker(4, in_controlled_shutdown=r.SHUTTING_DOWN))
    log.write(log.fence(4))
    log.write(log.unfence(4))
    return log


@breaks(33)
def a_log_directory_of_two_brokers() -> Log:
    log = cluster()
    log.write(log.register(5, log_dirs=(directory(4),)))
    return log


@keeps(33)
def a_log_directory_that_moved() -> Log:
    log = cluster()
    log.write(log.broker(4, log_dirs=(directory(8),)))
    log.write(log.register(5, log_dirs=(directory(4),)))
    return log


# -- topics ----------------------------------------------------------------------------------------


@breaks(24)
def a_change_after_the_removal() -> Log:
    log = cluster()
    change = log.change(isr=ids(1, 2))
    log.write(r.RemoveTopicRecord(topic_id=ORDERS))
    log.write(change)
    return log


@breaks(24)
def a_partition_made_twice() -> Log:
    log = cluster()
    log.write(new_partition())
    return log


@breaks(24)
def a_topic_removed_twice() -> Log:
    log = cluster()
    log.write(r.RemoveTopicRecord(topic_id=ORDERS))
    log.write(r.RemoveTopicRecord(topic_id=ORDERS))
    return log


@keeps(24, 34, 36)
def a_topic_that_is_deleted_online_and_made_again() -> Log:
    log = cluster()
    log.write(config("retention.ms", "1"))
    log.write(r.RemoveTopicRecord(topic_id=ORDERS))
    log.write(topic("orders", OTHER), new_partition(topic_id=OTHER))
    return log


@breaks(34)
def a_name_of_two_topics() -> Log:
    log = cluster()
    log.write(topic("orders", OTHER), new_partition(topic_id=OTHER))
    return log


@breaks(34)
def a_topic_id_used_again() -> Log:
    log = cluster()
    log.write(r.RemoveTopicRecord(topic_id=ORDERS))
    log.write(topic("b"), new_partition())
    return log


@breaks(35)
def a_gap_in_the_partition_ids() -> Log:
    log = cluster()
    log.write(new_partition(2))
    return log


@keeps(35, 37)
def more_partitions() -> Log:
    log = cluster()
    log.write(new_partition(2), new_partition(1))
    return log


@breaks(36)
def a_config_of_a_topic_that_is_gone() -> Log:
    log = cluster()
    log.write(r.RemoveTopicRecord(topic_id=ORDERS), config("retention.ms", "1"))
    return log


@breaks(37)
def a_topic_without_partitions() -> Log:
    log = cluster()
    log.write(topic("b", OTHER))
    log.batches.append((log.end_offset, (new_partition(topic_id=OTHER),), log.batches[0][2]))
    return log


# -- the cluster -----------------------------------------------------------------------------------


def producer_ids(log: Log, next_id: int, broker_id: int = 1, epoch: int | None = None) -> None:
    broker_epoch = log.epoch_of(broker_id) if epoch is None else epoch
    log.write(
        r.ProducerIdsRecord(
            broker_id=BrokerId(broker_id), broker_epoch=broker_epoch, next_producer_id=next_id
        )
    )


@breaks(43)
def producer_ids_given_twice() -> Log:
    log = cluster()
    producer_ids(log, 5000)
    producer_ids(log, 5000)
    return log


@breaks(43)
def producer_ids_for_a_stale_broker() -> Log:
    log = cluster()
    producer_ids(log, 1000, epoch=999)
    return log


@keeps(43)
def producer_ids_in_blocks() -> Log:
    log = cluster()
    producer_ids(log, 1000)
    producer_ids(log, 2000, broker_id=2)
    return log


def supporting(low: int, high: int) -> Log:
    log = brokers(1)
    feature = r.Feature(name="x", min_supported_version=low, max_supported_version=high)
    log.write(log.register(2, features=(feature,)))
    log.write(log.unfence(2))
    return log


@breaks(44)
def a_level_that_a_broker_does_not_support() -> Log:
    log = supporting(1, 2)
    log.write(level("x", 3))
    return log


@breaks(44)
def an_elr_that_outlives_its_feature() -> Log:
    log = cluster(elr=True)
    log.write(log.change(isr=ids(1), elr=ids(2, 3)))
    log.write(level(ELR_FEATURE, 0))
    return log


@breaks(44)
def a_level_of_a_feature_that_a_broker_does_not_name() -> Log:
    log = supporting(1, 2)
    log.write(level("y", 1))
    return log


@keeps(44)
def a_level_that_goes_down() -> Log:
    log = supporting(1, 3)
    log.write(level("x", 3))
    log.write(level("x", 2))
    return log


@breaks(45)
def an_end_without_a_begin() -> Log:
    log = cluster()
    log.write(r.EndTransactionRecord())
    return log


@breaks(45)
def a_begin_within_a_transaction() -> Log:
    log = cluster()
    log.write(r.BeginTransactionRecord(), r.BeginTransactionRecord(), r.EndTransactionRecord())
    return log


@keeps(45, 11, 30)
def an_aborted_transaction_leaves_nothing() -> Log:
    """Else its fence would be against the rules, and the same change again would be, too."""
    log = cluster()
    change, fence = log.change(isr=ids(1, 3)), log.fence(2)
    log.write(r.BeginTransactionRecord(), fence)
    log.write(r.AbortTransactionRecord(), change)
    return log
