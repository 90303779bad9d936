"""Partitions before and after each record that changes them: the oracle's replay, as windows.

A creation or a removal begins another life of a key; within one, a field is what the last record
that spoke of it said, and epochs are counted. Directories follow their replicas: those that a
record named, for as long as a replica stayed in every list of replicas since.
"""

from typing import Final

from kraftpy.audit.catalyst.words import (
    CHANGE,
    CLEAR_ELR,
    ELR,
    FAR,
    MIGRATING,
    MIN_ISR,
    REMOVE_TOPIC,
    UNASSIGNED,
    UNCLEAN,
)

_PLACE: Final = "log, offset, epoch, base_offset, step, step_base, step_end"
_SAID: Final = (
    "replicas, isr, removing, adding, elr, last_known_elr, leader, recovery, leader_epoch, "
    "partition_epoch, directories"
)
_OF_T: Final = ", ".join(f"t.{name}" for name in f"{_PLACE}".split(", "))
_NOTHING: Final = (
    "null as replicas, null as isr, null as removing, null as adding, {elr} as elr, "
    "{elr} as last_known_elr, null as leader, null as recovery, null as leader_epoch, "
    "null as partition_epoch, null as directories"
)

VIEWS: Final = {
    "partition_keys": "select distinct log, topic_id, partition from placements",
    "partition_events": f"""
select 'made' as kind, {_PLACE}, topic_id, partition, {_SAID} from placements
union all
select 'changed', {_PLACE}, topic_id, partition, {_SAID} from told where type = {CHANGE}
union all
select 'removed', {_OF_T}, k.topic_id, k.partition, {_NOTHING.format(elr="null")}
from told t join partition_keys k on k.log = t.log and k.topic_id = t.key
where t.type = {REMOVE_TOPIC}
union all
select 'cleared', {_OF_T}, k.topic_id, k.partition, {_NOTHING.format(elr="array()")}
from (
  select *, get_json_object(json, '$.topic_name') as about from told where type = {CLEAR_ELR}) t
join name_lives n on n.log = t.log and n.name = if(t.about = '', n.name, t.about)
  and n.from_offset < t.offset and t.offset < n.until_offset
join partition_keys k on k.log = n.log and k.topic_id = n.topic_id""",
    # Without those that change nothing that is there.
    "partition_lived": """
select * from (
  select *, first(kind) over so_far = 'made' as is_live,
    size(last(elr, true) over before) > 0 or size(last(last_known_elr, true) over before) > 0
      as had_elr
  from (
    select *, count_if(kind in ('made', 'removed')) over (
      partition by log, topic_id, partition order by offset) as life
    from partition_events)
  window
    so_far as (partition by log, topic_id, partition, life order by offset
      rows between unbounded preceding and current row),
    before as (partition by log, topic_id, partition, life order by offset
      rows between unbounded preceding and 1 preceding))
where kind in ('made', 'removed') or is_live and (kind = 'changed' or had_elr)""",
    "partition_fields": f"""
select {_PLACE}, kind, topic_id, partition, life, is_live, leader as said_leader,
  leader_epoch as said_leader_epoch, partition_epoch as said_partition_epoch,
  last(replicas, true) over so_far as replicas,
  last(isr, true) over so_far as isr,
  last(removing, true) over so_far as removing,
  last(adding, true) over so_far as adding,
  last(elr, true) over so_far as elr,
  last(last_known_elr, true) over so_far as last_known_elr,
  last(leader, true) over so_far as leader,
  last(recovery, true) over so_far as recovery,
  first(leader_epoch) over so_far
    + count_if(kind = 'changed' and leader is not null) over so_far as leader_epoch,
  first(partition_epoch) over so_far + count_if(kind <> 'made') over so_far as partition_epoch,
  case when size(directories) > 0 then directories
    when kind = 'made' then transform(replicas, r -> {MIGRATING}) end as named_directories,
  if(kind = 'changed', replicas, null) as moved_to,
  count_if(kind = 'made' or size(directories) > 0) over so_far as era
from partition_lived
window so_far as (partition by log, topic_id, partition, life order by offset
  rows between unbounded preceding and current row)""",
    "partition_placed": f"""
select *, case
    when size(moves) = 0 then era_directories
    else transform(replicas, r -> if(
      forall(moves, to -> array_contains(to, r)) and array_contains(era_replicas, r),
      coalesce(get(era_directories, cast(array_position(era_replicas, r) as int) - 1),
        {UNASSIGNED}), {UNASSIGNED})) end as directories
from (
  select *, first(named_directories) over in_era as era_directories,
    first(replicas) over in_era as era_replicas,
    collect_list(if(named_directories is null, moved_to, null)) over in_era as moves
  from partition_fields
  window in_era as (partition by log, topic_id, partition, life, era order by offset
    rows between unbounded preceding and current row))""",
    "partition_states": f"""
select {_PLACE}, kind, topic_id, partition, said_leader, said_leader_epoch, said_partition_epoch,
  if(is_live, struct(replicas, isr, removing, adding, elr, last_known_elr, leader, recovery,
    leader_epoch, partition_epoch, directories), null) as new
from partition_placed""",
    "partition_lives": f"""
select * from (
  select log, topic_id, partition, new as state, offset as from_offset, coalesce(lead(offset)
    over (partition by log, topic_id, partition order by offset), {FAR}) as until_offset
  from partition_states)
where state is not null""",
    "partition_steps": """
select *, lag(new) over (partition by log, topic_id, partition order by offset) as old
from partition_states""",
    # Partitions that a step changed or removed, as they were before it.
    "touched_partitions": """
select log, step, topic_id, partition, min_by(old, offset) as old
from partition_steps group by log, step, topic_id, partition""",
}


def settings_at(alias: str, offset: str) -> str:
    """Joins that bring along what is configured for the topic `alias.topic` at an offset."""
    joins = [
        f"left join feature_lives elr on elr.log = {alias}.log and elr.name = {ELR}"
        f" and elr.from_offset <= {offset} and {offset} < elr.until_offset",
        f"left join feature_lives mv on mv.log = {alias}.log and mv.name = 'metadata.version'"
        f" and mv.from_offset <= {offset} and {offset} < mv.until_offset",
    ]
    for name, setting in (("minimum", MIN_ISR), ("unclean", UNCLEAN)):
        for kind, of in ((2, f"{alias}.topic"), (4, "''")):
            joins.append(
                f"left join config_lives {name}{kind} on {name}{kind}.log = {alias}.log"
                f" and {name}{kind}.resource_type = {kind} and {name}{kind}.resource = {of}"
                f" and {name}{kind}.name = {setting} and {name}{kind}.from_offset <= {offset}"
                f" and {offset} < {name}{kind}.until_offset"
            )
    return "\n".join(joins)


# What those joins give; `defaults` has one row.
SETTINGS: Final = """
  coalesce(elr.level >= 1, false) as elr_on,
  coalesce(mv.level < 12, false) as shrink_bumps,
  coalesce(try_cast(trim(coalesce(minimum2.value, minimum4.value)) as int),
    defaults.min_insync_replicas) as minimum,
  coalesce(lower(trim(coalesce(unclean2.value, unclean4.value))) = 'true',
    defaults.unclean_leader_election_enable) as unclean_on"""
