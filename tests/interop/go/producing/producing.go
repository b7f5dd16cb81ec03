// Package producing is what the producing programs of Go's clients have in common: they read messages, send them, and
// print what became of each, in the order of the messages, as tests/interop/lines.py describes.
//
// Messages have neither a partition nor headers nor a timestamp: the client chooses.
package producing

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Settled is called once for a message, with where it is stored or why it is not.
type Settled func(partition int32, offset int64, err error)

// Peer is a client's producer.
type Peer interface {
	Send(topic string, key, value []byte, settled Settled)
	// Close returns when everything is settled.
	Close() error
}

// Run sends what stdin says, until its end.
func Run(open func(config map[string]string) (Peer, error)) {
	config := map[string]string{}
	for _, each := range os.Args[1:] {
		name, value, _ := strings.Cut(each, "=")
		config[name] = value
	}
	if err := run(open, config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(open func(config map[string]string) (Peer, error), config map[string]string) error {
	peer, err := open(config)
	if err != nil {
		return err
	}
	told := &inOrder{known: map[int]string{}, out: bufio.NewWriter(os.Stdout)}
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, 1<<24)
	for number := 0; input.Scan(); number++ {
		fields := strings.Split(input.Text(), "\t")
		if len(fields) != 6 || fields[1] != "" || fields[4] != "" || fields[5] != "" {
			return errors.New("not a message without partition, headers and timestamp: " + input.Text())
		}
		peer.Send(fields[0], unhexed(fields[2]), unhexed(fields[3]), told.settled(number))
	}
	return errors.Join(input.Err(), peer.Close())
}

type inOrder struct {
	mutex sync.Mutex
	known map[int]string
	next  int
	out   *bufio.Writer
}

func (o *inOrder) settled(number int) Settled {
	return func(partition int32, offset int64, err error) {
		o.mutex.Lock()
		defer o.mutex.Unlock()
		o.known[number] = outcome(partition, offset, err)
		for line, known := o.known[o.next]; known; line, known = o.known[o.next] {
			delete(o.known, o.next)
			o.next++
			_, _ = o.out.WriteString(line)
		}
		_ = o.out.Flush()
	}
}

func outcome(partition int32, offset int64, err error) string {
	if err == nil {
		return fmt.Sprintf("ok\t%d\t%d\n", partition, offset)
	}
	return fmt.Sprintf("error\t%T\t%s\n", err, strings.Join(strings.Fields(err.Error()), " "))
}

func unhexed(text string) []byte {
	if text == "-" {
		return nil
	}
	data, _ := hex.DecodeString(text)
	return data
}

// Trust is the TLS configuration of a client that trusts the authority in a PEM file.
func Trust(path string) (*tls.Config, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New("no certificate in " + path)
	}
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, nil
}

// Millis is a duration as configurations have it.
func Millis(text string) time.Duration {
	ms, _ := strconv.Atoi(text)
	return time.Duration(ms) * time.Millisecond
}
