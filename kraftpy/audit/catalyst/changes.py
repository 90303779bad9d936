"""The rules about one change of one partition: its state, elections, ISR, ELR, reassignments.

A row of `partition_changes` has the partition before (`old`, null if there was none) and after
(`new`) a record, what the record said, and what was configured then.
"""

from typing import Final

from kraftpy.audit.catalyst.partitions import SETTINGS, settings_at
from kraftpy.audit.catalyst.words import Check

VIEWS: Final = {
    "partition_facts": """
select p.*, coalesce(l.name, '') as topic, b.about_brokers, b.departing,
  concat(p.topic_id, '-', p.partition) as key
from partition_steps p
join batch_brokers b on b.log = p.log and b.base_offset = p.base_offset
left join topic_lives l on l.log = p.log and l.topic_id = p.topic_id
  and l.from_offset <= p.offset and p.offset < l.until_offset
where p.kind <> 'removed'""",
    # Replicas that were placed on brokers that nobody knows.
    "unknown_brokers": """
select r.log, r.topic_id, r.partition, r.offset, collect_set(r.replica) as unknown
from (select *, explode(new.replicas) as replica from partition_facts) r
left join broker_lives b on b.log = r.log and b.broker = r.replica
  and b.from_offset < r.offset and r.offset < b.until_offset
where r.kind <> 'cleared' and b.log is null
  and not has(coalesce(r.old.replicas, array()), r.replica)
group by r.log, r.topic_id, r.partition, r.offset""",
    "partition_settings": f"""
select p.*, u.unknown, e.unclean_elections, e.unclean_restarts, e.isr_requests, {SETTINGS},
  array_distinct(array_except(old.replicas, old.removing)) as target
from partition_facts p cross join defaults
left join unknown_brokers u using (log, topic_id, partition, offset)
left join evidence e on e.log = p.log and e.base_offset = p.base_offset
{settings_at("p", "p.offset")}""",
    "partition_elections": """
select *, is_elected and not (has(old.isr, new.leader)
    or has(old.elr, new.leader) and elr_on and new.isr = array(new.leader)
    or ends_move and has(new.isr, new.leader) and old.leader <> -1) as is_unclean,
  if(is_elected and not ends_move, array_except(joined_any, array(new.leader)), joined_any)
    as joined,
  case when is_unclean_asked is null then true else is_unclean_asked end as may_be_asked
from (
  select *,
    coalesce(new.leader not in (-1, old.leader), false) as is_elected,
    kind = 'changed' and old is not null as is_change,
    array_sort(array_except(new.isr, old.isr)) as joined_any,
    size(new.adding) = 0 and size(new.removing) = 0
      and (size(old.adding) > 0 or size(old.removing) > 0)
      and same_set(new.replicas, target) and within(target, new.isr) as ends_move,
    array_contains(unclean_elections, key) as is_unclean_asked,
    least(minimum, size(new.replicas)) as enough
  from partition_settings)""",
    "partition_moves": """
select *, moves and is_under_way as starts,
  moves and not is_under_way and (was_under_way or not same_set(old.replicas, new.replicas))
    as ends
from (
  select *,
    old is not null and (old.replicas, old.adding, old.removing)
      <> (new.replicas, new.adding, new.removing) as moves,
    size(new.adding) > 0 or size(new.removing) > 0 as is_under_way,
    size(old.adding) > 0 or size(old.removing) > 0 as was_under_way,
    array_except(new.replicas, new.removing) as new_target,
    array_except(old.replicas, old.adding) as originals
  from partition_elections)""",
    "partition_changes": """
select *,
  was_under_way and same_set(new.replicas, originals) as is_cancelled,
  was_under_way and not within(new.replicas, new.isr) and within(new.replicas, originals)
    and not within(originals, new.replicas) as drops_originals,
  array_intersect(array_except(array_union(old.elr, old.isr), new.isr), new.replicas) as held,
  isr_requests[key] as request
from partition_moves""",
    # Who joined an ISR, and the epoch that the leader knew it by, where that is not its own.
    "stale_joiners": """
select c.*, j.broker as joiner
from (select log, topic_id, partition, offset, epoch, request, explode(joined) as broker
  from partition_changes where is_change and request is not null) j
join partition_changes c using (log, topic_id, partition, offset)
left join broker_lives b on b.log = j.log and b.broker = j.broker
  and b.from_offset < j.offset and j.offset < b.until_offset
where coalesce(j.request.epochs[j.broker], -1) <> -1
  and not (b.state.epoch <=> j.request.epochs[j.broker])""",
}

