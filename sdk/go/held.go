package belay

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"time"
)

// A Held is a lock that you hold, or several that you took together, until you release it or it is
// lost. All its methods may be called by all goroutines at once.
type Held struct {
	client *Client
	holds  []*hold
	ctx    *heldContext
	end    context.CancelCauseFunc
}

// A heldContext ends with the lock. Asked for its error, it looks at the clock first: right after
// the process was stopped it says that the lease is over, before anything else has noticed.
type heldContext struct {
	context.Context
	held *Held
}

func (c *heldContext) Err() error {
	c.held.Held()
	return c.Context.Err()
}

func (c *Client) newHeld(ctx context.Context) *Held {
	h := &Held{client: c}
	inner, end := context.WithCancelCause(context.WithoutCancel(ctx))
	h.ctx, h.end = &heldContext{inner, h}, end
	return h
}

func (h *Held) add(one *hold) {
	h.client.mu.Lock()
	defer h.client.mu.Unlock()
	h.holds = append(h.holds, one)
	one.onEnd = func(cause error) { h.end(cause) }
	if one.ended { // meanwhile
		h.end(one.cause)
	}
}

// Lock waits in line for a lock and takes it. It waits until the lock is free, [Wait] is over, or
// ctx ends; ctx has no meaning for the lock once it is held.
//
// Two calls exclude each other in one client as well.
func (c *Client) Lock(ctx context.Context, name string, options ...LockOption) (*Held, error) {
	return c.LockAll(ctx, []string{name}, options...)
}

// TryLock takes a lock if that can be done at once. If not, it fails with a [RefusedError].
func (c *Client) TryLock(ctx context.Context, name string, options ...LockOption) (*Held, error) {
	return c.Lock(ctx, name, append(options[:len(options):len(options)], Wait(0))...)
}

// LockAll takes several locks, or none. They are taken in the order of their names, so that
// clients that do this never wait for each other in a circle. [Wait] is for all of them together.
func (c *Client) LockAll(ctx context.Context, names []string, options ...LockOption) (*Held, error) {
	o, err := lockOptionsOf(options)
	if err != nil {
		return nil, err
	}
	names = append([]string(nil), names...)
	sort.Strings(names)
	if err := checkNames(names); err != nil {
		return nil, err
	}
	owner := o.owner
	if owner == "" {
		owner = c.config.Owner + "#" + strconv.FormatUint(c.owners.Add(1), 10)
	}
	end := never
	if o.wait != Forever {
		end = now().add(o.wait)
	}
	held := c.newHeld(ctx)
	if len(names) > 1 { // one that is lost meanwhile ends the wait for the next
		var stop func()
		ctx, stop = held.join(ctx)
		defer stop()
	}
	for _, name := range names {
		one, err := c.acquire(ctx, party{name, owner}, o, end)
		if err != nil {
			lost := held.lost()
			_, _ = held.Release()
			if lost != nil {
				return nil, lost
			}
			return nil, err
		}
		held.add(one)
	}
	return held, nil
}

func checkNames(names []string) error {
	if len(names) == 0 {
		return errors.New("belay: no name of a lock")
	}
	for i, name := range names {
		if err := checkName(name); err != nil {
			return err
		}
		if i > 0 && names[i-1] == name {
			return fmt.Errorf("belay: %s: twice", name)
		}
	}
	return nil
}

// WithLock runs f while it holds a lock. The context of f ends with ctx, and when the lock is
// lost. If it was lost and f has not failed by itself, the result is the [LostError].
func (c *Client) WithLock(ctx context.Context, name string, f func(context.Context, *Held) error, options ...LockOption) error {
	held, err := c.Lock(ctx, name, options...)
	if err != nil {
		return err
	}
	defer func() { _, _ = held.Release() }()
	both, stop := held.join(ctx)
	defer stop()
	err = f(both, held)
	if lost := held.lost(); err == nil && lost != nil {
		return lost
	}
	return err
}

// join is a context that ends with ctx and with the lock.
func (h *Held) join(ctx context.Context) (context.Context, func()) {
	both, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(h.ctx, func() { end(context.Cause(h.ctx)) })
	return both, func() { stop(); end(nil) }
}

