// franz-go's transactional producer as a program: tests/interop/transacting.py describes the commands.
//
// A consumer whose offsets are part of transactions is a GroupTransactSession, which produces, too: with `subscribe` it
// takes the place of the producer, commits offsets when a transaction is committed, and goes back when one is aborted.
package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"transact/connecting"
	"transact/transacting"
)

var fatal = []error{
	transacting.ErrUnknown,
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

func (p *peer) options(config map[string]string) ([]kgo.Opt, error) {
	options, err := connecting.Options(config)
	options = append(options,
		kgo.TransactionalID(config["transactional.id"]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		kgo.RecordDeliveryTimeout(transacting.Bound))
	if timeout, given := config["transaction.timeout.ms"]; given {
		options = append(options, kgo.TransactionTimeout(transacting.Millis(timeout)))
	}
	return options, err
}

func (p *peer) drop() {
	if p.session != nil {
		p.session.Close()
	} else if p.client != nil {
		p.client.Close()
	}
	p.session, p.client, p.inside = nil, nil, false
}

func (p *peer) Open(config map[string]string) (err error) {
	p.drop()
	p.config = config
	if p.topic != "" {
		return p.consume()
	}
	options, err := p.options(config)
	if err == nil {
		p.client, err = kgo.NewClient(options...)
	}
	return err
}

func (p *peer) Subscribe(topic string, config map[string]string) error {
	p.drop()
	p.topic, p.group = topic, config["group.id"]
	return p.consume()
}

func (p *peer) consume() (err error) {
	options, err := p.options(p.config)
	if err != nil {
		return err
	}
	options = append(options,
		kgo.ConsumerGroup(p.group), kgo.ConsumeTopics(p.topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RequireStableFetchOffsets(),
		kgo.SessionTimeout(15*time.Second), kgo.HeartbeatInterval(300*time.Millisecond))
	if p.session, err = kgo.NewGroupTransactSession(options...); err != nil {
		return err
	}
	p.client = p.session.Client()
	return nil
}

func (p *peer) Init() error {
	ctx, cancel := context.WithTimeout(context.Background(), transacting.Bound)
	defer cancel()
	_, _, err := p.client.ProducerID(ctx)
	return err
}

func (p *peer) Begin() error {
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

func (p *peer) Send(topic string, partition int32, key, value []byte) {
	record := &kgo.Record{Topic: topic, Partition: partition, Key: key, Value: value}
	p.client.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		if err != nil && p.failed == nil {
			p.failed = err
		}
	})
}

func (p *peer) Flush() error {
	ctx, cancel := context.WithTimeout(context.Background(), transacting.Bound)
	defer cancel()
	return p.client.Flush(ctx)
}

func (p *peer) Commit() error { return p.end(kgo.TryCommit) }
func (p *peer) Abort() error  { return p.end(kgo.TryAbort) }

func (p *peer) end(try kgo.TransactionEndTry) error {
	ctx, cancel := context.WithTimeout(context.Background(), transacting.Bound)
	defer cancel()
	if !p.inside {
		return nil // a session that could not commit has aborted
	}
	if p.session != nil {
		committed, err := p.session.End(ctx, try)
		if err != nil {
			return fmt.Errorf("%w: %w", transacting.ErrUnknown, err)
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
		return fmt.Errorf("%w: %w", transacting.ErrUnknown, err)
	}
	p.inside = false
	return nil
}

func (p *peer) Poll() (records []transacting.Record, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	p.session.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
		records = append(records, transacting.Record{Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value})
	})
	return records, nil
}

func (p *peer) Offsets() error { return nil } // the session does it
func (p *peer) Rewind() error  { return nil } // this, too

func (p *peer) Kind(_ string, err error) string {
	if transacting.IsAny(err, fatal) {
		return "fatal"
	}
	if errors.Is(err, kerr.ConcurrentTransactions) || errors.Is(err, kerr.CoordinatorNotAvailable) {
		return "retriable"
	}
	return "abortable"
}

func main() { transacting.Run(&peer{}) }
