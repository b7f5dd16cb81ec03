// sarama's transactional producer as a program: tests/interop/transacting.py describes the commands.
//
// What sarama 1.46 cannot do, and what the program does about it:
//   - A producer is initialized when it is made, so `init` makes it.
//   - It has no call that waits for what was sent: `flush` counts, and sees whether the producer has given up. What is
//     still to be sent then sarama repeats, as often as it may, before it says so.
//   - Offsets are committed without the group's generation, and read without waiting for pending ones (no KIP-447). So
//     `poll` joins the group once more, and begins where that stands, when the group was joined again by itself, and
//     `offsets` refuses what was read before.
//   - Offsets of a transaction without a record are not committed, and nobody is told.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"transact/transacting"
)

const (
	pause = 100 * time.Millisecond
	most  = 500 // records of one poll
)

var (
	errLate       = errors.New("not in time")
	errFatal      = errors.New("the transaction manager gives up")
	errRebalanced = errors.New("the group was joined again")
)

var fatal = []error{
	transacting.ErrUnknown, errLate, errFatal, sarama.ErrProducerFenced, sarama.ErrInvalidProducerEpoch, sarama.ErrInvalidProducerIDMapping,
	sarama.ErrOutOfOrderSequenceNumber, sarama.ErrInvalidTxnState, sarama.ErrTransitionNotAllowed,
}

type peer struct {
	config   map[string]string
	producer sarama.AsyncProducer
	inside   bool
	sent     bool // something, in this transaction
	reader   *reader

	mutex    sync.Mutex
	inFlight int
	failed   error // the first record of the transaction that could not be sent
}

func (p *peer) options() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.V3_6_0_0
	c.ClientID = "sarama"
	c.Net.MaxOpenRequests = 1
	c.Metadata.Retry.Max, c.Metadata.Retry.Backoff = 50, pause
	c.Producer.Idempotent = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Producer.Return.Successes, c.Producer.Return.Errors = true, true
	c.Producer.Retry.Max, c.Producer.Retry.Backoff = 200, pause
	c.Producer.Transaction.ID = p.config["transactional.id"]
	c.Producer.Transaction.Retry.Max, c.Producer.Transaction.Retry.Backoff = 100, pause
	if ms, given := p.config["transaction.timeout.ms"]; given {
		c.Producer.Transaction.Timeout = transacting.Millis(ms)
	}
	return c
}

func (p *peer) Open(config map[string]string) error {
	if p.producer != nil {
		p.producer.AsyncClose() // what it still waits for is of no interest
	}
	p.config, p.producer, p.inside = config, nil, false
	return nil
}

func (p *peer) Init() error {
	producer, err := sarama.NewAsyncProducer(strings.Split(p.config["bootstrap.servers"], ","), p.options())
	if err != nil {
		return err
	}
	p.mutex.Lock()
	p.producer, p.inFlight = producer, 0
	p.mutex.Unlock()
	settled := func(err error) {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		if p.producer != producer {
			return
		}
		if err != nil && p.failed == nil {
			p.failed = err
		}
		p.inFlight--
	}
	go func() {
		for range producer.Successes() {
			settled(nil)
		}
	}()
	go func() {
		for each := range producer.Errors() {
			settled(each.Err)
		}
	}()
	return nil
}

func (p *peer) Begin() error {
	if p.producer == nil {
		return transacting.ErrUnknown
	}
	p.mutex.Lock()
	p.failed, p.sent = nil, false
	p.mutex.Unlock()
	if err := p.producer.BeginTxn(); err != nil {
		return err
	}
	p.inside = true
	return nil
}

func (p *peer) Send(topic string, partition int32, key, value []byte) {
	p.mutex.Lock()
	p.inFlight++
	p.mutex.Unlock()
	p.sent = true
	p.producer.Input() <- &sarama.ProducerMessage{
		Topic: topic, Partition: partition, Key: sarama.ByteEncoder(key), Value: sarama.ByteEncoder(value),
	}
}

func (p *peer) Flush() error {
	for deadline := time.Now().Add(transacting.Bound); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		p.mutex.Lock()
		inFlight, failed := p.inFlight, p.failed
		p.mutex.Unlock()
		if inFlight == 0 {
			return failed
		}
		if p.producer.TxnStatus()&sarama.ProducerTxnFlagFatalError != 0 {
			return errFatal
		}
	}
	return errLate
}

func (p *peer) end(call func() error) error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	select {
	case err := <-done:
		if err == nil {
			p.inside = false
			return nil
		}
		if p.producer.TxnStatus()&sarama.ProducerTxnFlagAbortableError != 0 {
			return err
		}
		return fmt.Errorf("%w: %w", transacting.ErrUnknown, err)
	case <-time.After(transacting.Bound):
		return errLate
	}
}

func (p *peer) Commit() error {
	if err := p.Flush(); err != nil {
		return err
	}
	return p.end(p.producer.CommitTxn)
}

func (p *peer) Abort() error {
	if err := p.Flush(); errors.Is(err, errLate) || errors.Is(err, errFatal) {
		return err
	}
	return p.end(p.producer.AbortTxn)
}

func (p *peer) Offsets() error {
	if p.reader.moved() {
		return errRebalanced
	}
	var places []*sarama.PartitionOffsetMetadata
	for partition, offset := range p.reader.positions {
		places = append(places, &sarama.PartitionOffsetMetadata{Partition: partition, Offset: offset})
	}
	p.sent = true
	return p.producer.AddOffsetsToTxn(map[string][]*sarama.PartitionOffsetMetadata{p.reader.topic: places}, p.reader.group)
}

