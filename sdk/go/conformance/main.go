// The driver of the Go library for the conformance suite: sdk/conformance/README.md says what it
// does.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"example.org/belay"
)

// A request is one line of the harness: all members that any op may have.
type request struct {
	ID, Target           int
	Op                   string
	Client, Held, Watch  string
	Name                 string
	Names                []string
	Addresses, Namespace string
	Token                string
	TLS                  *struct{ CA, Cert, Key string }
	Owner                string
	SessionTTL           *int64 `json:"session_ttl"`
	Timeout              *int64
	TTL, Wait, Early     *int64
	Grace, Delay         *int64
	Shared               bool
	Permits, Of          int
	Body                 *string
	Reason, Prefix       string
	Words                []string
	Statements           []json.RawMessage
	File, Log            string
	Tasks, Rounds        int
}

// A driver has what the harness has names for.
type driver struct {
	out     sync.Mutex
	mu      sync.Mutex
	clients map[string]*belay.Client
	helds   map[string]*belay.Held
	leaving map[string]chan struct{}
	ends    map[string]func() // of watches
	running map[int]context.CancelFunc
}

type object map[string]any

var errUnknownOp = errors.New("unknown op")

func main() {
	d := &driver{
		clients: map[string]*belay.Client{}, helds: map[string]*belay.Held{},
		leaving: map[string]chan struct{}{}, ends: map[string]func(){}, running: map[int]context.CancelFunc{},
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		r := &request{}
		if err := json.Unmarshal(in.Bytes(), r); err != nil {
			d.write(object{"error": object{"type": "usage", "message": err.Error()}})
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		d.mu.Lock()
		d.running[r.ID] = cancel
		d.mu.Unlock()
		go d.answer(ctx, r)
	}
}

func (d *driver) write(o object) {
	line, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	d.out.Lock()
	defer d.out.Unlock()
	_, _ = os.Stdout.Write(append(line, '\n'))
}

func (d *driver) answer(ctx context.Context, r *request) {
	ok, err := d.run(ctx, r)
	if err != nil {
		d.write(object{"id": r.ID, "error": told(err)})
	} else {
		d.write(object{"id": r.ID, "ok": ok})
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running[r.ID]()
	delete(d.running, r.ID)
}

// told is an error in the words of the harness.
func told(err error) object {
	var refused *belay.RefusedError
	var deadlock *belay.DeadlockError
	var lost *belay.LostError
	var said *belay.ServerError
	switch {
	case errors.Is(err, errUnknownOp):
		return object{"type": "unknown op"}
	case errors.As(err, &refused):
		holders := []object{}
		for _, h := range refused.Holders {
			holders = append(holders, object{"owner": h.Owner, "mode": h.Mode, "fence": h.Fence, "expires_in": millis(h.ExpiresIn)})
		}
		return object{"type": "refused", "reason": refused.Reason, "holders": holders}
	case errors.As(err, &deadlock):
		cycle := []object{}
		for _, e := range deadlock.Cycle {
			cycle = append(cycle, object{"owner": e.Owner, "waits_for": e.WaitsFor})
		}
		return object{"type": "deadlock", "cycle": cycle}
	case errors.As(err, &lost):
		return lostOf(lost)
	case errors.Is(err, belay.ErrTimedOut):
		return object{"type": "timeout"}
	case errors.Is(err, belay.ErrUnreachable):
		return object{"type": "unreachable", "message": err.Error()}
	case errors.Is(err, belay.ErrClosed):
		return object{"type": "closed"}
	case errors.As(err, &said):
		return object{"type": "server", "code": said.Code, "message": said.Message}
	case errors.Is(err, context.Canceled):
		return object{"type": "cancelled"}
	}
	return object{"type": "usage", "message": err.Error()}
}

func lostOf(lost *belay.LostError) object {
	o := object{"type": "lost", "name": lost.Name, "fence": lost.Fence, "reason": lost.Reason}
	if lost.By != "" {
		o["by"] = lost.By
	}
	if lost.Text != "" {
		o["text"] = lost.Text
	}
	return o
}

func millis(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return d.Milliseconds()
}

func duration(ms int64) time.Duration {
	if ms < 0 {
		return belay.Forever
	}
	return time.Duration(ms) * time.Millisecond
}

// client is one that was opened; nil if there is none.
func (d *driver) client(name string) *belay.Client {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.clients[name]
}

func (d *driver) held(name string) *belay.Held {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.helds[name]
}

func (d *driver) open(r *request) error {
	config := belay.Config{
		Addresses: []string{r.Addresses}, Namespace: r.Namespace, Token: r.Token, Owner: r.Owner,
		Logger: slog.New(logHandler{driver: d}),
	}
	if r.SessionTTL != nil {
		config.SessionTTL = duration(*r.SessionTTL)
	}
	if r.Timeout != nil {
		config.Timeout = duration(*r.Timeout)
	}
	if r.TLS != nil {
		var err error
		if config.TLS, err = belay.TLSFiles(r.TLS.CA, r.TLS.Cert, r.TLS.Key); err != nil {
			return err
		}
	}
	client, err := belay.New(config)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clients[r.Client] = client
	return nil
}

func (d *driver) options(r *request) []belay.LockOption {
	options := []belay.LockOption{belay.OnPlace(func(place int) {
		d.write(object{"event": "place", "id": r.ID, "position": place})
	})}
	for _, o := range []struct {
		ms   *int64
		with func(time.Duration) belay.LockOption
	}{{r.TTL, belay.TTL}, {r.Wait, belay.Wait}, {r.Early, belay.Early}, {r.Grace, belay.Grace}, {r.Delay, belay.Delay}} {
		if o.ms != nil {
			options = append(options, o.with(duration(*o.ms)))
		}
	}
	if r.Shared {
		options = append(options, belay.Shared())
	}
	if r.Permits > 0 || r.Of > 0 {
		options = append(options, belay.Permits(max(r.Permits, 1), r.Of))
	}
	if r.Body != nil {
		options = append(options, belay.Body([]byte(*r.Body)))
	}
	if r.Owner != "" {
		options = append(options, belay.Owner(r.Owner))
	}
	return options
}

// keep gives the hold its name, and tells when it is lost.
func (d *driver) keep(r *request, held *belay.Held) {
	d.mu.Lock()
	d.helds[r.Held] = held
	d.mu.Unlock()
	context.AfterFunc(held.Context(), func() {
		var lost *belay.LostError
		if errors.As(context.Cause(held.Context()), &lost) {
			event := lostOf(lost)
			delete(event, "type")
			event["event"], event["held"] = "lost", r.Held
			d.write(event)
		}
	})
}

func (d *driver) lock(ctx context.Context, r *request) (object, error) {
	names := r.Names
	if names == nil {
		names = []string{r.Name}
	}
	held, err := d.client(r.Client).LockAll(ctx, names, d.options(r)...)
	if err != nil {
		return nil, err
	}
	d.keep(r, held)
	ok := object{"fence": held.Fence(), "owner": held.Owner(), "body": string(held.Body())}
	if r.Names != nil {
		ok["fences"] = held.Fences()
	}
	return ok, nil
}

func (d *driver) block(ctx context.Context, r *request) error {
	leave := make(chan struct{})
	d.mu.Lock()
	d.leaving[r.Held] = leave
	d.mu.Unlock()
	return d.client(r.Client).WithLock(ctx, r.Name, func(ctx context.Context, held *belay.Held) error {
		d.keep(r, held)
		d.write(object{"event": "entered", "id": r.ID, "fence": held.Fence()})
		select {
		case <-leave:
		case <-ctx.Done():
		}
		return nil
	}, d.options(r)...)
}

// A logHandler writes the log of a client as events.
type logHandler struct{ driver *driver }

func (h logHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h logHandler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h logHandler) WithGroup(string) slog.Handler            { return h }
func (h logHandler) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += fmt.Sprintf(" %s", a)
		return true
	})
	levels := map[slog.Level]string{slog.LevelDebug: "debug", slog.LevelInfo: "info", slog.LevelWarn: "warning"}
	level := levels[r.Level]
	if level == "" {
		level = "error"
	}
	h.driver.write(object{"event": "log", "level": level, "text": text})
	return nil
}
