package belay

import (
	"errors"
	"fmt"
	"time"
)

// Forever is a wait without end, and the rest of a lease that has none of its own.
const Forever time.Duration = -1

const (
	nameMax  = 512
	ownerMax = 128
	waitMax  = 7 * 24 * time.Hour // of one request
)

// A LockOption changes how a lock is taken.
type LockOption func(*lockOptions)

type lockOptions struct {
	ttl, wait, grace, delay, early time.Duration
	shared                         bool
	permits, of                    int
	body                           *string
	owner                          string
	onPlace                        func(place int)
}

// TTL gives the lock a lease of its own, which is renewed at a third of it. Without it the lock
// lives as long as the session of the client, and costs nothing beside it.
func TTL(d time.Duration) LockOption { return func(o *lockOptions) { o.ttl = d } }

// Wait says how long to wait in line; the default is [Forever]. With 0 there is no waiting.
func Wait(d time.Duration) LockOption { return func(o *lockOptions) { o.wait = d } }

// Shared takes the lock together with other shared holders.
func Shared() LockOption { return func(o *lockOptions) { o.shared = true } }

// Permits takes permits of a semaphore that has so many of them in all.
func Permits(permits, of int) LockOption {
	return func(o *lockOptions) { o.permits, o.of = permits, of }
}

// Body is stored with the lock when it is granted. The next holder finds it.
func Body(body []byte) LockOption {
	text := string(body)
	return func(o *lockOptions) { o.body = &text }
}

// Grace keeps the lock from others for so long after its lease is over.
func Grace(d time.Duration) LockOption { return func(o *lockOptions) { o.grace = d } }

// Delay keeps the lock closed for so long after it was lost, and not given back.
func Delay(d time.Duration) LockOption { return func(o *lockOptions) { o.delay = d } }

// Owner makes all calls with this owner one party, so that the server sees a deadlock between
// them and others. Without it each call is a party of its own.
func Owner(owner string) LockOption { return func(o *lockOptions) { o.owner = owner } }

// OnPlace calls f with the place in the line, at once and whenever it has changed; 1 is next. It
// is not called any more when the lock call has returned.
func OnPlace(f func(place int)) LockOption { return func(o *lockOptions) { o.onPlace = f } }

// Early is how long before the end of its lease a lock counts as lost when it could not be
// renewed: the time that you need to stop. The default is a tenth of the lease.
func Early(d time.Duration) LockOption { return func(o *lockOptions) { o.early = d } }

func lockOptionsOf(options []LockOption) (*lockOptions, error) {
	o := &lockOptions{wait: Forever}
	for _, option := range options {
		option(o)
	}
	switch {
	case o.ttl < 0 || o.grace < 0 || o.delay < 0 || o.early < 0 || (o.wait < 0 && o.wait != Forever):
		return nil, errors.New("belay: a duration is negative")
	case o.permits < 0 || o.of < 0 || o.permits > o.of || (o.of > 0 && o.permits == 0):
		return nil, fmt.Errorf("belay: %d permits of %d", o.permits, o.of)
	case o.of > 0 && o.shared:
		return nil, errors.New("belay: a semaphore cannot be shared")
	case len(o.owner) > ownerMax:
		return nil, fmt.Errorf("belay: an owner has at most %d bytes", ownerMax)
	}
	return o, nil
}

func checkName(name string) error {
	if name == "" || len(name) > nameMax {
		return fmt.Errorf("belay: the name of a lock has 1 to %d bytes", nameMax)
	}
	return nil
}
