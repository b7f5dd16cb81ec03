// sarama's idempotent producer as a program; settings: bootstrap.servers, retry.backoff.ms, retries, and
// sasl.username, sasl.password (PLAIN: for SCRAM sarama needs another library), ssl.ca.location.
//
// It sends one record after the other (SyncProducer.SendMessage). Of several that are not answered when a connection
// breaks sarama 1.46 makes other batches than before, and a broker that has stored the first ones takes some of these for
// others: with any broker, records that were acknowledged are lost, and some are there twice.
package main

import (
	"strconv"
	"strings"

	"github.com/IBM/sarama"

	"transact/producing"
)

type peer struct{ producer sarama.SyncProducer }

func open(config map[string]string) (producing.Peer, error) {
	c := sarama.NewConfig()
	c.Version = sarama.V3_6_0_0
	c.ClientID = "sarama"
	c.Net.MaxOpenRequests = 1 // as idempotence, which is not the default, wants it
	c.Producer.Idempotent = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes, c.Producer.Return.Errors = true, true
	if pause, given := config["retry.backoff.ms"]; given {
		c.Producer.Retry.Backoff, c.Metadata.Retry.Backoff = producing.Millis(pause), producing.Millis(pause)
	}
	if text, given := config["retries"]; given {
		retries, err := strconv.Atoi(text)
		if err != nil {
			return nil, err
		}
		c.Producer.Retry.Max, c.Metadata.Retry.Max = retries, retries
	}
	if user, given := config["sasl.username"]; given {
		c.Net.SASL.Enable, c.Net.SASL.User, c.Net.SASL.Password = true, user, config["sasl.password"]
	}
	if path, given := config["ssl.ca.location"]; given {
		trust, err := producing.Trust(path)
		if err != nil {
			return nil, err
		}
		c.Net.TLS.Enable, c.Net.TLS.Config = true, trust
	}
	producer, err := sarama.NewSyncProducer(strings.Split(config["bootstrap.servers"], ","), c)
	return peer{producer}, err
}

func (p peer) Send(topic string, key, value []byte, settled producing.Settled) {
	message := &sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder(value)}
	if key != nil {
		message.Key = sarama.ByteEncoder(key)
	}
	settled(p.producer.SendMessage(message))
}

func (p peer) Close() error { return p.producer.Close() }

func main() { producing.Run(open) }
