package belay

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

var (
	errSessionOver = errors.New("the session is over")
	errAskAgain    = errors.New("it must be asked for again")
)

// A party is who holds or waits: one at a time.
type party struct{ name, owner string }

// An ask is one request for a lock, until it is granted and proven, or not.
type ask struct {
	client  *Client
	options *lockOptions
	party
	session *session
	call    *call
	hold    *hold    // granted, but not handed over yet
	places  chan int // the place in the line, for onPlace
	out     chan outcome
	over    bool
}

type outcome struct {
	hold *hold
	err  error
}

// acquire waits for the lock until end, or for what ctx allows.
func (c *Client) acquire(ctx context.Context, p party, o *lockOptions, end instant) (*hold, error) {
	c.mu.Lock()
	taken := c.parties[p]
	c.parties[p] = true
	c.mu.Unlock()
	if taken {
		return nil, fmt.Errorf("belay: %s: %s holds it or waits for it already", p.name, p.owner)
	}
	h, err := c.askUntil(ctx, p, o, end)
	if err != nil {
		c.mu.Lock()
		delete(c.parties, p)
		c.mu.Unlock()
	}
	return h, err
}

func (c *Client) askUntil(ctx context.Context, p party, o *lockOptions, end instant) (*hold, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("belay: %s: %w", p.name, err)
		}
		wait := max(min(end.until(), waitMax), time.Millisecond)
		if o.wait == 0 {
			wait = 0
		}
		h, err := c.ask(p, o, wait).await(ctx)
		again := errors.Is(err, errAskAgain) || errors.Is(err, errSessionOver)
		switch {
		case !again && !(errors.Is(err, ErrTimedOut) && wait == waitMax):
			return h, err
		case o.wait > 0 && now() >= end:
			return nil, fmt.Errorf("belay: %s: %w", p.name, ErrTimedOut)
		case o.wait == 0 && now() >= end.add(c.config.Timeout):
			return nil, fmt.Errorf("belay: %s: %w", p.name, ErrUnreachable)
		case again:
			sleep(ctx, retryTime)
		}
	}
}

func (c *Client) ask(p party, o *lockOptions, wait time.Duration) *ask {
	a := &ask{
		client: c, options: o, party: p,
		places: make(chan int, 1), out: make(chan outcome, 1),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parties[p] = true // a grant that was over at once has taken it off
	a.session = c.needSession()
	words := a.words(wait)
	if o.body != nil {
		words = append(words, "BODY", *o.body)
	}
	a.call = &call{
		bytes:   appendCommand(nil, append(words, "REQUEST", c.requestID())),
		again:   true,
		parks:   wait > 0,
		placed:  a.queued,
		until:   now().add(wait + c.config.Timeout),
		session: a.session,
		done:    a.answered,
	}
	c.send(a.call)
	return a
}

func (a *ask) words(wait time.Duration) []string {
	o := a.options
	words := []string{"ACQUIRE", a.name, a.owner}
	if o.shared {
		words = append(words, "MODE", "shared")
	}
	if o.of > 0 {
		words = append(words, "PERMITS", strconv.Itoa(o.permits), "OF", strconv.Itoa(o.of))
	}
	words = append(words, "TTL", millis(o.ttl))
	if a.session != nil {
		words = append(words, "SESSION", a.session.id)
	}
	if wait > 0 {
		words = append(words, "WAIT", millis(wait), "NOBLOCK")
	}
	if o.grace > 0 {
		words = append(words, "GRACE", millis(o.grace))
	}
	if o.delay > 0 {
		words = append(words, "DELAY", millis(o.delay))
	}
	return words
}

// await ends with the outcome, or when ctx does.
func (a *ask) await(ctx context.Context) (*hold, error) {
	defer a.leaveLine()
	last := 0
	for {
		select {
		case place := <-a.places:
			if place != last {
				last = place
				a.options.onPlace(place)
			}
		case out := <-a.out:
			return out.hold, out.err
		case <-ctx.Done():
			a.cancel()
			return nil, fmt.Errorf("belay: %s: %w", a.name, ctx.Err())
		}
	}
}

// ---- answers: the client is locked -------------------------------------------------------------

func (a *ask) answered(got answer) {
	g, err := grantOf(a.name, got)
	if err == nil {
		a.granted(g, got.late)
		return
	}
	switch {
	case hasCode(err, codeNoSession):
		a.client.endSession(a.session, reasonSession)
		err = errAskAgain
	case hasCode(err, codeStale):
		err = errAskAgain // granted while there was no connection, and over by now
	case errors.Is(err, ErrUnreachable):
		a.withdraw()
	}
	var refused *RefusedError
	if errors.As(err, &refused) && refused.Reason == reasonSession {
		err = errAskAgain
	}
	a.deliver(nil, err)
}

// granted: the lease counts from when it was first asked for. When that is long ago, or it is
// not known when it was granted, it is renewed before anybody believes in it.
func (a *ask) granted(g grant, late bool) {
	h := a.client.newHold(a, g.fence, g.body, a.call.first)
	a.hold = h
	h.onEnd = func(cause error) {
		if cause != ErrClosed {
			cause = errAskAgain
		}
		a.deliver(nil, cause)
	}
	late = late || now() >= a.call.first.add(h.ttl/renewPart)
	if h.ttl > 0 && late {
		h.proven = now().add(h.ttl) // to be looked for; nobody has it yet
		h.onProven = func() { a.deliver(h, nil) }
		h.renewSoon()
	} else if !h.isLate() {
		a.deliver(h, nil)
	}
}

func (a *ask) deliver(h *hold, err error) {
	if a.over {
		return
	}
	a.over = true
	a.out <- outcome{h, err}
}

// cancel leaves the line, or gives back what was granted.
func (a *ask) cancel() {
	a.client.mu.Lock()
	defer a.client.mu.Unlock()
	granted := a.hold != nil && !a.hold.ended
	a.over = true
	switch {
	case granted:
		a.hold.release(nil)
	case !a.call.over:
		a.client.forget(a.call)
		a.call.over = true
		a.withdraw()
	}
}

// withdraw asks once more, for a moment: the same owner takes the place over, and it ends. A
// request that was never sent needs no such thing.
func (a *ask) withdraw() {
	c := a.client
	if a.call.first == 0 || c.session != a.session {
		return
	}
	c.send(&call{
		bytes:   appendCommand(nil, append(a.words(time.Millisecond), "REQUEST", c.requestID())),
		again:   true,
		parks:   true,
		patient: true,
		until:   never,
		session: a.session,
		done: func(got answer) {
			if g, err := grantOf(a.name, got); err == nil {
				c.giveBack(a.name, g.fence, a.session, never, nil)
			}
		},
	})
}
