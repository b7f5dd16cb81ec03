// franz-go's idempotent producer as a program; settings: bootstrap.servers, retry.backoff.ms.
package main

import (
	"context"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"transact/producing"
)

type peer struct{ client *kgo.Client }

func open(config map[string]string) (producing.Peer, error) {
	options := []kgo.Opt{kgo.SeedBrokers(strings.Split(config["bootstrap.servers"], ",")...), kgo.ClientID("franz-go")}
	if pause, given := config["retry.backoff.ms"]; given {
		options = append(options, kgo.RetryBackoffFn(func(int) time.Duration { return producing.Millis(pause) }))
	}
	client, err := kgo.NewClient(options...)
	return peer{client}, err
}

func (p peer) Send(topic string, key, value []byte, settled producing.Settled) {
	record := &kgo.Record{Topic: topic, Key: key, Value: value}
	p.client.Produce(context.Background(), record, func(r *kgo.Record, err error) { settled(r.Partition, r.Offset, err) })
}

func (p peer) Close() error {
	err := p.client.Flush(context.Background())
	p.client.Close()
	return err
}

func main() { producing.Run(open) }
