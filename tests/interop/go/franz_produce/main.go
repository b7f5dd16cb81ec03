// franz-go's idempotent producer as a program; settings: bootstrap.servers, retry.backoff.ms,
// sasl.mechanism, sasl.username, sasl.password, ssl.ca.location.
package main

import (
	"context"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"transact/producing"
)

type peer struct{ client *kgo.Client }

func open(config map[string]string) (producing.Peer, error) {
	options := []kgo.Opt{kgo.SeedBrokers(strings.Split(config["bootstrap.servers"], ",")...), kgo.ClientID("franz-go")}
	if pause, given := config["retry.backoff.ms"]; given {
		options = append(options, kgo.RetryBackoffFn(func(int) time.Duration { return producing.Millis(pause) }))
	}
	if path, given := config["ssl.ca.location"]; given {
		trust, err := producing.Trust(path)
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.DialTLSConfig(trust))
	}
	user, password := config["sasl.username"], config["sasl.password"]
	switch config["sasl.mechanism"] {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism()))
	}
	client, err := kgo.NewClient(options...)
	if err == nil && user != "" { // a producer logs in again and again, and never says that it is refused
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
