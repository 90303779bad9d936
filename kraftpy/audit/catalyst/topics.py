"""From when to when a topic lived, had a name, a setting had a value, a feature a level; and the
rules about topics (A24, A34 to A37) and about the whole cluster (A43, A44).

A life is valid for offsets from `from_offset` up to and without `until_offset`.
"""

from typing import Final

from kraftpy.audit.catalyst.words import (
    CHANGE,
    CLEAR_ELR,
    CONFIG,
    FAR,
    FEATURE,
    PARTITION,
    PRODUCER_IDS,
    REMOVE_TOPIC,
    TOPIC,
)

VIEWS: Final = {
    "topic_lives": f"""
select log, topic_id, name, offset as from_offset, coalesce(until, {FAR}) as until_offset
from (
  select log, type, key as topic_id, name, offset,
    lead(offset) over (partition by log, key order by offset) as until
  from told where type in ({TOPIC}, {REMOVE_TOPIC}))
where type = {TOPIC}""",
    # Who owns a name: the last topic that took it, while it lives.
    "name_lives": f"""
select log, name, topic_id, from_offset, least(until_offset, coalesce(
  lead(from_offset) over (partition by log, name order by from_offset), {FAR})) as until_offset
from topic_lives""",
    # A topic takes its settings with it.
    "config_lives": f"""
with said as (
  select log, cast(get_json_object(json, '$.resource_type') as int) as resource_type,
    name as resource, key as name, value, offset
  from told where type = {CONFIG}),
cleared as (
  select distinct s.log, s.resource_type, s.resource, s.name, cast(null as string) as value,
    t.until_offset as offset
  from said s
  join topic_lives t on t.log = s.log and t.name = s.resource and s.resource_type = 2
  join told r on r.log = t.log and r.offset = t.until_offset and r.type = {REMOVE_TOPIC})
select log, resource_type, resource, name, value, offset as from_offset, until_offset
from (
  select *, coalesce(lead(offset) over (
    partition by log, resource_type, resource, name order by offset), {FAR}) as until_offset
  from (select * from said union all select * from cleared))
where value is not null""",
    "feature_lives": f"""
select log, name, level, offset as from_offset, until_offset
from (
  select log, name, cast(value as int) as level, offset,
    coalesce(lead(offset) over (partition by log, name order by offset), {FAR}) as until_offset
  from told where type = {FEATURE})
where level <> 0""",
    # Partitions that a topic has from an offset on.
    "placements": f"""
select t.*, l.name as topic
from told t join topic_lives l on l.log = t.log and l.topic_id = t.topic_id
  and l.from_offset < t.offset and t.offset < l.until_offset
where t.type = {PARTITION}""",
    # A topic at the end of each step that spoke of it, or of partitions of it.
    "topic_counts": f"""
with spoken as (
  select log, step, step_end, if(type = {TOPIC}, key, topic_id) as topic_id,
    bool_or(type = {TOPIC}) as is_made
  from told where type in ({TOPIC}, {PARTITION}) group by all)
select s.*, st.epoch, count(distinct p.partition) as partitions, max(p.partition) as highest
from spoken s
join steps st on st.log = s.log and st.step = s.step and st.is_over
join topic_lives l on l.log = s.log and l.topic_id = s.topic_id
  and l.from_offset <= s.step_end and s.step_end < l.until_offset
left join placements p on p.log = s.log and p.topic_id = s.topic_id
  and p.offset between l.from_offset and s.step_end
group by all""",
}

