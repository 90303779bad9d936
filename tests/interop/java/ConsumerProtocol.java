import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.serialization.*;

/** The Java client with group.protocol=consumer: one group, that members join and leave. */
public class ConsumerProtocol {
    static final long WAIT_MS = 60_000;
    static final int PARTITIONS = 4;
    static String bootstrap;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        String topic = args[1];
        String group = args[1] + "-group";
        Properties common = new Properties();
        common.put("bootstrap.servers", bootstrap);
        try (Admin admin = Admin.create(common)) {
            admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get();
            comeAndGo(admin, topic, group);
        }
        System.out.println("done");
    }

    static void comeAndGo(Admin admin, String topic, String group) throws Exception {
        Set<String> seen = new HashSet<>();
        int[] count = {0};
        Consumer<String, String> first = consumer(group, "first");
        first.subscribe(List.of(topic));
        produce(topic, 0, 40);
        until("the first one reads all", List.of(first), seen, count, () -> seen.size() == 40);
        System.out.println("ok join");

        Consumer<String, String> second = consumer(group, "second");
        second.subscribe(new SubscriptionPattern(topic.substring(0, topic.length() - 1) + "."));
        until("both have half", List.of(first, second), seen, count,
            () -> first.assignment().size() == 2 && second.assignment().size() == 2);
        produce(topic, 40, 80);
        until("both read", List.of(first, second), seen, count, () -> seen.size() == 80);
        System.out.println("ok second");

        ConsumerGroupDescription found =
            admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        check(found.groupState() == GroupState.STABLE, "state " + found.groupState());
        check(found.members().size() == 2, "members " + found.members());
        System.out.println("ok describe");

        second.close();
        until("the first one has all", List.of(first), seen, count,
            () -> first.assignment().size() == PARTITIONS);
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(PARTITIONS + 2))).all().get();
        until("it has the new ones", List.of(first), seen, count,
            () -> first.assignment().size() == PARTITIONS + 2);
        produce(topic, 80, 120);
        until("it reads all", List.of(first), seen, count, () -> seen.size() == 120);
        first.close();
        check(count[0] == 120, "records read " + count[0]);
        System.out.println("ok leave");

        long committed = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
            .values().stream().mapToLong(OffsetAndMetadata::offset).sum();
        check(committed == 120, "committed " + committed);
        System.out.println("ok committed");
    }

    static Consumer<String, String> consumer(String group, String name) {
        Properties more = new Properties();
        more.put("bootstrap.servers", bootstrap);
        more.put("group.id", group);
        more.put("client.id", "java-" + name);
        more.put("group.protocol", "consumer");
        more.put("auto.offset.reset", "earliest");
        more.put("enable.auto.commit", "false");
        more.put("metadata.max.age.ms", "500");
        return new KafkaConsumer<>(more, new StringDeserializer(), new StringDeserializer());
    }

    static void produce(String topic, int from, int to) throws Exception {
        Properties more = new Properties();
        more.put("bootstrap.servers", bootstrap);
        more.put("client.id", "java-writer");
        try (Producer<String, String> producer =
                new KafkaProducer<>(more, new StringSerializer(), new StringSerializer())) {
            for (int at = from; at < to; at++) {
                producer.send(new ProducerRecord<>(topic, "k" + at, "v" + at))
                    .get(WAIT_MS, TimeUnit.MILLISECONDS);
            }
        }
    }

    interface Reached {
        boolean now();
    }

    static void until(String what, List<Consumer<String, String>> consumers, Set<String> seen,
            int[] count, Reached reached) {
        long deadline = System.nanoTime() + WAIT_MS * 1_000_000;
        while (!reached.now()) {
            check(System.nanoTime() < deadline, what + ": not in time; seen " + seen.size());
            for (Consumer<String, String> consumer : consumers) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
                for (ConsumerRecord<String, String> each : records) {
                    seen.add(each.value());
                    count[0]++;
                }
                if (!records.isEmpty()) {
                    consumer.commitSync();
                }
            }
        }
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            System.out.println("FAIL consumer-protocol: " + what);
            System.exit(1);
        }
    }
}
