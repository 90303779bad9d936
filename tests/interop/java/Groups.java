import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.common.utils.Utils;
import sun.misc.Signal;

/**
 * The Java client in groups.
 *
 *   Groups consumer BOOTSTRAP TOPIC          scenarios, with group.protocol=consumer
 *   Groups classic BOOTSTRAP TOPIC           scenarios, with every assignor of the classic protocol
 *   Groups member BOOTSTRAP GROUP TOPIC STRATEGY [INSTANCE]     one member, as group_member.py
 *   Groups consumer-member BOOTSTRAP GROUP TOPIC ASSIGNOR [INSTANCE]    with the new protocol
 */
public class Groups {
    static final long WAIT_MS = 60_000;
    static final long NEW_EPOCH_MS = 10_000;
    static final long HEARTBEAT_MS = 300;
    static final int PARTITIONS = 4;
    static final Map<String, String> ASSIGNORS = Map.of(
        "range", RangeAssignor.class.getName(),
        "roundrobin", RoundRobinAssignor.class.getName(),
        "sticky", StickyAssignor.class.getName(),
        "cooperative-sticky", CooperativeStickyAssignor.class.getName());
    static String bootstrap;
    static Admin admin;
    static volatile boolean stopping = false;

    public static void main(String[] args) throws Exception {
        bootstrap = args[1];
        if (args[0].endsWith("member")) {
            Map<String, String> more = args[0].equals("member") ? classic(args[4])
                : Map.of("group.protocol", "consumer", "group.remote.assignor", args[4]);
            member(args[2], args[3], args.length > 5
                ? with(more, "group.instance.id", args[5]) : more);
            return;
        }
        Properties common = new Properties();
        common.put("bootstrap.servers", bootstrap);
        common.put("client.id", "java");
        admin = Admin.create(common);
        if (args[0].equals("consumer")) {
            Map<String, String> more = Map.of("group.protocol", "consumer");
            for (String assignor : List.of("uniform", "range")) {
                comeAndGo(args[2] + "-" + assignor, with(more, "group.remote.assignor", assignor));
                System.out.println("ok " + assignor);
            }
            comeBack(args[2] + "-static", more);
            System.out.println("ok static");
        } else {
            for (String strategy : List.of("range", "roundrobin", "sticky", "cooperative-sticky")) {
                comeAndGo(args[2] + "-" + strategy, classic(strategy));
                System.out.println("ok " + strategy);
            }
            comeBack(args[2] + "-static", classic("range"));
            System.out.println("ok static");
        }
        admin.close(Duration.ofSeconds(10));
        System.out.println("done");
    }

    static Map<String, String> classic(String strategy) {
        String session = System.getenv().getOrDefault("GROUP_MEMBER_SESSION_MS", "6000");
        return Map.of("group.protocol", "classic", "session.timeout.ms", session,
            "heartbeat.interval.ms", "" + HEARTBEAT_MS,
            "partition.assignment.strategy", ASSIGNORS.get(strategy));
    }

    // -- scenarios ---------------------------------------------------------------------------

    /** A second member joins, by a pattern, and leaves; the topic grows. Nothing comes twice. */
    static void comeAndGo(String topic, Map<String, String> more) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get();
        String group = topic + "-group";
        Story story = new Story();
        Reader first = new Reader(group, more, story);
        first.consumer.subscribe(List.of(topic), first);
        produce(topic, 0, 40);
        story.until("the first one reads all", List.of(first), () -> story.seen.size() == 40);

        Reader second = new Reader(group, more, story);
        String pattern = topic.substring(0, topic.length() - 1) + ".";
        if (more.get("group.protocol").equals("consumer")) {
            second.consumer.subscribe(new SubscriptionPattern(pattern), second);
        } else {
            second.consumer.subscribe(Pattern.compile(pattern), second);
        }
        story.until("both have half", List.of(first, second),
            () -> first.count() == 2 && second.count() == 2);
        produce(topic, 40, 80);
        story.until("both read", List.of(first, second), () -> story.seen.size() == 80);
        check(state(group) == GroupState.STABLE, "state " + state(group));
        ConsumerGroupDescription found = described(group);
        check(found.members().size() == 2, "members " + found.members());

