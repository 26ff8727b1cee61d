package belay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// A wire is a connection to one server that has been greeted.
type wire struct {
	net.Conn
	plain net.Conn // below TLS; else the same
	in    *respReader
	from  address
}

// dial connects to a and greets it.
func dial(ctx context.Context, a address, config *Config) (*wire, error) {
	plain, err := (&net.Dialer{}).DialContext(ctx, a.network, a.dial)
	if err != nil {
		return nil, unreachable(a, err)
	}
	w := &wire{Conn: plain, plain: plain, from: a}
	if a.tls {
		w.Conn = tls.Client(plain, a.tlsFor(config.TLS))
	}
	w.in = newRespReader(w.Conn)
	stop := context.AfterFunc(ctx, func() { _ = plain.SetDeadline(time.Unix(1, 0)) })
	err = w.greet(config)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		w.drop()
		return nil, unreachable(a, err)
	}
	return w, nil
}

func unreachable(a address, err error) error {
	var said *ServerError
	if errors.As(err, &said) {
		return fmt.Errorf("%s: %w", a.text, said)
	}
	hint := ""
	if errors.Is(err, syscall.ECONNREFUSED) {
		hint = "; is a server running there?"
	}
	return fmt.Errorf("%s: %w%s", a.text, err, hint)
}

func (w *wire) greet(config *Config) error {
	commands := [][]string{{"HELLO", "3"}}
	if config.Token != "" {
		commands = append(commands, []string{"AUTH", config.Token})
	}
	if config.Namespace != "" {
		commands = append(commands, []string{"USE", config.Namespace})
	}
	var bytes []byte
	for _, words := range commands {
		bytes = appendCommand(bytes, words)
	}
	if _, err := w.Write(bytes); err != nil {
		return err
	}
	for range commands {
		v, err := w.in.read()
		if err != nil {
			return err
		}
		if said, ok := v.(*ServerError); ok {
			return said
		}
	}
	return nil
}

// drop leaves the server because of a failure. It is told by a reset, not by a close: a close is a
// last word, and it frees what is held.
func (w *wire) drop() {
	if t, ok := w.plain.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = w.plain.Close()
}
