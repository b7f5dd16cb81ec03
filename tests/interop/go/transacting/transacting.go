// Package transacting is what the programs of Go's clients have in common: they read commands, carry them out, and answer,
// as tests/interop/transacting.py describes.
package transacting

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Bound is how long a command may take.
const Bound = 20 * time.Second

// ErrUnknown says that the outcome is unknown: until another producer comes the transaction may be open.
var ErrUnknown = errors.New("the outcome is unknown")

// Peer is a client: a method for each command.
type Peer interface {
	Open(config map[string]string) error
	Init() error
	Begin() error
	Send(topic string, partition int32, key, value []byte)
	Flush() error
	Commit() error
	Abort() error
	Subscribe(topic string, config map[string]string) error
	Poll() ([]Record, error)
	Rewind() error
	Offsets() error
	// Kind is fatal, retriable or abortable: what the error of a command is.
	Kind(command string, err error) string
}

// Record is what was read.
type Record struct {
	Partition  int32
	Offset     int64
	Key, Value []byte
}

// Run carries out what stdin says, until its end.
func Run(p Peer) {
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, 1<<24)
	for input.Scan() {
		fields := strings.Split(input.Text(), "\t")
		records, err := carryOut(p, fields)
		if err != nil {
			text := strings.Join(strings.Fields(err.Error()), " ")
			fmt.Println(strings.Join([]string{"error", p.Kind(fields[0], err), "error", text}, "\t"))
			continue
		}
		answer := "ok"
		for _, each := range records {
			answer += fmt.Sprintf("\t%d %d %s %s", each.Partition, each.Offset, hexed(each.Key), hexed(each.Value))
		}
		fmt.Println(answer)
	}
}

func carryOut(p Peer, fields []string) ([]Record, error) {
	switch fields[0] {
	case "open":
		return nil, p.Open(settings(fields[1:]))
	case "init":
		return nil, p.Init()
	case "begin":
		return nil, p.Begin()
	case "send":
		partition, _ := strconv.Atoi(fields[2])
		p.Send(fields[1], int32(partition), unhexed(fields[3]), unhexed(fields[4]))
	case "flush":
		return nil, p.Flush()
	case "commit":
		return nil, p.Commit()
	case "abort":
		return nil, p.Abort()
	case "subscribe":
		return nil, p.Subscribe(fields[1], settings(fields[2:]))
	case "poll":
		return p.Poll()
	case "rewind":
		return nil, p.Rewind()
	case "offsets":
		return nil, p.Offsets()
	}
	return nil, nil
}

// IsAny tells whether an error is one of some others.
func IsAny(err error, others []error) bool {
	for _, each := range others {
		if errors.Is(err, each) {
			return true
		}
	}
	return false
}

// Millis is a duration as configurations have it.
func Millis(text string) time.Duration {
	ms, _ := strconv.Atoi(text)
	return time.Duration(ms) * time.Millisecond
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
