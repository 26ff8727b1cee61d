package belay

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// convert asks once for every waitMax until the answer is final.
func (c *Client) convert(ctx context.Context, h *hold, o *lockOptions) error {
	end := never
	if o.wait != Forever {
		end = now().add(o.wait)
	}
	for {
		wait := max(min(end.until(), waitMax), 0)
		err := c.convertOnce(ctx, h, o.shared, wait)
		if wait < waitMax || !errors.Is(err, ErrTimedOut) {
			return err
		}
	}
}

func (c *Client) convertOnce(ctx context.Context, h *hold, shared bool, wait time.Duration) error {
	out := make(chan error, 1)
	c.mu.Lock()
	if h.isLate() {
		defer c.mu.Unlock()
		return h.cause
	}
	k := c.sendConvert(h, shared, wait, func(err error) { out <- err })
	c.mu.Unlock()
	patience := time.NewTimer(wait + c.config.Timeout)
	defer patience.Stop()
	var err error
	select {
	case err = <-out:
		return err
	case <-ctx.Done():
		err = ctx.Err()
	case <-patience.C:
		err = ErrUnreachable
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !k.over && !h.ended { // ask again for a moment: that ends a wait
		c.sendConvert(h, shared, time.Millisecond, func(error) {})
	}
	return fmt.Errorf("belay: %s: %w", h.name, err)
}

// sendConvert asks until the lease is over: whatever the answer is, the fence must be known.
func (c *Client) sendConvert(h *hold, shared bool, wait time.Duration, done func(error)) *call {
	fence := h.fence
	words := []string{"CONVERT", h.name, fenceText(fence), "MODE", "exclusive"}
	if shared {
		words[4] = "shared"
	}
	if wait > 0 {
		words = append(words, "WAIT", millis(wait), "NOBLOCK")
	}
	k := &call{
		bytes:   appendCommand(nil, append(words, "REQUEST", c.requestID())),
		again:   true,
		parks:   wait > 0,
		patient: true,
		until:   never,
		session: h.session,
	}
	k.done = func(a answer) {
		h.converting--
		g, err := grantOf(h.name, a)
		switch {
		case err == nil:
			h.moved(g.fence, k, a.late)
		case hasCode(err, codeStale) && h.fence == fence && h.converting == 0:
			h.lose(&LostError{Reason: reasonStale})
		case errors.Is(err, errSessionOver):
			err = h.cause
		}
		if h.ended && h.cause != nil {
			err = h.cause
		}
		done(err)
	}
	h.converting++
	c.send(k)
	return k
}
