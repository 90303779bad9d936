// kafkajs against kraftpy: bootstrap, client id, message.max.bytes. One line a scenario.
'use strict'

const assert = require('assert')
const { Kafka, CompressionTypes, ConfigResourceTypes, logLevel } = require('kafkajs')

const [bootstrap, clientId, maxBytes] = process.argv.slice(2)
const kafka = new Kafka({
  clientId,
  brokers: bootstrap.split(','),
  logLevel: logLevel.NOTHING,
  retry: { retries: 8 },
})
const admin = kafka.admin()
let names = 0
let failed = false

async function scenario(name, run) {
  try {
    await run()
    console.log(`ok ${name}`)
  } catch (why) {
    failed = true
    console.log(`FAIL ${name}: ${String(why && why.stack).split('\n').slice(0, 4).join(' ')}`)
  }
}

async function create(name, numPartitions = 1) {
  const topic = `js-${name}-${names++}`
  const topics = [{ topic, numPartitions, replicationFactor: 1 }]
  assert.strictEqual(await admin.createTopics({ topics, waitForLeaders: true }), true)
  return topic
}

async function send(topic, messages, { compression, acks = -1, ...options } = {}) {
  const producer = kafka.producer({ ...options })
  await producer.connect()
  try {
    return await producer.send({ topic, messages, compression, acks })
  } finally {
    await producer.disconnect()
  }
}

async function refused(type, promise) {
  try {
    await promise
  } catch (error) {
    const found = error.type || (error.errors && error.errors[0].type)
    assert.strictEqual(found, type, String(error))
    return
  }
  assert.fail(`not refused with ${type}`)
}

const messages = (count, first = 1_700_000_000_000) =>
  Array.from({ length: count }, (_, n) => ({
    key: n % 3 ? `k${n}` : null,
    value: n % 5 ? `v${n}`.repeat(20) : null,
    headers: { a: '1', n: String(n) },
    partition: 0,
    timestamp: String(first + n * 1000),
  }))

async function endOffset(topic) {
  const [{ high }] = await admin.fetchTopicOffsets(topic)
  return high
}

// kafkajs reads as a member of a group only: join, assignment, fetch, commit, leave.
async function consume(topic, count, groupId) {
  const consumer = kafka.consumer({ groupId, sessionTimeout: 30000 })
  const found = []
  await consumer.connect()
  try {
    await consumer.subscribe({ topic, fromBeginning: true })
    await new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error(`${found.length} of ${count} came`)), 60000)
      const eachMessage = async ({ message }) => {
        found.push(message)
        if (found.length === count) {
          clearTimeout(late)
          resolve()
        }
      }
      consumer.run({ eachMessage }).catch(reject)
    })
    await consumer.commitOffsets([{ topic, partition: 0, offset: String(count) }])
  } finally {
    await consumer.disconnect()
  }
  return found
}

async function main() {
  await admin.connect()
  for (const [name, compression] of [['none', CompressionTypes.None], ['gzip', CompressionTypes.GZIP]]) {
    await scenario(`produce-${name}`, async () => {
      const topic = await create(name)
      const [sent] = await send(topic, messages(50), { compression, idempotent: true })
      assert.strictEqual(sent.baseOffset, '0')
      assert.strictEqual(await endOffset(topic), '50')
    })
    await scenario(`consume-${name}`, async () => {
      const topic = await create(`read-${name}`)
      await send(topic, messages(50), { compression })
      const found = await consume(topic, 50, `js-${name}`)
      messages(50).forEach(({ key, value, headers, timestamp }, n) => {
        const seen = found[n]
        assert.strictEqual(seen.offset, String(n))
        assert.strictEqual(seen.timestamp, timestamp)
        assert.strictEqual(seen.key && seen.key.toString(), key)
        assert.strictEqual(seen.value && seen.value.toString(), value)
        assert.strictEqual(seen.headers.n.toString(), headers.n)
      })
      const [{ partitions }] = await admin.fetchOffsets({ groupId: `js-${name}`, topics: [topic] })
      assert.strictEqual(partitions[0].offset, '50')
    })
  }
  await scenario('acks', async () => {
    for (const acks of [0, 1, -1]) {
      const topic = await create('acks')
      await send(topic, messages(5), { acks })
      if (acks !== 0) assert.strictEqual(await endOffset(topic), '5')
    }
  })
  await scenario('big', async () => {
    const topic = await create('big')
    await send(topic, [{ value: 'x'.repeat(maxBytes - 200) }])
    await refused('MESSAGE_TOO_LARGE', send(topic, [{ value: 'x'.repeat(Number(maxBytes) + 1) }]))
  })
  await scenario('auto-create', async () => {
    const [sent] = await send(`js-auto-${names++}`, [{ value: 'x' }])
    assert.strictEqual(sent.errorCode, 0)
  })
  await scenario('times', async () => {
    const topic = await create('times')
    await send(topic, messages(9, 1_600_000_000_000))
    const [found] = await admin.fetchTopicOffsetsByTimestamp(topic, 1_600_000_000_000 + 4500)
    assert.strictEqual(found.offset, '5')
  })
  await scenario('topics', async () => {
    const topic = await create('topics', 2)
    assert.strictEqual(await admin.createTopics({ topics: [{ topic }] }), false)
    assert((await admin.listTopics()).includes(topic))
    await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] })
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
    assert.strictEqual(topics[0].partitions.length, 5)
    await admin.deleteTopics({ topics: [topic] })
    assert(!(await admin.listTopics()).includes(topic))
    await refused('UNKNOWN_TOPIC_OR_PARTITION', admin.fetchTopicMetadata({ topics: ['js-nowhere'] }))
  })
  await scenario('configs', async () => {
    const name = await create('configs')
    const type = ConfigResourceTypes.TOPIC
    const configEntries = [{ name: 'retention.ms', value: '1234' }]
    await admin.alterConfigs({ validateOnly: false, resources: [{ type, name, configEntries }] })
    const { resources } = await admin.describeConfigs({ includeSynonyms: true, resources: [{ type, name }] })
    const entry = resources[0].configEntries.find((each) => each.configName === 'retention.ms')
    assert.strictEqual(entry.configValue, '1234')
  })
  await scenario('cluster', async () => {
    const cluster = await admin.describeCluster()
    assert.deepStrictEqual(cluster.brokers.map((each) => each.nodeId), [101])
    assert.strictEqual(cluster.controller, 101)
  })
  await scenario('delete-records', async () => {
    const topic = await create('delete')
    await send(topic, messages(10))
    assert.strictEqual(await endOffset(topic), '10') // It looks for the leader in what it knows.
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '4' }] })
    const [{ low }] = await admin.fetchTopicOffsets(topic)
    assert.strictEqual(low, '4')
  })
  await scenario('reassignments', async () => {
    const topic = await create('reassign')
    await admin.alterPartitionReassignments({
      topics: [{ topic, partitionAssignment: [{ partition: 0, replicas: [101] }] }],
    })
    assert.deepStrictEqual((await admin.listPartitionReassignments({})).topics, [])
  })
  await admin.disconnect()
  console.log('done')
  process.exit(failed ? 1 : 0)
}

main()
