package belay

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// withdrawTime is how long a call that has ended otherwise looks whether the server knows it.
const withdrawTime = time.Second

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
	c.withdrawConvert(k, h, shared)
	return fmt.Errorf("belay: %s: %w", h.name, err)
}

// withdrawConvert asks once more, for a moment, which ends a wait. While the server answers, it is
// known before this returns how the lock is held.
func (c *Client) withdrawConvert(k *call, h *hold, shared bool) {
	ended := make(chan error, 1)
	c.mu.Lock()
	if k.over || h.ended {
		c.mu.Unlock()
		return
	}
	c.sendConvert(h, shared, time.Millisecond, func(err error) { ended <- err })
	ready := c.isReady()
	c.mu.Unlock()
	if !ready {
		return
	}
	patience := time.NewTimer(withdrawTime)
	defer patience.Stop()
	select {
	case <-ended:
	case <-patience.C:
	}
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
		var refused *RefusedError
		gone := hasCode(err, codeStale) || (errors.As(err, &refused) && refused.Reason == "lost")
		switch {
		case err == nil:
			h.moved(g.fence, k.first)
		case gone && h.fence == fence && h.converting == 0:
			h.lose(&LostError{Reason: reasonStale})
		}
		if h.ended {
			err = h.cause
		}
		done(err)
	}
	h.converting++
	c.send(k)
	return k
}
