import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;

/**
 * Reads __consumer_offsets of a cluster with the classes with which Apache Kafka's coordinator
 * loads it, and says on stdout what each record is: a line of key and value.
 *
 *   Offsets BOOTSTRAP
 */
public class Offsets {
    public static void main(String[] args) {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("client.id", "java");
        config.put("enable.metrics.push", "false");
        config.put("key.deserializer", ByteArrayDeserializer.class.getName());
        config.put("value.deserializer", ByteArrayDeserializer.class.getName());
        GroupCoordinatorRecordSerde serde = new GroupCoordinatorRecordSerde();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config)) {
            List<TopicPartition> partitions = consumer.partitionsFor("__consumer_offsets").stream()
                .map(each -> new TopicPartition(each.topic(), each.partition()))
                .collect(Collectors.toList());
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (ends.entrySet().stream()
                    .anyMatch(each -> consumer.position(each.getKey()) < each.getValue())) {
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(100))) {
                    CoordinatorRecord record = serde.deserialize(ByteBuffer.wrap(each.key()),
                        each.value() == null ? null : ByteBuffer.wrap(each.value()));
                    System.out.println(record.key() + " "
                        + (record.value() == null ? "null" : record.value().message()));
                }
            }
        }
        System.out.println("done");
    }
}
