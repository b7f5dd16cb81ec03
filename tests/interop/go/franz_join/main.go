// A member of a consumer group of KIP-848 with franz-go, until standard input ends; arguments: `join`, topic, `key=value`
// settings: group.id, metadata.max.age.ms, and those of package connecting. tests/interop/members.py describes the lines that it prints.
package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"transact/connecting"
	"transact/producing"
)

// Partitions change in franz-go's goroutines, so both kinds of lines pass through one printer.
type printer struct {
	mutex sync.Mutex
	out   *bufio.Writer
	owned map[int32]bool
}

func (p *printer) change(owns bool) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		for _, partitions := range changed {
			for _, each := range partitions {
				if owns {
					p.owned[each] = true
				} else {
					delete(p.owned, each)
				}
			}
		}
		var names []string
		for each := range p.owned {
			names = append(names, strconv.Itoa(int(each)))
		}
		sort.Strings(names)
		fmt.Fprintf(p.out, "assigned\t%s\n", strings.Join(names, " "))
		p.out.Flush()
	}
}

func (p *printer) records(records []*kgo.Record) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, r := range records {
		var headers []string
		for _, each := range r.Headers {
			headers = append(headers, each.Key+"="+hexed(each.Value))
		}
		fmt.Fprintf(p.out, "record\t%d\t%d\t%d\t%s\t%s\t%s\n", r.Partition, r.Offset, r.Timestamp.UnixMilli(),
			hexed(r.Key), hexed(r.Value), strings.Join(headers, ","))
	}
	p.out.Flush()
}

func hexed(data []byte) string {
	if data == nil {
		return "-"
	}
	return hex.EncodeToString(data)
}

func main() {
	topic, config := os.Args[2], map[string]string{}
	for _, each := range os.Args[3:] {
		name, value, _ := strings.Cut(each, "=")
		config[name] = value
	}
	told := &printer{out: bufio.NewWriter(os.Stdout), owned: map[int32]bool{}}
	options, err := connecting.Options(config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	client, err := kgo.NewClient(append(options,
		kgo.ConsumerGroup(config["group.id"]), kgo.ConsumeTopics(topic), kgo.ServerSideBalancer(),
		kgo.Balancers(kgo.CooperativeStickyBalancer()), // any that is not a custom one: the broker has its own
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		// A partition is given up only between two polls, when its records are committed.
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(told.change(true)), kgo.OnPartitionsRevoked(told.change(false)), kgo.OnPartitionsLost(told.change(false)),
		kgo.MetadataMaxAge(producing.Millis(config["metadata.max.age.ms"])), kgo.MetadataMinAge(50*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }))...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		fetches.EachError(func(_ string, _ int32, err error) {
			if ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, err) // it goes on trying
			}
		})
		records := fetches.Records()
		told.records(records)
		if len(records) > 0 {
			// Without a limit of its own, it tries for as long as the broker is away.
			if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
				fmt.Fprintln(os.Stderr, err) // another member reads them again
			}
		}
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
}
