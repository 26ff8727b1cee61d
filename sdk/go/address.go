package belay

import (
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"strings"
)

const (
	addressDefault = "127.0.0.1:7117"
	portDefault    = "7117"
)

// An address is where a server listens.
type address struct {
	text    string // "tls://a.example:7117"
	network string // "tcp" or "unix"
	host    string // for TLS: what the certificate must say
	dial    string // what the network's dialer takes
	tls     bool
}

// parseAddresses reads "host:port,tls://[::1]:7117,unix:///path".
func parseAddresses(list []string) ([]address, error) {
	var all []address
	for _, text := range strings.Split(strings.Join(list, ","), ",") {
		a, err := parseAddress(text)
		if err != nil {
			return nil, fmt.Errorf("belay: address %q: %w", text, err)
		}
		all = append(all, a)
	}
	return all, nil
}

func parseAddress(text string) (address, error) {
	if path, ok := strings.CutPrefix(text, "unix://"); ok {
		if !strings.HasPrefix(path, "/") {
			return address{}, fmt.Errorf("the path of a socket begins with a '/': unix:///run/belay.sock")
		}
		return address{text: text, network: "unix", dial: path}, nil
	}
	rest, isTLS := strings.CutPrefix(text, "tls://")
	host, port, err := splitAddress(rest)
	if err != nil {
		return address{}, err
	}
	a := address{network: "tcp", host: host, dial: net.JoinHostPort(host, port), tls: isTLS}
	a.text = a.dial
	if isTLS {
		a.text = "tls://" + a.dial
	}
	return a, nil
}

func splitAddress(s string) (host, port string, err error) {
	host, port = s, portDefault
	if bare := strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"); len(bare) == len(s)-2 {
		host = bare
	} else if strings.Contains(s, ":") {
		if host, port, err = net.SplitHostPort(s); err != nil {
			return "", "", fmt.Errorf("an address is host:port, with brackets around IPv6: [::1]:7117")
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", "", fmt.Errorf("the port is not a number from 1 to 65535")
	}
	if host == "" || strings.ContainsAny(host, "/ \t\r\n") {
		return "", "", fmt.Errorf("not a host name")
	}
	return host, port, nil
}

// tlsFor is the configuration for this address: the server must prove that it is this host.
func (a address) tlsFor(base *tls.Config) *tls.Config {
	config := &tls.Config{}
	if base != nil {
		config = base.Clone()
	}
	if config.ServerName == "" {
		config.ServerName = a.host
	}
	return config
}