        second.close();
        story.until("the first one has all", List.of(first), () -> first.count() == PARTITIONS);
        int grown = PARTITIONS + 2;
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(grown))).all().get();
        story.until("it has the new ones", List.of(first), () -> first.count() == grown);
        produce(topic, 80, 120);
        story.until("it reads all", List.of(first), () -> story.seen.size() == 120);
        first.close();
        check(story.count == 120, "records read " + story.count);
        check(committed(group) == 120, "committed " + committed(group));
    }

    /** A static member ends and begins anew: the other one is not disturbed. */
    static void comeBack(String topic, Map<String, String> more) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get();
        String group = topic + "-group";
        Story story = new Story();
        Reader first = new Reader(group, with(more, "group.instance.id", "one"), story);
        Reader other = new Reader(group, with(more, "group.instance.id", "two"), story);
        first.consumer.subscribe(List.of(topic), first);
        other.consumer.subscribe(List.of(topic), other);
        story.until("both have half", List.of(first, other),
            () -> first.count() == 2 && other.count() == 2);
        produce(topic, 0, 40);
        story.until("both read", List.of(first, other), () -> story.seen.size() == 40);
        int changes = other.changes;
        int generation = other.consumer.groupMetadata().generationId();
        first.close();
        Reader again = new Reader(group, with(more, "group.instance.id", "one"), story);
        again.consumer.subscribe(List.of(topic), again);
        story.until("it is back", List.of(again, other), () -> again.count() == 2);
        produce(topic, 40, 80);
        story.until("both read again", List.of(again, other), () -> story.seen.size() == 80);
        check(other.changes == changes, "the other one was disturbed");
        check(other.consumer.groupMetadata().generationId() == generation, "a new generation");
        again.close();
        other.close();
        check(story.count == 80, "records read " + story.count);
        check(committed(group) == 80, "committed " + committed(group));
    }

    /** What members have read, in all. */
    static class Story {
        final Set<String> seen = new HashSet<>();
        int count = 0;

        interface Reached {
            boolean now();
        }

        void until(String what, List<Reader> readers, Reached reached) {
            long deadline = System.nanoTime() + WAIT_MS * 1_000_000;
            while (!reached.now()) {
                check(System.nanoTime() < deadline, what + ": not in time; seen " + seen.size());
                readers.forEach(Reader::turn);
            }
        }
    }

    /** One member. What it has read is committed before anything else happens to it. */
    static class Reader implements ConsumerRebalanceListener {
        final Consumer<String, String> consumer;
        final Story story;
        boolean isBehind = false;
        int changes = 0;

        Reader(String group, Map<String, String> more, Story story) {
            Properties config = new Properties();
            config.put("bootstrap.servers", bootstrap);
            config.put("group.id", group);
            config.put("client.id", "java");
            config.put("auto.offset.reset", "earliest");
            config.put("enable.auto.commit", "false");
            config.put("metadata.max.age.ms", "500");
            config.put("enable.metrics.push", "false");
            config.putAll(more);
            this.story = story;
            consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
        }

        int count() {
            return consumer.assignment().size();
        }

        void turn() {
            for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(50))) {
                read(each);
                isBehind = true;
            }
            try {
                commit();
            } catch (RebalanceInProgressException error) {
                refused(error.getClass().getSimpleName()); // Once more in the next turn, or when partitions are revoked.
            } catch (CommitFailedException error) {
                isBehind = false; // It is a member no more; another one has them.
                fenced(error);
            }
        }

        void read(ConsumerRecord<String, String> record) {
            story.seen.add(record.value());
            story.count++;
        }

        void refused(String why) {
        }

        void fenced(CommitFailedException error) {
            throw error;
        }

        /** One that met a new epoch, of which the member is about to hear, is sent again. */
        void commit() {
            long deadline = System.nanoTime() + NEW_EPOCH_MS * 1_000_000;
            while (isBehind) {
                try {
                    consumer.commitSync();
                    isBehind = false;
                } catch (CommitFailedException error) {
                    if (!isStale(error) || System.nanoTime() > deadline) {
                        throw error;
                    }
                    refused("STALE_MEMBER_EPOCH");
                    Utils.sleep(HEARTBEAT_MS);
                }
            }
        }

        /** Whether it is a member still; the exception says so in its text alone. */
        static boolean isStale(CommitFailedException error) {
            return error.getMessage().contains("stale member epoch");
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            changes += partitions.isEmpty() ? 0 : 1;
            commit();
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            changes += partitions.isEmpty() ? 0 : 1;
            isBehind = false;
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            changes += partitions.isEmpty() ? 0 : 1;
        }

        void close() {
            commit();
            consumer.close();
        }
    }

    // -- one member --------------------------------------------------------------------------

    /** Says on stdout what it has, has read and has committed, until it is told to end. */
    static class Speaker extends Reader {
        Speaker(String group, Map<String, String> more) {
            super(group, more, null);
        }

        @Override
        void read(ConsumerRecord<String, String> record) {
            System.out.printf("{\"at\": [\"%s\", %d, %d]}%n",
                record.topic(), record.partition(), record.offset());
        }

        @Override
        void refused(String why) {
            System.out.printf("{\"refused\": \"%s\"}%n", why);
        }

        @Override
        void fenced(CommitFailedException error) {
            refused(error.getClass().getSimpleName());
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            super.onPartitionsRevoked(partitions);
            System.out.printf("{\"revoked\": %s}%n", places(partitions));
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            super.onPartitionsLost(partitions);
            System.out.printf("{\"revoked\": %s}%n", places(partitions));
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            System.out.printf("{\"assigned\": %s}%n", places(partitions));
        }

        static List<String> places(Collection<TopicPartition> partitions) {
            return partitions.stream()
                .map(each -> String.format("[\"%s\", %d]", each.topic(), each.partition()))
                .sorted().collect(Collectors.toList());
        }
    }

    static void member(String group, String topic, Map<String, String> more) {
        Signal.handle(new Signal("TERM"), signal -> stopping = true);
        Speaker speaker = new Speaker(group, more);
        if (topic.startsWith("^")) {
            speaker.consumer.subscribe(Pattern.compile(topic), speaker);
        } else {
            speaker.consumer.subscribe(List.of(topic), speaker);
        }
        while (!stopping) {
            speaker.turn();
        }
        speaker.close();
        System.out.println("{\"left\": true}");
    }

    // -- helpers -----------------------------------------------------------------------------

    static Map<String, String> with(Map<String, String> settings, String key, String value) {
        Map<String, String> all = new HashMap<>(settings);
        all.put(key, value);
        return all;
    }

    static ConsumerGroupDescription described(String group) throws Exception {
        return admin.describeConsumerGroups(List.of(group)).all().get().get(group);
    }

    static GroupState state(String group) throws Exception {
        return described(group).groupState();
    }

    static long committed(String group) throws Exception {
        return admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
            .values().stream().mapToLong(OffsetAndMetadata::offset).sum();
    }

    static void produce(String topic, int from, int to) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("client.id", "java");
        config.put("enable.metrics.push", "false");
        try (Producer<String, String> producer =
                new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int at = from; at < to; at++) {
                sent.add(producer.send(new ProducerRecord<>(topic, "k" + at, "v" + at)));
            }
            for (Future<RecordMetadata> each : sent) {
                each.get(WAIT_MS, TimeUnit.MILLISECONDS);
            }
        }
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            System.out.println("FAIL groups: " + what);
            System.exit(1);
        }
    }
}
