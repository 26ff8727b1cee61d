package belay

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

var (
	// ErrNotAcquired is what a refusal, a time-out and a deadlock have in common: the server is
	// well, and the lock is not yours.
	ErrNotAcquired = errors.New("the lock was not acquired")

	// ErrTimedOut says that the lock did not become free within [Wait].
	ErrTimedOut = fmt.Errorf("%w: the wait is over", ErrNotAcquired)

	// ErrUnreachable says that no server has answered for [Config].Timeout. What was asked may
	// have been carried out.
	ErrUnreachable = errors.New("no server has answered")

	// ErrClosed says that the client was closed.
	ErrClosed = errors.New("the client is closed")
)

// A Holder is one of those who hold a lock.
type Holder struct {
	Owner     string
	Session   string // "" outside of a session, and in a refusal
	Mode      string // "exclusive", "shared" or "semaphore"
	Fence     uint64
	ExpiresIn time.Duration // [Forever]: it has no end of its own
}

// A RefusedError says why a lock cannot be had at once: Reason is "held" when others hold it or
// wait for it, "closed" after an involuntary loss, "kind" when it is a lock of another kind.
type RefusedError struct {
	Name    string
	Reason  string
	Holders []Holder
}

func (e *RefusedError) Error() string {
	if e.Reason != "held" || len(e.Holders) == 0 {
		return fmt.Sprintf("belay: %s: refused: %s", e.Name, e.Reason)
	}
	owners := make([]string, len(e.Holders))
	for i, h := range e.Holders {
		owners[i] = h.Owner
	}
	return fmt.Sprintf("belay: %s: refused: held by %s", e.Name, strings.Join(owners, ", "))
}

// Unwrap returns [ErrNotAcquired].
func (e *RefusedError) Unwrap() error { return ErrNotAcquired }

// A DeadlockError says that the wait would never have ended: in the cycle, each owner waits for a
// lock that the next one holds.
type DeadlockError struct {
	Name  string
	Cycle []Edge
}

// An Edge is one step of a cycle.
type Edge struct {
	Owner, WaitsFor string
}

func (e *DeadlockError) Error() string {
	return fmt.Sprintf("belay: %s: deadlock: %d owners wait in a circle", e.Name, len(e.Cycle))
}

// Unwrap returns [ErrNotAcquired].
func (e *DeadlockError) Unwrap() error { return ErrNotAcquired }

// A LostError says that a lock was lost while it was held.
type LostError struct {
	Name  string
	Fence uint64
	// Reason is the server's word: "break", "ttl", "session", "release", "namespace"; or "stale"
	// when the server does not say why; or "silence" when it was not heard of in time.
	Reason string
	// By and Text are the token that broke the lock and the reason in its words, if it told.
	By, Text string
}

func (e *LostError) Error() string {
	s := fmt.Sprintf("belay: %s: lost: %s", e.Name, e.Reason)
	if e.By != "" {
		s += " by " + e.By
	}
	if e.Text != "" {
		s += ": " + e.Text
	}
	return s
}

// A ServerError is an error answer of the server; docs/PROTOCOL.md has the codes.
type ServerError struct {
	Code    string // "DENIED"
	Message string
}

func (e *ServerError) Error() string { return "belay: " + e.Code + ": " + e.Message }

// Codes that mean something to this library.
const (
	codeStale       = "STALE"
	codeNoSession   = "NOSESSION"
	codeUnavailable = "UNAVAILABLE"
	codeGone        = "GONE"
)

func serverError(line string) *ServerError {
	code, message, _ := strings.Cut(line, " ")
	return &ServerError{Code: code, Message: message}
}

func hasCode(err error, code string) bool {
	var said *ServerError
	return errors.As(err, &said) && said.Code == code
}
