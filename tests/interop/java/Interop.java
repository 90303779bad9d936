import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

/** The Java client against kraftpy: bootstrap, client id, message.max.bytes. One line a scenario. */
public class Interop {
    static String bootstrap;
    static String clientId;
    static int maxBytes;
    static int names = 0;
    static Admin admin;
    static boolean failed = false;

    interface Scenario {
        void run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        clientId = args[1];
        maxBytes = Integer.parseInt(args[2]);
        admin = Admin.create(common());
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            scenario("produce-consume-" + codec, () -> produceConsume(codec));
        }
        scenario("acks", Interop::acks);
        scenario("big", Interop::big);
        scenario("auto-create", Interop::autoCreate);
        scenario("unknown-topic", Interop::unknownTopic);
        scenario("times", Interop::times);
        scenario("topics", Interop::topics);
        scenario("configs", Interop::configs);
        scenario("cluster", Interop::cluster);
        scenario("delete-records", Interop::deleteRecords);
        scenario("elections-reassignments", Interop::electionsAndReassignments);
        scenario("acls-quotas-scram", Interop::aclsQuotasScram);
        admin.close(Duration.ofSeconds(10));
        System.out.println("done");
        System.exit(failed ? 1 : 0);
    }

    static void scenario(String name, Scenario scenario) {
        try {
            scenario.run();
            System.out.println("ok " + name);
        } catch (Throwable why) {
            failed = true;
            StackTraceElement at = Arrays.stream(why.getStackTrace())
                .filter(e -> e.getClassName().startsWith("Interop")).findFirst().orElse(null);
            String text = String.valueOf(why).replace('\n', ' ');
            System.out.println("FAIL " + name + ": " + text + " at " + at);
        }
    }

    static void check(boolean holds, Object what) {
        if (!holds) throw new AssertionError(String.valueOf(what));
    }

    static void same(Object expected, Object found) {
        check(expected.equals(found), "expected " + expected + ", found " + found);
    }

    static Properties common() {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("client.id", clientId);
        config.put("enable.metrics.push", "false");
        return config;
    }

    static <T> T get(KafkaFuture<T> future) throws Exception {
        return future.get(60, TimeUnit.SECONDS);
    }

    static void refused(Class<?> expected, Future<?> future) throws Exception {
        try {
            Object found = future.get(60, TimeUnit.SECONDS);
            throw new AssertionError("not refused: " + found);
        } catch (ExecutionException error) {
            check(expected.isInstance(error.getCause()), error.getCause());
        }
    }

    static String topic(String name, int partitions) throws Exception {
        String topic = "java-" + name + "-" + names++;
        get(admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all());
        return topic;
    }

    static Producer<byte[], byte[]> producer(Map<String, String> more) {
        Properties config = common();
        config.putAll(more);
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static List<RecordMetadata> send(List<ProducerRecord<byte[], byte[]>> records,
            Map<String, String> more) throws Exception {
        List<RecordMetadata> found = new ArrayList<>();
        try (Producer<byte[], byte[]> producer = producer(more)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (ProducerRecord<byte[], byte[]> each : records) sent.add(producer.send(each));
            for (Future<RecordMetadata> each : sent) found.add(each.get(60, TimeUnit.SECONDS));
        }
        return found;
    }

    static Consumer<byte[], byte[]> consumer(Map<String, String> more) {
        Properties config = common();
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        config.putAll(more);
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static List<ConsumerRecord<byte[], byte[]>> read(String topic, int count,
            Map<String, String> more) {
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        try (Consumer<byte[], byte[]> consumer = consumer(more)) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            for (int turn = 0; turn < 60 && found.size() < count; turn++) {
                consumer.poll(Duration.ofSeconds(1)).forEach(found::add);
            }
        }
        same(count, found.size());
        return found;
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static List<ProducerRecord<byte[], byte[]>> records(String topic, int count, long time) {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int n = 0; n < count; n++) {
            ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, 0, time + n * 1000L,
                n % 3 == 0 ? null : bytes("k" + n), n % 5 == 0 ? null : bytes(("v" + n).repeat(20)));
            record.headers().add("a", bytes("1")).add("n", bytes("" + n)).add("null", null);
            records.add(record);
        }
        return records;
    }

    static void produceConsume(String codec) throws Exception {
        String topic = topic(codec, 1);
        List<ProducerRecord<byte[], byte[]>> records = records(topic, 100, 1_700_000_000_000L);
        List<RecordMetadata> sent = send(records, Map.of("compression.type", codec, "linger.ms", "20"));
        List<ConsumerRecord<byte[], byte[]>> found =
            read(topic, 100, Map.of("isolation.level", "read_committed"));
        for (int n = 0; n < 100; n++) {
            same((long) n, sent.get(n).offset());
            same((long) n, found.get(n).offset());
            check(Arrays.equals(records.get(n).key(), found.get(n).key()), "key " + n);
            check(Arrays.equals(records.get(n).value(), found.get(n).value()), "value " + n);
            same(records.get(n).timestamp(), found.get(n).timestamp());
            same(records.get(n).headers(), found.get(n).headers());
        }
    }

    static void acks() throws Exception {
        for (String acks : List.of("0", "1", "all")) {
            String topic = topic("acks", 1);
            send(records(topic, 10, 1L), Map.of("acks", acks, "enable.idempotence", "false"));
            read(topic, 10, Map.of());
        }
    }

    static void big() throws Exception {
        String topic = topic("big", 1);
        Map<String, String> config = Map.of("max.request.size", "10000000", "batch.size", "1");
        byte[] fits = new byte[maxBytes - 200];
        same(0L, send(List.of(new ProducerRecord<>(topic, fits)), config).get(0).offset());
        byte[] big = new byte[maxBytes + 1];
        try (Producer<byte[], byte[]> producer = producer(config)) {
            refused(RecordTooLargeException.class, producer.send(new ProducerRecord<>(topic, big)));
        }
        same(fits.length, read(topic, 1, Map.of("max.partition.fetch.bytes", "100")).get(0).value().length);
    }

    static void autoCreate() throws Exception {
        String topic = "java-auto-" + names++;
        same(0L, send(List.of(new ProducerRecord<>(topic, bytes("x"))), Map.of()).get(0).offset());
    }

    static void unknownTopic() throws Exception {
        refused(UnknownTopicOrPartitionException.class,
            admin.describeTopics(List.of("java-nowhere")).allTopicNames());
        refused(UnknownTopicOrPartitionException.class,
            admin.deleteTopics(List.of("java-nowhere")).all());
        try (Consumer<byte[], byte[]> consumer = consumer(Map.of("allow.auto.create.topics", "false"))) {
            check(consumer.partitionsFor("java-nowhere", Duration.ofSeconds(30)).isEmpty(), "partitions");
        }
    }

    static void times() throws Exception {
        String topic = topic("times", 1);
        long first = 1_600_000_000_000L;
        send(records(topic, 9, first), Map.of());
        TopicPartition at = new TopicPartition(topic, 0);
        try (Consumer<byte[], byte[]> consumer = consumer(Map.of())) {
            same(5L, consumer.offsetsForTimes(Map.of(at, first + 4500)).get(at).offset());
            same(Map.of(at, 0L), consumer.beginningOffsets(List.of(at)));
            same(Map.of(at, 9L), consumer.endOffsets(List.of(at)));
        }
        Map<OffsetSpec, Long> expected = new HashMap<>();
        expected.put(OffsetSpec.earliest(), 0L);
        expected.put(OffsetSpec.latest(), 9L);
        expected.put(OffsetSpec.maxTimestamp(), 8L);
        expected.put(OffsetSpec.forTimestamp(first + 1), 1L);
        expected.put(OffsetSpec.earliestLocal(), 0L);
        for (Map.Entry<OffsetSpec, Long> each : expected.entrySet()) {
            var options = new ListOffsetsOptions(org.apache.kafka.common.IsolationLevel.READ_COMMITTED);
            var found = get(admin.listOffsets(Map.of(at, each.getKey()), options).partitionResult(at));
            same(each.getValue(), found.offset());
        }
    }

    static void topics() throws Exception {
        String topic = topic("topics", 2);
        refused(TopicExistsException.class,
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all());
        refused(InvalidReplicationFactorException.class,
            admin.createTopics(List.of(new NewTopic("java-many", 1, (short) 7))).all());
        refused(InvalidTopicException.class,
            admin.createTopics(List.of(new NewTopic("no/such name", 1, (short) 1))).all());
        get(admin.createTopics(List.of(new NewTopic("java-validated", 1, (short) 1)),
            new CreateTopicsOptions().validateOnly(true)).all());
        Set<String> listed = get(admin.listTopics().names());
        check(listed.contains(topic) && !listed.contains("java-validated"), listed);
        get(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all());
        TopicDescription described = get(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic);
        same(5, described.partitions().size());
        same(101, described.partitions().get(4).leader().id());
        refused(InvalidPartitionsException.class,
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(2))).all());
        var byId = org.apache.kafka.common.TopicCollection.ofTopicIds(List.of(described.topicId()));
        same(topic, get(admin.describeTopics(byId).allTopicIds()).get(described.topicId()).name());
        get(admin.deleteTopics(byId).all());
        check(!get(admin.listTopics().names()).contains(topic), "still there");
    }

    static Map<String, String> values(ConfigResource resource) throws Exception {
        Map<String, String> found = new HashMap<>();
        get(admin.describeConfigs(List.of(resource)).all()).get(resource).entries()
            .forEach(each -> found.put(each.name(), String.valueOf(each.value())));
        return found;
    }

    static void alter(ConfigResource resource, String name, String value, AlterConfigOp.OpType op)
            throws Exception {
        Collection<AlterConfigOp> ops = List.of(new AlterConfigOp(new ConfigEntry(name, value), op));
        get(admin.incrementalAlterConfigs(Map.of(resource, ops)).all());
    }

    static void configs() throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic("configs", 1));
        same("delete", values(resource).get("cleanup.policy"));
        alter(resource, "cleanup.policy", "compact", AlterConfigOp.OpType.APPEND);
        check(values(resource).get("cleanup.policy").contains("compact"), values(resource));
        alter(resource, "retention.ms", "1234", AlterConfigOp.OpType.SET);
        same("1234", values(resource).get("retention.ms"));
        alter(resource, "retention.ms", "", AlterConfigOp.OpType.DELETE);
        same("604800000", values(resource).get("retention.ms"));
        Collection<AlterConfigOp> wrong = List.of(
            new AlterConfigOp(new ConfigEntry("no.such.thing", "1"), AlterConfigOp.OpType.SET));
        refused(InvalidConfigurationException.class,
            admin.incrementalAlterConfigs(Map.of(resource, wrong)).all());
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "101");
        same("101", values(broker).get("node.id"));
        alter(broker, "log.retention.ms", "12345678", AlterConfigOp.OpType.SET);
        same("12345678", values(broker).get("log.retention.ms"));
        alter(broker, "log.retention.ms", "", AlterConfigOp.OpType.DELETE);
        check(!get(admin.listConfigResources().all()).isEmpty(), "no config resources");
    }

    static void cluster() throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        same(1, get(cluster.nodes()).size());
        same(101, get(cluster.controller()).id());
        check(!get(cluster.clusterId()).isEmpty(), "cluster id");
        check(get(admin.describeFeatures().featureMetadata()).finalizedFeatures()
            .containsKey("metadata.version"), "features");
        same(1, get(admin.describeMetadataQuorum().quorumInfo()).leaderId());
        String topic = topic("dirs", 1);
        boolean found = get(admin.describeLogDirs(List.of(101)).allDescriptions()).get(101).values()
            .stream().anyMatch(d -> d.replicaInfos().containsKey(new TopicPartition(topic, 0)));
        check(found, "no log dir holds the topic");
    }

    static void deleteRecords() throws Exception {
        String topic = topic("delete", 1);
        send(records(topic, 10, 1L), Map.of());
        TopicPartition at = new TopicPartition(topic, 0);
        var deleted = admin.deleteRecords(Map.of(at, RecordsToDelete.beforeOffset(4)));
        same(4L, get(deleted.lowWatermarks().get(at)).lowWatermark());
        same(4L, read(topic, 6, Map.of()).get(0).offset());
        refused(org.apache.kafka.common.errors.OffsetOutOfRangeException.class,
            admin.deleteRecords(Map.of(at, RecordsToDelete.beforeOffset(100))).all());
    }

    static void electionsAndReassignments() throws Exception {
        TopicPartition at = new TopicPartition(topic("elect", 1), 0);
        var elected = get(admin.electLeaders(ElectionType.PREFERRED, Set.of(at)).partitions());
        check(elected.get(at).isEmpty() || elected.get(at).get() instanceof ElectionNotNeededException,
            elected);
        get(admin.alterPartitionReassignments(
            Map.of(at, Optional.of(new NewPartitionReassignment(List.of(101))))).all());
        check(get(admin.listPartitionReassignments().reassignments()).isEmpty(), "reassigning");
        refused(InvalidReplicaAssignmentException.class, admin.alterPartitionReassignments(
            Map.of(at, Optional.of(new NewPartitionReassignment(List.of(999))))).all());
        refused(NoReassignmentInProgressException.class,
            admin.alterPartitionReassignments(Map.of(at, Optional.empty())).all());
    }

    static void aclsQuotasScram() throws Exception {
        get(admin.describeClientQuotas(
            org.apache.kafka.common.quota.ClientQuotaFilter.all()).entities());
        var scram = new UserScramCredentialUpsertion("java-user",
            new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "secret");
        get(admin.alterUserScramCredentials(List.of(scram)).all());
        check(get(admin.describeUserScramCredentials().users()).contains("java-user"), "user");
    }
}
