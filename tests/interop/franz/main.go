// franz-go's transactional producer as a program: tests/interop/transacting.py describes the commands.
//
// A consumer whose offsets are part of transactions is a GroupTransactSession, which produces, too: with `subscribe` it
// takes the place of the producer, commits offsets when a transaction is committed, and goes back when one is aborted.
package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const bound = 20 * time.Second

var errUnknown = errors.New("the outcome is unknown") // and until another producer comes the transaction may be open

var fatal = []error{
	errUnknown,
	kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping, kerr.OutOfOrderSequenceNumber,
	kerr.InvalidTxnState, kgo.ErrClientClosed, context.DeadlineExceeded,
}

type peer struct {
	client  *kgo.Client
	session *kgo.GroupTransactSession
	config  map[string]string
	topic   string // empty: nothing is consumed
	group   string
	inside  bool
	mutex   sync.Mutex
	failed  error // the first record of the transaction that could not be sent
}

func (p *peer) options(config map[string]string) []kgo.Opt {
	options := []kgo.Opt{
		kgo.SeedBrokers(config["bootstrap.servers"]),
		kgo.TransactionalID(config["transactional.id"]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		kgo.RecordDeliveryTimeout(bound),
	}
	if timeout, given := config["transaction.timeout.ms"]; given {
		ms, _ := strconv.Atoi(timeout)
		options = append(options, kgo.TransactionTimeout(time.Duration(ms)*time.Millisecond))
	}
	return options
}

func (p *peer) drop() {
	if p.session != nil {
		p.session.Close()
	} else if p.client != nil {
		p.client.Close()
	}
	p.session, p.client, p.inside = nil, nil, false
}

func (p *peer) open(config map[string]string) (err error) {
	p.drop()
	p.config = config
	if p.topic != "" {
		return p.consume()
	}
	p.client, err = kgo.NewClient(p.options(config)...)
	return err
}

func (p *peer) subscribe(topic string, config map[string]string) error {
	p.drop()
	p.topic, p.group = topic, config["group.id"]
	return p.consume()
}

func (p *peer) consume() (err error) {
	options := append(p.options(p.config),
		kgo.ConsumerGroup(p.group), kgo.ConsumeTopics(p.topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RequireStableFetchOffsets(),
		kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(300*time.Millisecond))
	if p.session, err = kgo.NewGroupTransactSession(options...); err != nil {
		return err
	}
	p.client = p.session.Client()
	return nil
}

func (p *peer) begin() error {
	p.failed = nil
	begin := p.client.BeginTransaction
	if p.session != nil {
		begin = p.session.Begin
	}
	if err := begin(); err != nil {
		return err
	}
	p.inside = true
	return nil
}

func (p *peer) send(topic string, partition int32, key, value []byte) {
	record := &kgo.Record{Topic: topic, Partition: partition, Key: key, Value: value}
	p.client.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		if err != nil && p.failed == nil {
			p.failed = err
		}
	})
}

func (p *peer) flush() error {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	return p.client.Flush(ctx)
}

func (p *peer) end(try kgo.TransactionEndTry) error {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	if !p.inside {
		return nil // a session that could not commit has aborted
	}
	if p.session != nil {
		committed, err := p.session.End(ctx, try)
		if err != nil {
			return fmt.Errorf("%w: %w", errUnknown, err)
		}
		p.inside = false
		if bool(try) && !committed {
			return errors.New("the group has moved on: aborted")
		}
		return nil
	}
	if try == kgo.TryAbort {
		if err := p.client.AbortBufferedRecords(ctx); err != nil {
			return err
		}
	} else {
		if err := p.client.Flush(ctx); err != nil {
			return err
		}
		p.mutex.Lock()
		failed := p.failed
		p.mutex.Unlock()
		if failed != nil {
			return failed
		}
	}
	if err := p.client.EndTransaction(ctx, try); err != nil {
		return fmt.Errorf("%w: %w", errUnknown, err)
	}
	p.inside = false
	return nil
}

func (p *peer) poll() string {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	var told strings.Builder
	p.session.PollFetches(ctx).EachRecord(func(record *kgo.Record) {
		fmt.Fprintf(&told, "\t%d %d %s %s", record.Partition, record.Offset, hexed(record.Key), hexed(record.Value))
	})
	return told.String()
}

func (p *peer) carryOut(fields []string) (string, error) {
	switch fields[0] {
	case "open":
		return "", p.open(settings(fields[1:]))
	case "init":
		ctx, cancel := context.WithTimeout(context.Background(), bound)
		defer cancel()
		_, _, err := p.client.ProducerID(ctx)
		return "", err
	case "begin":
		return "", p.begin()
	case "send":
		partition, _ := strconv.Atoi(fields[2])
		p.send(fields[1], int32(partition), unhexed(fields[3]), unhexed(fields[4]))
	case "flush":
		return "", p.flush()
	case "commit":
		return "", p.end(kgo.TryCommit)
	case "abort":
		return "", p.end(kgo.TryAbort)
	case "subscribe":
		return "", p.subscribe(fields[1], settings(fields[2:]))
	case "poll":
		return p.poll(), nil
	case "offsets", "rewind": // the session does it
	}
	return "", nil
}

func kind(err error) string {
	for _, each := range fatal {
		if errors.Is(err, each) {
			return "fatal"
		}
	}
	if errors.Is(err, kerr.ConcurrentTransactions) || errors.Is(err, kerr.CoordinatorNotAvailable) {
		return "retriable"
	}
	return "abortable"
}

func settings(pairs []string) map[string]string {
	config := map[string]string{}
	for _, pair := range pairs {
		key, value, _ := strings.Cut(pair, "=")
		config[key] = value
	}
	return config
}

func hexed(data []byte) string {
	if data == nil {
		return "-"
	}
	return hex.EncodeToString(data)
}

func unhexed(text string) []byte {
	if text == "-" {
		return nil
	}
	data, _ := hex.DecodeString(text)
	return data
}

func main() {
	p := &peer{}
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, 1<<24)
	for input.Scan() {
		answer, err := p.carryOut(strings.Split(input.Text(), "\t"))
		if err != nil {
			fmt.Println(strings.Join([]string{"error", kind(err), "error", strings.Join(strings.Fields(err.Error()), " ")}, "\t"))
		} else {
			fmt.Println("ok" + answer)
		}
	}
}
