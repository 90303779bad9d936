"""The rules between partitions and brokers, which hold whenever a step is over (A12, A13, A16, A18,
A25, and parts of A6, A7 and A44).

A step is held to them for what it touched, and for what it should have: partitions of a broker
that went, partitions without a leader when one comes, those of a topic whose settings changed.
"""

from typing import Final

from kraftpy.audit.catalyst.partitions import SETTINGS, settings_at
from kraftpy.audit.catalyst.words import CONFIG, FEATURE, MIGRATING, UNASSIGNED, Check

VIEWS: Final = {
    "looked_at": f"""
with ends as (select log, step, last_offset as at from steps where is_over),
live as (
  select e.step, e.at, p.* from ends e join partition_lives p
    on p.log = e.log and p.from_offset <= e.at and e.at < p.until_offset),
configured as (
  select log, step, name as resource,
    cast(get_json_object(json, '$.resource_type') as int) as resource_type
  from told where type = {CONFIG})
select log, step, topic_id, partition from touched_partitions
union
select l.log, l.step, l.topic_id, l.partition
from configured c
join name_lives n on n.log = c.log and n.name = c.resource and c.resource_type = 2
join live l on l.log = c.log and l.step = c.step and l.topic_id = n.topic_id
  and n.from_offset <= l.at and l.at < n.until_offset
union
select l.log, l.step, l.topic_id, l.partition
from live l join (
    select log, step from told where type = {FEATURE}
    union select log, step from configured where resource_type = 4 and resource = '') g
  using (log, step)
union
select l.log, l.step, l.topic_id, l.partition
from live l join touched_brokers b using (log, step)
where if(coalesce(not b.new.fenced and not b.new.is_stopping, false)
    and not coalesce(not b.old.fenced and not b.old.is_stopping, false),
  l.state.leader = -1, has(l.state.isr, b.broker) or has(l.state.elr, b.broker))""",
    "settling": """
select a.log, a.step, a.topic_id, a.partition, s.last_offset as offset, s.last_base, s.epoch,
  coalesce(t.name, '') as topic, p.state as new, q.log is not null as is_touched, q.old
from looked_at a
join steps s on s.log = a.log and s.step = a.step and s.is_over
join partition_lives p on p.log = a.log and p.topic_id = a.topic_id and p.partition = a.partition
  and p.from_offset <= s.last_offset and s.last_offset < p.until_offset
join topic_lives t on t.log = a.log and t.topic_id = a.topic_id
  and t.from_offset <= s.last_offset and s.last_offset < t.until_offset
left join touched_partitions q on q.log = a.log and q.step = a.step
  and q.topic_id = a.topic_id and q.partition = a.partition""",
    # Replicas and members of the ISR and the ELR, and what their brokers were when the step ended.
    "members": f"""
select log, step, topic_id, partition,
  collect_set(if(is_active, member, null)) as active,
  collect_set(if(is_active and has(new.replicas, member) and (
    directory is null or directory in ({MIGRATING}, {UNASSIGNED}) or size(log_dirs) = 0
    or array_contains(log_dirs, directory)), member, null)) as able,
  collect_set(if(was_active, member, null)) as were_active
from (
  select m.*, b.is_active, b.state.log_dirs as log_dirs,
    coalesce(not t.old.fenced and not t.old.is_stopping, false) as was_active,
    get(m.new.directories, cast(array_position(m.new.replicas, m.member) as int) - 1) as directory
  from (
    select *, explode(array_union(array_union(new.replicas, new.isr), new.elr)) as member
    from settling) m
  left join broker_lives b on b.log = m.log and b.broker = m.member
    and b.from_offset <= m.offset and m.offset < b.until_offset
  left join touched_brokers t on t.log = m.log and t.step = m.step and t.broker = m.member)
group by log, step, topic_id, partition""",
    "settled": f"""
select p.*, {SETTINGS}, e.unclean_restarts,
  coalesce(m.active, array()) as active, coalesce(m.able, array()) as able,
  coalesce(m.were_active, array()) as were_active,
  e.partition_epochs[concat(p.topic_id, '-', p.partition)] as witness
from settling p cross join defaults
left join members m using (log, step, topic_id, partition)
left join evidence e on e.log = p.log and e.base_offset = p.last_base
{settings_at("p", "p.offset")}""",
}

CHECKS: Final = (
    Check(6, "witness <> new.partition_epoch"),
    Check(
        7,
        "is_touched and old is null and new.partition_epoch = 0"
        " and not same_set(new.isr, array_intersect(new.replicas, able))",
    ),
    Check(12, "new.leader <> -1 and not has(able, new.leader)", "array(new.leader)"),
    Check(
        13,
        "not within(new.isr, active) and not (size(new.isr) = 1 and new.leader = -1"
        " and not (elr_on and has(were_active, get(new.isr, 0))))",
        "array_except(new.isr, active)",
    ),
    Check(
        16,
        "size(new.isr) >= least(minimum, size(new.replicas))"
        " and (size(new.elr) > 0 or size(new.last_known_elr) > 0)",
    ),
    Check(
        18,
        "size(unclean_restarts) > 0",
        "filter(unclean_restarts, u -> array_contains(new.elr, u)"
        " or (array_contains(new.isr, u) and not (not elr_on and new.isr = array(u))))",
    ),
    Check(
        25,
        "new.leader = -1 and meet(if(is_empty(new.isr) and elr_on, new.elr, new.isr), able)",
        "slice(filter(if(is_empty(new.isr) and elr_on, new.elr, new.isr),"
        " c -> array_contains(able, c)), 1, 1)",
    ),
    Check(44, "(size(new.elr) > 0 or size(new.last_known_elr) > 0) and not elr_on"),
)