RULES: Final = {
    24: f"""
select t.log, 24 as rule, t.offset, t.epoch, coalesce(t.topic_id, t.key) as topic_id, t.partition,
  t.type_name as actual
from told t
left join topic_lives l on l.log = t.log and l.topic_id = coalesce(t.topic_id, t.key)
  and l.from_offset < t.offset and t.offset <= l.until_offset
left join partition_lives p on p.log = t.log and p.topic_id = t.topic_id
  and p.partition = t.partition and p.from_offset < t.offset and t.offset <= p.until_offset
where t.type = {PARTITION} and (l.log is null or p.log is not null)
  or t.type = {CHANGE} and (l.log is null or p.log is null)
  or t.type = {REMOVE_TOPIC} and l.log is null
union all
select t.log, 24, t.offset, t.epoch, null, null, n.name
from (
  select *, get_json_object(json, '$.topic_name') as about from told where type = {CLEAR_ELR}) t
left join name_lives n on n.log = t.log and n.name = t.about
  and n.from_offset < t.offset and t.offset < n.until_offset
where t.about <> '' and n.log is null""",
    34: f"""
select distinct t.log, 34 as rule, t.offset, t.epoch, t.key as topic_id,
  coalesce(lived.name, '') as topic, t.name as actual
from told t
left join name_lives named on named.log = t.log and named.name = t.name
  and named.from_offset < t.offset and t.offset <= named.until_offset
left join topic_lives lived on lived.log = t.log and lived.topic_id = t.key
  and lived.from_offset < t.offset and t.offset <= lived.until_offset
left join told removed on removed.log = t.log and removed.key = t.key
  and removed.type = {REMOVE_TOPIC} and removed.offset < t.offset
where t.type = {TOPIC}
  and (named.log is not null or lived.log is not null or removed.log is not null)""",
    35: """
select log, 35 as rule, step_end as offset, epoch, topic_id,
  concat(partitions, ' of them, up to ', highest) as actual
from topic_counts where highest + 1 <> partitions""",
    36: f"""
select distinct c.log, 36 as rule, s.last_offset as offset, s.epoch, c.resource as actual
from (
  select log, step, name as resource from told
  where type = {CONFIG} and get_json_object(json, '$.resource_type') = '2'
  union
  select t.log, t.step, l.name from told t join topic_lives l
    on l.log = t.log and l.topic_id = t.key and l.until_offset = t.offset
  where t.type = {REMOVE_TOPIC}) c
join steps s on s.log = c.log and s.step = c.step and s.is_over
join config_lives v on v.log = c.log and v.resource_type = 2 and v.resource = c.resource
  and v.from_offset <= s.last_offset and s.last_offset < v.until_offset
left join name_lives n on n.log = c.log and n.name = c.resource
  and n.from_offset <= s.last_offset and s.last_offset < n.until_offset
where n.log is null""",
    37: """
select log, 37 as rule, step_end as offset, epoch, topic_id, 'no partition' as actual
from topic_counts where is_made and partitions = 0""",
    43: f"""
with blocks as (
  select *, cast(get_json_object(json, '$.next_producer_id') as bigint) as next_id
  from told where type = {PRODUCER_IDS}),
given as (
  select *, coalesce(max(next_id) over (
    partition by log order by offset rows between unbounded preceding and 1 preceding), 0) as before
  from blocks)
select log, 43 as rule, offset, epoch, cast(null as int) as broker,
  concat('next id ', next_id, ' after ', before) as actual
from given where next_id < before + 1000
union all
select g.log, 43, g.offset, g.epoch, g.broker, concat('broker epoch ', g.broker_epoch)
from given g left join broker_lives b on b.log = g.log and b.broker = g.broker
  and b.from_offset < g.offset and g.offset < b.until_offset
where not (b.state.epoch <=> g.broker_epoch)""",
    44: f"""
with looked as (
  select log, step, null as broker from told where type = {FEATURE}
  union select log, step, broker from touched_brokers)
select distinct s.log, 44 as rule, s.last_offset as offset, s.epoch, b.broker,
  concat(f.name, ' ', f.level) as actual
from looked
join steps s on s.log = looked.log and s.step = looked.step and s.is_over
join broker_lives b on b.log = s.log and b.from_offset <= s.last_offset
  and s.last_offset < b.until_offset and b.broker = coalesce(looked.broker, b.broker)
join feature_lives f on f.log = s.log and f.from_offset <= s.last_offset
  and s.last_offset < f.until_offset
where not b.state.fenced and not exists(b.state.features, each -> each.name = f.name
    and f.level between each.min_supported_version and each.max_supported_version)""",
}
