// franz-go against kraftpy: bootstrap, client id, message.max.bytes. One line a scenario.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	bootstrap, clientID string
	maxBytes            int
	names               int
	failed              bool
	admin               *kadm.Client
	ctx                 context.Context
)

func client(more ...kgo.Opt) *kgo.Client {
	options := append([]kgo.Opt{kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.ClientID(clientID)}, more...)
	found, err := kgo.NewClient(options...)
	if err != nil {
		panic(err)
	}
	return found
}

func scenario(name string, run func() error) {
	if err := run(); err != nil {
		failed = true
		fmt.Printf("FAIL %s: %s\n", name, strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	fmt.Printf("ok %s\n", name)
}

func topic(name string, partitions int32) string {
	names++
	found := fmt.Sprintf("go-%s-%d", name, names)
	if _, err := admin.CreateTopic(ctx, partitions, 1, nil, found); err != nil {
		panic(err)
	}
	return found
}

func records(name string, count int) []*kgo.Record {
	var found []*kgo.Record
	for n := 0; n < count; n++ {
		found = append(found, &kgo.Record{
			Topic: name, Key: []byte(fmt.Sprintf("k%d", n)), Value: bytes.Repeat([]byte(strconv.Itoa(n)), 20),
			Headers:   []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "n", Value: []byte(strconv.Itoa(n))}},
			Timestamp: time.UnixMilli(1_600_000_000_000 + int64(n)*1000),
		})
	}
	return found
}

func produceConsume(codec kgo.CompressionCodec) error {
	name := topic("codec", 1)
	sent := records(name, 100)
	producer := client(kgo.ProducerBatchCompression(codec), kgo.ProducerLinger(20*time.Millisecond))
	defer producer.Close()
	if err := producer.ProduceSync(ctx, sent...).FirstErr(); err != nil {
		return err
	}
	consumer := client(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{name: {0: kgo.NewOffset().AtStart()}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)
	defer consumer.Close()
	var found []*kgo.Record
	for len(found) < len(sent) {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		found = append(found, fetches.Records()...)
	}
	for n, each := range found {
		if each.Offset != int64(n) || !bytes.Equal(each.Key, sent[n].Key) || !bytes.Equal(each.Value, sent[n].Value) ||
			len(each.Headers) != 2 || !each.Timestamp.Equal(sent[n].Timestamp) {
			return fmt.Errorf("record %d came back as %v", n, each)
		}
	}
	return nil
}

func big() error {
	name := topic("big", 1)
	producer := client(kgo.ProducerBatchMaxBytes(10_000_000), kgo.ProducerBatchCompression(kgo.NoCompression()))
	defer producer.Close()
	fits := &kgo.Record{Topic: name, Value: make([]byte, maxBytes-200)}
	if err := producer.ProduceSync(ctx, fits).FirstErr(); err != nil {
		return err
	}
	err := producer.ProduceSync(ctx, &kgo.Record{Topic: name, Value: make([]byte, maxBytes+1)}).FirstErr()
	if !errors.Is(err, kerr.MessageTooLarge) {
		return fmt.Errorf("not refused as too large: %v", err)
	}
	return nil
}

func autoCreate() error {
	producer := client(kgo.AllowAutoTopicCreation())
	defer producer.Close()
	return producer.ProduceSync(ctx, &kgo.Record{Topic: "go-auto", Value: []byte("x")}).FirstErr()
}

func administer() error {
	name := topic("admin", 2)
	if _, err := admin.CreateTopic(ctx, 1, 1, nil, name); !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("created twice: %v", err)
	}
	if _, err := admin.UpdatePartitions(ctx, 5, name); err != nil {
		return err
	}
	topics, err := admin.ListTopics(ctx, name)
	if err != nil || len(topics[name].Partitions) != 5 {
		return fmt.Errorf("partitions: %v %v", topics, err)
	}
	value := "1234"
	if _, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: &value}}, name); err != nil {
		return err
	}
	configs, err := admin.DescribeTopicConfigs(ctx, name)
	if err != nil {
		return err
	}
	seen := false
	for _, each := range configs[0].Configs {
		seen = seen || each.Key == "retention.ms" && each.MaybeValue() == "1234"
	}
	if !seen {
		return fmt.Errorf("retention.ms: %v", configs)
	}
	if metadata, err := admin.BrokerMetadata(ctx); err != nil || len(metadata.Brokers) != 1 || metadata.Controller != 101 {
		return fmt.Errorf("brokers: %v %v", metadata, err)
	}
	if dirs, err := admin.DescribeAllLogDirs(ctx, nil); err != nil || len(dirs) != 1 {
		return fmt.Errorf("log dirs: %v %v", dirs, err)
	}
	if _, err := admin.DeleteTopic(ctx, name); err != nil {
		return err
	}
	_, err = admin.DeleteTopic(ctx, name)
	if !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return fmt.Errorf("deleted twice: %v", err)
	}
	return nil
}

func offsets() error {
	name := topic("offsets", 1)
	producer := client()
	defer producer.Close()
	if err := producer.ProduceSync(ctx, records(name, 10)...).FirstErr(); err != nil {
		return err
	}
	after, err := admin.ListOffsetsAfterMilli(ctx, 1_600_000_004_500, name)
	if at, _ := after.Lookup(name, 0); err != nil || at.Offset != 5 {
		return fmt.Errorf("by time: %v %v", after, err)
	}
	until := kadm.Offsets{}
	until.Add(kadm.Offset{Topic: name, Partition: 0, At: 4})
	if _, err := admin.DeleteRecords(ctx, until); err != nil {
		return err
	}
	start, err := admin.ListStartOffsets(ctx, name)
	if at, _ := start.Lookup(name, 0); err != nil || at.Offset != 4 {
		return fmt.Errorf("start: %v %v", start, err)
	}
	return nil
}

func main() {
	bootstrap, clientID = os.Args[1], os.Args[2]
	maxBytes, _ = strconv.Atoi(os.Args[3])
	bounded, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	ctx = bounded
	admin = kadm.NewClient(client())
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	for name, codec := range codecs {
		scenario("produce-consume-"+name, func() error { return produceConsume(codec) })
	}
	scenario("big", big)
	scenario("auto-create", autoCreate)
	scenario("admin", administer)
	scenario("offsets", offsets)
	admin.Close()
	fmt.Println("done")
	if failed {
		os.Exit(1)
	}
}
