"""A50: a snapshot is what the log gives there, entity by entity.

The records of a snapshot are a log of their own: the same views replay them, and what they end with
is laid beside what the cluster's log had made of everything before the snapshot's end.
"""

from typing import Final

# Records about one thing that only snapshots care for: type, the type that removes it, its name.
_OTHERS: Final = (
    ("controller", 27, 29, "get_json_object(json, '$.controller_id')"),
    ("acl", 18, 19, "get_json_object(json, '$.id')"),
    (
        "scram",
        11,
        22,
        "concat(get_json_object(json, '$.name'), '/', get_json_object(json, '$.mechanism'))",
    ),
    ("token", 10, 26, "get_json_object(json, '$.token_id')"),
)
_OTHER_RECORDS: Final = "\nunion all\n".join(
    f"select log, '{kind}' as kind, {name} as name, if(type = {made}, json, null) as value, offset "
    f"from told where type in ({made}, {gone})"
    for kind, made, gone, name in _OTHERS
)

VIEWS: Final = {
    # Two places to look at for each snapshot.
    "points": """
select log as snapshot, of_log as log, end_offset - 1 as at, false as is_stored from snapshot_logs
union all
select log, log, 9223372036854775806L, true from snapshot_logs""",
    "other_records": f"""
{_OTHER_RECORDS}
union all
select log, 'quota', concat(get_json_object(json, '$.entity'), '/', get_json_object(json, '$.key')),
  if(get_json_object(json, '$.remove') = 'true', null, get_json_object(json, '$.value')), offset
from told where type = 14
union all
select log, 'producer ids', 'next', cast(max(cast(get_json_object(json, '$.next_producer_id')
  as bigint)) over (partition by log order by offset) as string), offset
from told where type = 15""",
    "entities": """
select p.snapshot, p.is_stored, 'partition' as kind, concat(t.name, '-', l.partition) as name,
  to_json(l.state) as value, t.name as topic, l.partition
from points p
join partition_lives l on l.log = p.log and l.from_offset <= p.at and p.at < l.until_offset
join topic_lives t on t.log = l.log and t.topic_id = l.topic_id
  and t.from_offset <= p.at and p.at < t.until_offset
union all
select p.snapshot, p.is_stored, 'topic', l.name, l.topic_id, l.name, null
from points p
join topic_lives l on l.log = p.log and l.from_offset <= p.at and p.at < l.until_offset
union all
select p.snapshot, p.is_stored, 'broker', cast(l.broker as string), to_json(l.state), null, null
from points p
join broker_lives l on l.log = p.log and l.from_offset <= p.at and p.at < l.until_offset
union all
select p.snapshot, p.is_stored, 'feature', l.name, cast(l.level as string), null, null
from points p
join feature_lives l on l.log = p.log and l.from_offset <= p.at and p.at < l.until_offset
union all
select p.snapshot, p.is_stored, 'config', concat_ws('/', l.resource_type, l.resource, l.name),
  l.value, null, null
from points p
join config_lives l on l.log = p.log and l.from_offset <= p.at and p.at < l.until_offset
union all
select p.snapshot, p.is_stored, o.kind, o.name, max_by(o.value, o.offset), null, null
from points p join other_records o on o.log = p.log and o.offset <= p.at
group by p.snapshot, p.is_stored, o.kind, o.name""",
}

RULES: Final = {
    50: """
select s.of_log as log, 50 as rule, s.node, s.end_offset as offset, s.epoch,
  coalesce(ours.topic, theirs.topic) as topic, coalesce(ours.partition, theirs.partition)
    as partition,
  concat(coalesce(ours.kind, theirs.kind), ' ', coalesce(ours.name, theirs.name), ': ',
    coalesce(theirs.value, 'none')) as actual
from (select * from entities where not is_stored and value is not null) ours
full outer join (select * from entities where is_stored and value is not null) theirs
  on ours.snapshot = theirs.snapshot and ours.kind = theirs.kind and ours.name = theirs.name
join snapshot_logs s on s.log = coalesce(ours.snapshot, theirs.snapshot)
left anti join open_snapshots o on o.snapshot = s.log
where not (ours.value <=> theirs.value)""",
}
