// franz-go's idempotent producer as a program; settings: retry.backoff.ms, and those of package connecting.
package main

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"transact/connecting"
	"transact/producing"
)

type peer struct{ client *kgo.Client }

func open(config map[string]string) (producing.Peer, error) {
	options, err := connecting.Options(config)
	if err != nil {
		return nil, err
	}
	if pause, given := config["retry.backoff.ms"]; given {
		options = append(options, kgo.RetryBackoffFn(func(int) time.Duration { return producing.Millis(pause) }))
	}
	client, err := kgo.NewClient(options...)
	if err == nil && connecting.Secured(config) { // a producer logs in again and again, and never says that it is refused
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		err = client.Ping(ctx)
	}
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
