/* Load for bench.broker: librdkafka, driven without an interpreter in between.
 *
 *   broker_load produce|consume|latency BOOTSTRAP TOPIC RECORD_BYTES COUNT GAP_US [KEY=VALUE ...]
 *
 * The rest are librdkafka's settings. BOOTSTRAP is "-" where those name a mock cluster instead.
 * Prints one JSON object. A run that takes longer than DEADLINE_S gives what it has: whoever reads
 * it compares `records` with what was asked for.
 *
 * produce   as fast as the client can. The clock runs from the first record after one that made
 *           the connection, to the last acknowledgement.
 * consume   partition 0 and all others from the start; from the first record to the last.
 *           `gaps` counts records whose offset does not follow the one before.
 * latency   one record each GAP_US; the times from produce() to its acknowledgement.
 *
 * What is used of librdkafka is declared here, as its ABI has had it since 1.0: so the library in
 * the confluent-kafka wheel is all that is needed to build this, and no development package.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct {
    int err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *_private;
} rd_kafka_message_t;
typedef struct {
    int32_t id;
    int err;
    int32_t leader;
    int replica_cnt;
    int32_t *replicas;
    int isr_cnt;
    int32_t *isrs;
} rd_kafka_metadata_partition_t;
typedef struct {
    char *topic;
    int partition_cnt;
    rd_kafka_metadata_partition_t *partitions;
    int err;
} rd_kafka_metadata_topic_t;
typedef struct {
    int broker_cnt;
    void *brokers;
    int topic_cnt;
    rd_kafka_metadata_topic_t *topics;
    int32_t orig_broker_id;
    char *orig_broker_name;
} rd_kafka_metadata_t;

enum { PRODUCER = 0, CONSUMER = 1, COPY = 2, ANY_PARTITION = -1, QUEUE_FULL = -184 };

rd_kafka_conf_t *rd_kafka_conf_new(void);
int rd_kafka_conf_set(rd_kafka_conf_t *, const char *, const char *, char *, size_t);
void rd_kafka_conf_set_dr_msg_cb(rd_kafka_conf_t *,
                                 void (*)(rd_kafka_t *, const rd_kafka_message_t *, void *));
rd_kafka_t *rd_kafka_new(int, rd_kafka_conf_t *, char *, size_t);
rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *, const char *, void *);
int rd_kafka_produce(rd_kafka_topic_t *, int32_t, int, void *, size_t, const void *, size_t, void *);
int rd_kafka_last_error(void);
const char *rd_kafka_err2str(int);
int rd_kafka_poll(rd_kafka_t *, int);
int rd_kafka_flush(rd_kafka_t *, int);
rd_kafka_queue_t *rd_kafka_queue_new(rd_kafka_t *);
int rd_kafka_consume_start_queue(rd_kafka_topic_t *, int32_t, int64_t, rd_kafka_queue_t *);
int rd_kafka_consume_callback_queue(rd_kafka_queue_t *, int, void (*)(rd_kafka_message_t *, void *),
                                    void *);
int rd_kafka_metadata(rd_kafka_t *, int, rd_kafka_topic_t *, const rd_kafka_metadata_t **, int);
void rd_kafka_metadata_destroy(const rd_kafka_metadata_t *);

#define DEADLINE_S 120.0
#define FLUSH_MS 60000
#define PARTITIONS_MAX 1024

static long records, errors, gaps;
static int64_t bytes;
static double started, deadline, first_at, *sent_at, *taken;
static int64_t next_offset[PARTITIONS_MAX];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static double cpu(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec +
           (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

static void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    (void)rk;
    (void)opaque;
    if (message->err) {
        if (!errors++) fprintf(stderr, "not delivered: %s\n", rd_kafka_err2str(message->err));
        return;
    }
    if (taken && message->_private) taken[records] = now() - *(double *)message->_private;
    records++;
}

static void on_record(rd_kafka_message_t *message, void *opaque) {
    (void)opaque;
    if (message->err) {
        if (!errors++) fprintf(stderr, "not fetched: %s\n", rd_kafka_err2str(message->err));
        return;
    }
    if (!records) first_at = now();
    records++;
    bytes += (int64_t)message->len;
    if (next_offset[message->partition] != message->offset) gaps++;
    next_offset[message->partition] = message->offset + 1;
}

static void produce_one(rd_kafka_t *rk, rd_kafka_topic_t *topic, char *value, size_t size,
                        void *private) {
    while (rd_kafka_produce(topic, ANY_PARTITION, COPY, value, size, NULL, 0, private)) {
        if (rd_kafka_last_error() != QUEUE_FULL)
            fail("produce", rd_kafka_err2str(rd_kafka_last_error()));
        rd_kafka_poll(rk, 20);
        if (now() > deadline) fail("produce", "the queue stays full");
    }
}

static void produce(rd_kafka_t *rk, rd_kafka_topic_t *topic, char *value, size_t size, long count) {
    for (long i = 0; i < count && now() < deadline; i++) {
        produce_one(rk, topic, value, size, NULL);
        if ((i & 1023) == 0) rd_kafka_poll(rk, 0);
    }
    while (records + errors < count && now() < deadline) rd_kafka_poll(rk, 50);
}

static void produce_slowly(rd_kafka_t *rk, rd_kafka_topic_t *topic, char *value, size_t size,
                           long count, double gap) {
    for (long i = 0; i < count && now() < deadline; i++) {
        sent_at[i] = now();
        produce_one(rk, topic, value, size, &sent_at[i]);
        double left;
        while ((left = sent_at[i] + gap - now()) > 0)
            rd_kafka_poll(rk, left > 0.001 ? (int)(left * 1000) : 0);
    }
    rd_kafka_flush(rk, FLUSH_MS);
}

static void consume(rd_kafka_t *rk, rd_kafka_topic_t *topic, long count) {
    const rd_kafka_metadata_t *found;
    int error = rd_kafka_metadata(rk, 0, topic, &found, FLUSH_MS);
    if (error) fail("metadata", rd_kafka_err2str(error));
    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    int partitions = found->topics[0].partition_cnt;
    if (partitions > PARTITIONS_MAX) fail("consume", "too many partitions");
    for (int i = 0; i < partitions; i++) rd_kafka_consume_start_queue(topic, i, 0, queue);
    rd_kafka_metadata_destroy(found);
    while (records < count && now() < deadline)
        rd_kafka_consume_callback_queue(queue, 100, on_record, NULL);
}

static int smaller(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static rd_kafka_conf_t *settings(int count, char **words, const char *bootstrap) {
    char why[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (strcmp(bootstrap, "-") &&
        rd_kafka_conf_set(conf, "bootstrap.servers", bootstrap, why, sizeof why))
        fail("settings", why);
    for (int i = 0; i < count; i++) {
        char *value = strchr(words[i], '=');
        if (!value) fail("not KEY=VALUE", words[i]);
        *value++ = 0;
        if (rd_kafka_conf_set(conf, words[i], value, why, sizeof why)) fail("settings", why);
    }
    return conf;
}

int main(int argc, char **argv) {
    if (argc < 7) fail("usage", "MODE BOOTSTRAP TOPIC RECORD_BYTES COUNT GAP_US [KEY=VALUE ...]");
    const char *mode = argv[1];
    size_t size = (size_t)atol(argv[4]);
    long count = atol(argv[5]);
    char why[512];
    int consumes = !strcmp(mode, "consume");
    rd_kafka_conf_t *conf = settings(argc - 7, argv + 7, argv[2]);
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    rd_kafka_t *rk = rd_kafka_new(consumes ? CONSUMER : PRODUCER, conf, why, sizeof why);
    if (!rk) fail("client", why);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, argv[3], NULL);
    deadline = now() + DEADLINE_S;
    double cpu_s = 0;
    if (consumes) {
        cpu_s = cpu();
        consume(rk, topic, count);
        started = first_at;
    } else {
        char *value = malloc(size);
        for (size_t i = 0; i < size; i++) value[i] = (char)('a' + i * 7 % 26);
        produce_one(rk, topic, value, size, NULL);
        rd_kafka_flush(rk, FLUSH_MS);
        if (!records) fail("produce", "the first record was not acknowledged");
        records = 0;
        cpu_s = cpu();
        started = now();
        if (!strcmp(mode, "latency")) {
            sent_at = malloc(sizeof(double) * (size_t)count);
            taken = malloc(sizeof(double) * (size_t)count);
            produce_slowly(rk, topic, value, size, count, atof(argv[6]) * 1e-6);
        } else {
            produce(rk, topic, value, size, count);
        }
        bytes = (int64_t)size * records;
    }
    double seconds = now() - started;
    double p50 = 0, p99 = 0;
    if (taken && records) {
        qsort(taken, (size_t)records, sizeof(double), smaller);
        p50 = taken[records / 2];
        p99 = taken[records * 99 / 100];
    }
    printf("{\"records\": %ld, \"errors\": %ld, \"gaps\": %ld, \"bytes\": %lld, \"seconds\": %.6f, "
           "\"client_cpu_s\": %.6f, \"p50_s\": %.6f, \"p99_s\": %.6f}\n",
           records, errors, gaps, (long long)bytes, seconds, cpu() - cpu_s, p50, p99);
    fflush(stdout);
    _exit(0); /* Closing takes time that nobody asked for. */
}