// lost is the [LostError], or nil.
func (h *Held) lost() error {
	var lost *LostError
	if errors.As(h.ended(), &lost) {
		return lost
	}
	return nil
}

// ended is why it is not held any more, or nil.
func (h *Held) ended() error {
	if h.ctx.Err() == nil {
		return nil
	}
	if cause := context.Cause(h.ctx); cause != context.Canceled {
		return cause
	}
	return fmt.Errorf("belay: %s: it was released", h.Name())
}

// Name is the name of the lock; of several, the first in their order.
func (h *Held) Name() string { return h.holds[0].name }

// Owner is who holds the lock, for people who look.
func (h *Held) Owner() string { return h.holds[0].owner }

// Body is what was stored with the lock when it was granted.
func (h *Held) Body() []byte { return []byte(h.holds[0].body) }

// Fence is a number that grows with every grant of the lock. Give it to what you write to, so
// that it can refuse a smaller one than it has seen. A conversion changes it.
func (h *Held) Fence() uint64 { return h.Fences()[h.Name()] }

// Fences are the fences of several locks by their names.
func (h *Held) Fences() map[string]uint64 {
	h.client.mu.Lock()
	defer h.client.mu.Unlock()
	all := map[string]uint64{}
	for _, one := range h.holds {
		all[one.name] = one.fence
	}
	return all
}

// Context ends when the lock is released, and when it is lost: before anybody else can have it,
// unless an operator broke it. [context.Cause] then is a [LostError]. It carries the values of the
// context that the lock was asked for with.
func (h *Held) Context() context.Context { return h.ctx }

// Held says whether the lock is held at this moment. It asks only the clock, so it is right
// directly after a stop of the process, too. Call it before a step that must not be done twice.
func (h *Held) Held() bool {
	h.client.mu.Lock()
	defer h.client.mu.Unlock()
	held := len(h.holds) > 0
	for _, one := range h.holds {
		if one.isLate() {
			held = false
		}
	}
	return held
}

// Check asks the server whether the lock is held.
func (h *Held) Check(ctx context.Context) (bool, error) {
	for name, fence := range h.Fences() {
		v, err := h.client.do(ctx, true, "CHECK", name, fenceText(fence))
		if err != nil || v != int64(1) {
			return false, err
		}
	}
	return true, nil
}

// SetBody stores what the next holder finds.
func (h *Held) SetBody(ctx context.Context, body []byte) error {
	if err := h.ended(); err != nil {
		return err
	}
	for name, fence := range h.Fences() {
		if _, err := h.client.change(ctx, "BODY", name, fenceText(fence), string(body)); err != nil {
			return err
		}
	}
	return nil
}

// Convert makes an exclusive lock [Shared], or without that option a shared one exclusive. The
// fence changes. If it cannot be had (a [RefusedError], [ErrTimedOut], a [DeadlockError], the end
// of ctx), the lock is held as before. Only Shared and [Wait] mean something here.
func (h *Held) Convert(ctx context.Context, options ...LockOption) error {
	o, err := lockOptionsOf(options)
	if err != nil {
		return err
	}
	if err := h.ended(); err != nil {
		return err
	}
	if len(h.holds) > 1 {
		return errors.New("belay: several locks are not converted together")
	}
	return h.client.convert(ctx, h.holds[0], o)
}

// Release gives the lock back. It says whether it was held until then: that a lock was lost is no
// error. With [ErrUnreachable] the answer did not come in time; the lock is given back all the
// same, as soon as that is possible.
func (h *Held) Release() (bool, error) {
	c := h.client
	answers := make(chan answer, len(h.holds))
	asked := 0
	c.mu.Lock()
	for _, one := range h.holds {
		if !one.isLate() {
			one.release(func(a answer) { answers <- a })
			asked++
		}
	}
	h.end(context.Canceled)
	c.mu.Unlock()
	held := asked > 0 && asked == len(h.holds)
	patience := time.NewTimer(c.config.Timeout)
	defer patience.Stop()
	for ; asked > 0; asked-- {
		select {
		case a := <-answers:
			if a.err != nil && !errors.Is(a.err, errSessionOver) {
				return false, a.err
			}
			held = held && a.value == int64(1)
		case <-patience.C:
			return false, fmt.Errorf("belay: %s: %w", h.Name(), ErrUnreachable)
		}
	}
	return held, nil
}
