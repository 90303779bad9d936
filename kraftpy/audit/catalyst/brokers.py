"""Brokers before and after each record about them, and the rules about that (A26 to A33).

A registration or an unregistration begins another life of a broker's id; within one, a field is
what the last record that spoke of it said.
"""

from typing import Final

from kraftpy.audit.catalyst.words import (
    BROKER_CHANGE,
    BROKER_TYPES,
    FAR,
    FENCE,
    REGISTER,
    UNFENCE,
    UNREGISTER,
    Check,
)

_JSON: Final = (
    "incarnation_id string, fenced string, in_controlled_shutdown string, log_dirs array<string>, "
    "features array<struct<name: string, min_supported_version: int, max_supported_version: int>>, "
    "cordoned_log_dirs array<string>, rack string, "
    "end_points array<struct<name: string, host: string, port: int, security_protocol: int>>"
)

VIEWS: Final = {
    "broker_records": f"""
select log, offset, epoch, base_offset, step, step_base, step_end, type, broker, broker_epoch,
  case type when {FENCE} then true when {UNFENCE} then false else
    case said.fenced when 'true' then true when '1' then true
      when 'false' then false when '-1' then false end end as fenced,
  case said.in_controlled_shutdown when 'true' then true when '1' then true
    when 'false' then false end as is_stopping,
  said.incarnation_id as incarnation, said.log_dirs, array_sort(said.features) as features,
  said.cordoned_log_dirs,
  if(type = {REGISTER}, struct(array_sort(said.end_points), said.rack), null) as address,
  count_if(type in ({REGISTER}, {UNREGISTER})) over (
    partition by log, broker order by offset) as life
from (select *, from_json(json, '{_JSON}') as said from told where type in {BROKER_TYPES})""",
    "broker_states": f"""
select log, offset, epoch, base_offset, step, step_base, step_end, type, broker, broker_epoch,
  if(first(type) over in_life = {REGISTER}, struct(
    last(if(type = {REGISTER}, broker_epoch, null), true) over in_life as epoch,
    last(incarnation, true) over in_life as incarnation,
    last(fenced, true) over in_life as fenced,
    last(is_stopping, true) over in_life as is_stopping,
    last(log_dirs, true) over in_life as log_dirs,
    last(features, true) over in_life as features,
    last(cordoned_log_dirs, true) over in_life as cordoned_log_dirs,
    last(address, true) over in_life as address), null) as new
from broker_records
window in_life as (partition by log, broker, life order by offset
  rows between unbounded preceding and current row)""",
    "broker_changes": f"""
select *, old is null or old.incarnation <> new.incarnation as is_new,
  lag(if(type = {REGISTER}, broker_epoch, null), 1) ignore nulls over (
    partition by log, broker order by offset) as last_epoch,
  last(if(type = {REGISTER}, broker, null), true) over (
    partition by log, broker_epoch order by offset
    rows between unbounded preceding and 1 preceding) as last_owner
from (select *, lag(new) over (partition by log, broker order by offset) as old
  from broker_states)""",
    "broker_lives": f"""
select * from (
  select log, broker, offset as from_offset,
    coalesce(lead(offset) over (partition by log, broker order by offset), {FAR}) as until_offset,
    new as state, not new.fenced and not new.is_stopping as is_active
  from broker_states)
where state is not null""",
    # Who came, went or changed in a step: before it and after it.
    "touched_brokers": """
select log, step, step_end, broker, min_by(old, offset) as old, max_by(new, offset) as new
from broker_changes group by log, step, step_end, broker""",
    # What a batch, and those of its transaction before it, are about.
    "batch_brokers": f"""
select log, base_offset, max(has_brokers) over so_far as about_brokers,
  array_distinct(flatten(collect_list(departing) over so_far)) as departing
from (
  select b.log, b.step, b.base_offset, count(r.broker) > 0 as has_brokers,
    collect_set(if(r.type in ({REGISTER}, {UNREGISTER}), r.broker, null)) as departing
  from batch_steps b left join broker_records r on r.log = b.log and r.base_offset = b.base_offset
  group by b.log, b.step, b.base_offset)
window so_far as (partition by log, step order by base_offset)""",
    "judged_brokers": """
select c.*, e.caught_up
from broker_changes c
left join evidence e on e.log = c.log and e.base_offset = c.base_offset""",
    # Records by which somebody comes or goes, for the order within a step.
    "turns": f"""
select log, step, offset, broker,
  case when type = {REGISTER} or type = {UNREGISTER} or type = {FENCE} then 'goes'
    when type = {UNFENCE} then 'comes'
    when fenced then 'goes' when not fenced then 'comes'
    when is_stopping then 'stops' end as turn
from broker_records
where type <> {BROKER_CHANGE} or fenced is not null or is_stopping""",
}

CHECKS: Final = (
    Check(
        26,
        f"type = {REGISTER} and new.epoch <> if(is_new, step_base, old.epoch)",
        "array(broker)",
    ),
    Check(
        27,
        f"type = {REGISTER} and is_new and (new.epoch <= last_epoch or last_owner <> broker)",
        "array(broker)",
    ),
    Check(28, f"type = {REGISTER} and is_new and not new.fenced", "array(broker)"),
    Check(
        29,
        f"type <> {REGISTER} and (old is null or old.epoch <> broker_epoch)",
        "array(broker)",
    ),
    Check(
        31,
        "caught_up is not null and old.fenced and not new.fenced"
        " and coalesce(caught_up[broker], -1) < new.epoch",
        "array(broker)",
    ),
    Check(
        32,
        "old.is_stopping and not is_new and new is not null"
        " and (not new.is_stopping or (old.fenced and not new.fenced))",
        "array(broker)",
    ),
)

RULES: Final = {
    30: """
select distinct t.log, 30 as rule, s.last_offset as offset, s.epoch, c.topic_id, c.partition,
  t.broker, t.turn as actual
from turns t
join steps s on s.log = t.log and s.step = t.step and s.is_over
join partition_changes c on c.log = t.log and c.step = t.step and c.old is not null
where t.turn in ('goes', 'stops')
    and if(t.turn = 'goes', c.offset > t.offset, c.offset < t.offset)
    and (has(c.old.isr, t.broker) and not has(c.new.isr, t.broker)
      or c.old.leader = t.broker and c.new.leader <> t.broker)
  or t.turn = 'comes' and c.offset < t.offset
    and (has(c.new.isr, t.broker) and not has(c.old.isr, t.broker)
      or c.new.leader = t.broker and c.old.leader <> t.broker)""",
    32: """
select b.log, 32 as rule, s.last_offset as offset, s.epoch, p.topic_id, p.partition, b.broker,
  'it led' as actual
from touched_brokers b
join steps s on s.log = b.log and s.step = b.step and s.is_over
join touched_partitions p on p.log = b.log and p.step = b.step
where b.old.incarnation = b.new.incarnation and b.old.is_stopping and not b.old.fenced
  and b.new.fenced and p.old.leader = b.broker""",
    33: """
select distinct b.log, 33 as rule, s.last_offset as offset, s.epoch, b.broker,
  concat('shared with broker ', o.broker) as actual
from touched_brokers b
join steps s on s.log = b.log and s.step = b.step and s.is_over
join broker_lives o on o.log = b.log and o.broker <> b.broker
  and o.from_offset <= s.last_offset and s.last_offset < o.until_offset
where arrays_overlap(b.new.log_dirs, o.state.log_dirs)""",
}
