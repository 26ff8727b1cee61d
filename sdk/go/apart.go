package belay

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"time"
)

// What waits, or brings much, has a connection of its own: it holds back nobody else.

// A pace says when to try the next server: at once, until each of them has failed in turn. Then
// there is a pause, which grows.
type pace struct {
	failures int
	backoff  time.Duration
}

func (p *pace) pause(servers int) time.Duration {
	if p.failures < servers {
		return 0
	}
	p.failures = 0
	p.backoff = min(max(2*p.backoff, pauseMin), pauseMax)
	return p.backoff/2 + time.Duration(rand.Int63n(int64(p.backoff/2)))
}

// alive is a context that ends with ctx and with the client.
func (c *Client) alive(ctx context.Context) (context.Context, func()) {
	both, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.ctx, func() { end(ErrClosed) })
	return both, func() { stop(); end(nil) }
}

// seek finds a server that says yes to begin. It fails when ctx ends, when a server refuses, or
// when there was none until end.
func (c *Client) seek(ctx context.Context, end instant, begin func(*wire) error) (*wire, error) {
	c.mu.Lock()
	at := c.at
	c.mu.Unlock()
	var p pace
	for ; ; at++ {
		w, err := c.dial(ctx, c.addresses[at%len(c.addresses)], connectTime)
		if err == nil {
			if err = begin(w); err == nil {
				return w, nil
			}
			w.drop()
		}
		var said *ServerError
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("belay: %w", context.Cause(ctx))
		case errors.As(err, &said) && said.Code != codeUnavailable:
			return nil, err
		case now() >= end:
			return nil, fmt.Errorf("belay: %w: %w", ErrUnreachable, err)
		}
		p.failures++
		sleep(ctx, p.pause(len(c.addresses)))
	}
}

// ask sends a command and waits for its answer.
func (w *wire) ask(limit time.Duration, words ...string) (any, error) {
	if err := w.SetDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	if _, err := w.Write(appendCommand(nil, words)); err != nil {
		return nil, err
	}
	v, err := w.in.read()
	if said, ok := v.(*ServerError); ok {
		return nil, said
	}
	return v, err
}

// next is what comes next. It asks a server that says nothing whether it is there.
func (w *wire) next() (any, error) {
	_ = w.SetDeadline(time.Now().Add(pingTime))
	_, err := w.in.in.Peek(1)
	_ = w.SetDeadline(time.Now().Add(silenceTime))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_, err = w.Write(appendCommand(nil, []string{"PING"}))
	}
	if err != nil {
		return nil, err
	}
	return w.in.read()
}
