// Package connecting is how the programs with franz-go reach a broker, and who they are there; settings:
// bootstrap.servers, sasl.mechanism, sasl.username, sasl.password, sasl.oauthbearer.token, ssl.ca.location,
// ssl.certificate.location, ssl.key.location.
package connecting

import (
	"crypto/tls"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"transact/producing"
)

// Options are the options of a client with these settings.
func Options(config map[string]string) ([]kgo.Opt, error) {
	options := []kgo.Opt{kgo.SeedBrokers(strings.Split(config["bootstrap.servers"], ",")...), kgo.ClientID("franz-go")}
	if path, given := config["ssl.ca.location"]; given {
		trust, err := producing.Trust(path)
		if err != nil {
			return nil, err
		}
		if path, given = config["ssl.certificate.location"]; given {
			own, err := tls.LoadX509KeyPair(path, config["ssl.key.location"])
			if err != nil {
				return nil, err
			}
			trust.Certificates = []tls.Certificate{own}
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
	case "OAUTHBEARER":
		options = append(options, kgo.SASL(oauth.Auth{Token: config["sasl.oauthbearer.token"]}.AsMechanism()))
	}
	return options, nil
}

// Secured says whether a broker may refuse a client with these settings.
func Secured(config map[string]string) bool {
	return config["sasl.mechanism"] != "" || config["ssl.ca.location"] != ""
}
