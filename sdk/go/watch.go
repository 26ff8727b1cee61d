package belay

import (
	"context"
	"strconv"
	"time"
)

// EventGone is the word of an event that says: events may be missing, read the state again.
const EventGone = "gone"

// An Event is something that happened to a lock. What does not apply is zero.
type Event struct {
	Word      string // "granted", "queued", "released", ...: docs/PROTOCOL.md has the list
	Seq       uint64 // rises; of one node, since it was started
	At        time.Time
	Namespace string
	Name      string
	Owner     string
	Session   string
	Mode      string
	Fence     uint64
	Ticket    uint64
	Position  int
	Reason    string
	ExpiresIn time.Duration // [Forever]: no end of its own, or it does not apply
	Waited    time.Duration
	Count     int
	By, Why   string // "broken": the token that did it, and the reason it gave
}

func eventOf(m map[string]any) Event {
	return Event{
		Word: textOf(m["event"]), Seq: fenceOf(m["seq"]), At: time.UnixMilli(wholeOf(m["at_ms"])),
		Namespace: textOf(m["namespace"]), Name: textOf(m["name"]), Owner: textOf(m["owner"]),
		Session: textOf(m["session"]), Mode: textOf(m["mode"]), Fence: fenceOf(m["fence"]),
		Ticket: fenceOf(m["ticket"]), Position: int(wholeOf(m["position"])),
		Reason: textOf(m["reason"]), ExpiresIn: durationOf(m["expires_in_ms"]),
		Waited: time.Duration(wholeOf(m["waited_ms"])) * time.Millisecond,
		Count:  int(wholeOf(m["count"])), By: textOf(m["by"]), Why: textOf(m["why"]),
	}
}

// Watch sends the events of all locks whose names begin with prefix. It has a connection of its
// own, and goes on where it stopped when that breaks. The channel is closed when ctx ends or the
// client is closed. When Watch returns, no event is missed any more.
func (c *Client) Watch(ctx context.Context, prefix string) (<-chan Event, error) {
	ctx, end := c.alive(ctx)
	w := &watch{client: c, prefix: prefix, events: make(chan Event)}
	wire, err := c.seek(ctx, now().add(c.config.Timeout), w.begin)
	if err != nil {
		end()
		return nil, err
	}
	go func() {
		defer end()
		defer close(w.events)
		w.run(ctx, wire)
	}()
	return w.events, nil
}

type watch struct {
	client *Client
	prefix string
	seen   uint64
	events chan Event
	gap    bool // events may have been missed
}

// begin asks for the events behind the last one that was seen, or for those from now on.
func (w *watch) begin(wire *wire) error {
	words := []string{"WATCH"}
	if w.prefix != "" {
		words = append(words, "PREFIX", w.prefix)
	}
	if w.seen > 0 {
		_, err := wire.ask(silenceTime, append(words, "SINCE", strconv.FormatUint(w.seen, 10))...)
		if !hasCode(err, codeGone) {
			return err
		}
	}
	w.seen = 0
	_, err := wire.ask(silenceTime, words...)
	return err
}

func (w *watch) run(ctx context.Context, wire *wire) {
	for {
		err := w.follow(ctx, wire)
		wire.drop()
		for wire = nil; wire == nil; {
			if ctx.Err() != nil {
				return
			}
			w.client.log.Debug("belay: a watch goes on elsewhere", "error", err)
			if wire, err = w.client.seek(ctx, never, w.begin); err != nil {
				sleep(ctx, pauseMax)
			}
		}
		if w.seen == 0 && !w.send(ctx, Event{Word: EventGone}) {
			wire.drop()
			return
		}
	}
}

func (w *watch) send(ctx context.Context, e Event) bool {
	select {
	case w.events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

// follow sends what comes until the connection fails or ctx ends.
func (w *watch) follow(ctx context.Context, wire *wire) error {
	stop := context.AfterFunc(ctx, func() { _ = wire.Close() })
	defer stop()
	for {
		v, err := wire.next()
		if err != nil {
			return err
		}
		news, _ := v.(push)
		if len(news) != 4 {
			continue
		}
		if m, ok := news[3].(map[string]any); ok {
			e := eventOf(m)
			w.seen = e.Seq
			if !w.send(ctx, e) {
				return ctx.Err()
			}
		}
	}
}