CHECKS: Final = (
    Check(
        1,
        "is_empty(new.replicas) or has_twice(new.replicas) or exists(new.replicas, r -> r < 0)",
    ),
    Check(1, "size(unknown) > 0", "unknown"),
    Check(2, "not within(new.isr, new.replicas) or has_twice(new.isr)"),
    Check(3, "new.leader <> -1 and not has(new.isr, new.leader)"),
    Check(4, "is_empty(new.isr) and not elr_on"),
    Check(
        5,
        "is_change and said_leader_epoch not in"
        " (old.leader_epoch + if(said_leader is null, 0, 1), -1)",
    ),
    Check(
        5,
        "is_change and (said_leader is not null) <> (new.leader <> old.leader"
        " or not within(old.replicas, new.replicas)"
        " or (shrink_bumps and not within(old.isr, new.isr)))",
    ),
    Check(6, "is_change and said_partition_epoch not in (old.partition_epoch + 1, -1)"),
    Check(
        7,
        "kind = 'made' and old is null and (new.leader_epoch <> 0 or new.partition_epoch <> 0"
        " or new.recovery <> 0 or is_empty(new.isr) or new.leader <> get(new.isr, 0)"
        " or size(new.adding) > 0 or size(new.removing) > 0)",
    ),
    Check(
        8,
        "is_change and (new.replicas, new.isr, new.removing, new.adding, new.elr,"
        " new.last_known_elr, new.leader, new.recovery, new.directories) = (old.replicas, old.isr,"
        " old.removing, old.adding, old.elr, old.last_known_elr, old.leader, old.recovery,"
        " old.directories)",
    ),
    Check(9, "is_unclean and new.recovery <> 1", "array(new.leader)"),
    Check(10, "is_unclean and (new.isr <> array(new.leader) or size(new.elr) > 0)"),
    Check(
        10,
        "is_unclean and not unclean_on and not may_be_asked and not (elr_on and is_empty(old.isr)"
        " and old.last_known_elr = array(new.leader))",
    ),
    Check(11, "new.recovery = 1 and size(new.isr) > 1"),
    Check(11, "is_change and new.recovery = 1 and old.recovery <> 1 and not is_unclean"),
    Check(
        14,
        "is_change and size(joined) > 0 and (old.leader = -1 or about_brokers"
        " or (new.leader <> old.leader and not ends_move))",
        "array(get(joined, 0))",
    ),
    Check(
        14,
        "is_change and size(joined) > 0 and isr_requests is not null and request is null",
        "array(get(joined, 0))",
    ),
    Check(
        14,
        "is_change and size(joined) > 0 and request is not null"
        " and (request.leader, request.leader_epoch, request.partition_epoch)"
        " <> (old.leader, old.leader_epoch, old.partition_epoch)",
    ),
    Check(
        15,
        "not within(new.elr, new.replicas) or meet(new.elr, new.isr) or has_twice(new.elr)",
    ),
    Check(
        17,
        "is_change and elr_on and size(new.isr) < enough and not is_unclean and not ("
        "within(array_except(held, coalesce(unclean_restarts, departing)),"
        " array_intersect(new.elr, new.replicas)) and within(array_intersect(new.elr,"
        " new.replicas), array_except(held, coalesce(unclean_restarts, array()))))",
    ),
    Check(
        19,
        "is_change and is_empty(new.isr) and elr_on and if(old.leader <> -1,"
        " new.last_known_elr <> array(old.leader),"
        " size(old.last_known_elr) > 0 and is_empty(new.last_known_elr))",
    ),
    Check(
        20,
        "not within(new.adding, new.replicas) or not within(new.removing, new.replicas)"
        " or meet(new.adding, new.removing)",
    ),
    Check(
        21,
        "starts and (not within(old.replicas, new.replicas)"
        " or slice(new.replicas, 1, size(new_target)) <> new_target"
        " or not within(array_except(new.replicas, old.replicas), new.adding)"
        " or not within(new.isr, old.isr)"
        " or (size(new_target) > 0 and within(new_target, new.isr)))",
    ),
    Check(
        22,
        "ends and not is_cancelled and not drops_originals and not within(new.replicas, new.isr)",
    ),
    Check(23, "ends and drops_originals"),
    Check(
        23,
        "ends and not drops_originals and is_cancelled and size(new.isr) > 0 and new.recovery <> 1"
        " and not meet(array_union(old.isr, old.elr), new.replicas)",
    ),
    Check(33, "size(new.directories) <> size(new.replicas)"),
)

JOINER_CHECKS: Final = (Check(14, "true", "array(joiner)"),)