func (p *peer) Subscribe(topic string, config map[string]string) (err error) {
	if p.reader != nil {
		p.reader.close()
	}
	p.reader, err = newReader(topic, config)
	return err
}

func (p *peer) Poll() ([]transacting.Record, error) {
	if p.reader.moved() {
		if p.inside && p.sent {
			return nil, errRebalanced
		}
		if err := p.reader.rewind(); err != nil {
			return nil, err
		}
	}
	return p.reader.poll(), nil
}

func (p *peer) Rewind() error { return p.reader.rewind() }

func (p *peer) Kind(command string, err error) string {
	if command == "init" || command == "rewind" || command == "poll" {
		return "retriable"
	}
	if transacting.IsAny(err, fatal) || p.producer.TxnStatus()&sarama.ProducerTxnFlagFatalError != 0 {
		return "fatal"
	}
	return "abortable"
}

// A member of a group, whose records wait until they are polled.
type reader struct {
	topic, group string
	members      sarama.ConsumerGroup
	over         context.CancelFunc
	positions    map[int32]int64 // behind what the last poll returned

	mutex            sync.Mutex
	news             *sync.Cond
	again            context.CancelFunc // ends this session, so that another one begins
	joined, followed int                // how many sessions there were, and with which of them the reading began
	waiting          []*sarama.ConsumerMessage
}

func newReader(topic string, config map[string]string) (*reader, error) {
	c := sarama.NewConfig()
	c.Version = sarama.V3_6_0_0
	c.ClientID = "sarama"
	c.Metadata.Retry.Max, c.Metadata.Retry.Backoff = 50, pause
	c.Consumer.IsolationLevel = sarama.ReadCommitted
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.Group.Session.Timeout = transacting.Millis(config["session.timeout.ms"])
	c.Consumer.Group.Heartbeat.Interval = transacting.Millis(config["heartbeat.interval.ms"])
	c.Consumer.Group.Rebalance.Timeout = 10 * time.Second
	c.Consumer.MaxWaitTime, c.Consumer.Retry.Backoff = pause, pause
	members, err := sarama.NewConsumerGroup(strings.Split(config["bootstrap.servers"], ","), config["group.id"], c)
	if err != nil {
		return nil, err
	}
	ctx, over := context.WithCancel(context.Background())
	r := &reader{topic: topic, group: config["group.id"], members: members, over: over, again: func() {}}
	r.news = sync.NewCond(&r.mutex)
	go func() {
		for ctx.Err() == nil {
			session, again := context.WithCancel(ctx)
			r.mutex.Lock()
			r.again = again
			r.mutex.Unlock()
			if err := members.Consume(session, []string{topic}, r); err != nil {
				fmt.Fprintln(os.Stderr, err)
				time.Sleep(pause)
			}
			again()
		}
	}()
	return r, r.follow(0)
}

func (r *reader) Setup(sarama.ConsumerGroupSession) error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.joined++
	r.waiting = nil
	r.news.Broadcast()
	return nil
}

func (r *reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (r *reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	r.mutex.Lock()
	mine := r.joined
	r.mutex.Unlock()
	for message := range claim.Messages() {
		r.mutex.Lock()
		if r.joined == mine && session.Context().Err() == nil {
			r.waiting = append(r.waiting, message)
		}
		r.news.Broadcast()
		r.mutex.Unlock()
	}
	return nil
}

func (r *reader) moved() bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.joined != r.followed
}

// Waits for a session behind those that are known, and follows it.
func (r *reader) follow(known int) error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if !r.wait(transacting.Bound, func() bool { return r.joined > known }) {
		return errLate
	}
	r.followed = r.joined
	return nil
}

// Waits until the condition holds; false if it does not in time. Called with the mutex held.
func (r *reader) wait(most time.Duration, condition func() bool) bool {
	deadline := time.Now().Add(most)
	// It takes the mutex, or it might come between a look at the clock and the wait, and wake nobody.
	late := time.AfterFunc(most, func() {
		r.mutex.Lock()
		defer r.mutex.Unlock()
		r.news.Broadcast()
	})
	defer late.Stop()
	for !condition() {
		if !time.Now().Before(deadline) {
			return false
		}
		r.news.Wait()
	}
	return true
}

// Goes back to where the group stands; nothing of it may be pending.
func (r *reader) rewind() error {
	r.mutex.Lock()
	known, again := r.joined, r.again
	r.mutex.Unlock()
	again()
	return r.follow(known)
}

func (r *reader) poll() []transacting.Record {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.wait(500*time.Millisecond, func() bool { return len(r.waiting) > 0 || r.joined != r.followed })
	r.positions = map[int32]int64{}
	if r.joined != r.followed {
		return nil
	}
	count := min(most, len(r.waiting))
	records := make([]transacting.Record, count)
	for i, m := range r.waiting[:count] {
		r.positions[m.Partition] = m.Offset + 1
		records[i] = transacting.Record{Partition: m.Partition, Offset: m.Offset, Key: m.Key, Value: m.Value}
	}
	r.waiting = r.waiting[count:]
	return records
}

func (r *reader) close() {
	r.over()
	_ = r.members.Close()
}

func main() { transacting.Run(&peer{}) }
