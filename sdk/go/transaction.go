package belay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"example.org/belay/txn"
)

// A Transaction is statements of which all happen, or none. Package txn builds them.
type Transaction struct {
	Statements  []txn.Statement
	Description string
	Wait        time.Duration // for what it asserts; 0: do not wait
	MinUptime   time.Duration // of the server
	MinTrust    float64       // 0 to 1, see docs/TRANSACTIONS.md
}

// A TransactionResult says what became of a transaction.
type TransactionResult struct {
	Status string // "ok": all of it happened; "error", "timeout": nothing did
	Cause  string // "statement", "session" or "requirements"
	Failed string // the way to the statement that failed: "1:/AssertOp/"
	Uptime time.Duration
	Trust  float64
	Norm   float64
	Data   map[string]json.RawMessage // what was selected
}

// Transact runs a transaction in the session of the client.
func (c *Client) Transact(ctx context.Context, t Transaction) (*TransactionResult, error) {
	for {
		c.mu.Lock()
		s := c.needSession()
		if s == nil {
			c.mu.Unlock()
			return nil, fmt.Errorf("belay: %w", ErrClosed)
		}
		s.used = true
		c.mu.Unlock()
		v, err := c.transact(ctx, t, s)
		if err != nil {
			return nil, err
		}
		result, err := resultOf(v)
		if err != nil || result.Cause != reasonSession {
			return result, err
		}
		c.mu.Lock() // nothing was done: it goes on in the next session
		c.endSession(s, reasonSession)
		c.mu.Unlock()
		sleep(ctx, retryTime)
	}
}

func (c *Client) transact(ctx context.Context, t Transaction, s *session) (any, error) {
	wait := t.Wait
	if wait == Forever {
		wait = waitMax
	}
	text, err := json.Marshal(map[string]any{
		"session": s.id, "description": t.Description, "wait_ms": wait.Milliseconds(),
		"min_uptime_s": int64(t.MinUptime / time.Second), "min_trust": t.MinTrust, "statements": t.Statements,
	})
	if err != nil {
		return nil, fmt.Errorf("belay: %w", err)
	}
	if wait == 0 {
		return c.change(ctx, "TXN", string(text))
	}
	return c.transactApart(ctx, []string{"TXN", string(text), "REQUEST", c.requestID()}, now().add(wait+c.config.Timeout))
}

// transactApart waits on a connection of its own to the same node. The link finds out whether the
// node is there: without it, the transaction goes on elsewhere, where its id keeps its place.
func (c *Client) transactApart(ctx context.Context, words []string, end instant) (any, error) {
	ctx, stop := c.alive(ctx)
	defer stop()
	for {
		if _, err := c.do(ctx, true, "PING"); err != nil { // the session is attached
			return nil, err
		}
		v, err := c.transactOnce(ctx, words, end)
		var said *ServerError
		switch {
		case err == nil:
			return v, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("belay: %w", context.Cause(ctx))
		case errors.As(err, &said) && said.Code != codeUnavailable:
			return nil, err
		case now() >= end:
			return nil, fmt.Errorf("belay: %w", ErrUnreachable)
		}
		sleep(ctx, pauseMin)
	}
}

func (c *Client) transactOnce(ctx context.Context, words []string, end instant) (any, error) {
	c.mu.Lock()
	l := c.link
	if l == nil {
		c.mu.Unlock()
		return nil, ErrUnreachable
	}
	l.apart++
	l.lookBy(l.heard.add(pingTime))
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		l.apart--
	}()
	w, err := c.dial(ctx, l.wire.from, connectTime)
	if err != nil {
		return nil, err
	}
	defer w.drop()
	defer context.AfterFunc(ctx, func() { _ = w.Close() })() // nobody wants it: it leaves its place
	defer context.AfterFunc(l.ctx, w.drop)()
	return w.ask(end.until(), words...)
}

// resultOf reads "[status, failed, cause, uptime_s, trust, norm, [[name, json]...]]".
func resultOf(v any) (*TransactionResult, error) {
	items, _ := v.([]any)
	if len(items) < 7 {
		return nil, fmt.Errorf("belay: %w", errProtocol)
	}
	r := &TransactionResult{
		Status: textOf(items[0]), Failed: textOf(items[1]), Cause: textOf(items[2]),
		Uptime: time.Duration(wholeOf(items[3])) * time.Second,
		Trust:  realOf(items[4]), Norm: realOf(items[5]), Data: map[string]json.RawMessage{},
	}
	rows, _ := items[6].([]any)
	for _, row := range rows {
		if pair, _ := row.([]any); len(pair) == 2 {
			r.Data[textOf(pair[0])] = json.RawMessage(textOf(pair[1]))
		}
	}
	return r, nil
}
