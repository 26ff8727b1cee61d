package belay

import (
	"bytes"
	"context"
	"time"
)

// An Election is a lock whose holder leads.
type Election struct {
	client *Client
	name   string
}

// A Leader is who leads, and what it said of itself in [Body].
type Leader struct {
	Owner string
	Fence uint64 // the term: it grows
	Body  []byte
}

// Election makes an election. It asks nothing yet.
func (c *Client) Election(name string) *Election { return &Election{c, name} }

// Campaign waits until this client leads. It leads as long as the lock is held.
func (e *Election) Campaign(ctx context.Context, options ...LockOption) (*Held, error) {
	return e.client.Lock(ctx, e.name, options...)
}

// Leader is who leads now; nil: nobody.
func (e *Election) Leader(ctx context.Context) (*Leader, error) {
	info, err := e.client.Show(ctx, e.name)
	if err != nil || len(info.Holders) == 0 {
		return nil, err
	}
	h := info.Holders[0]
	return &Leader{Owner: h.Owner, Fence: h.Fence, Body: info.Body}, nil
}

// Observe sends who leads now, and then every other leader; nil when nobody leads. The channel is
// closed when ctx ends or the client is closed.
func (e *Election) Observe(ctx context.Context) (<-chan *Leader, error) {
	ctx, end := e.client.alive(ctx)
	events, err := e.client.Watch(ctx, e.name)
	if err != nil {
		end()
		return nil, err
	}
	first, err := e.Leader(ctx)
	if err != nil {
		end()
		return nil, err
	}
	leaders := make(chan *Leader)
	go func() {
		defer close(leaders)
		defer end()
		e.follow(ctx, first, events, leaders)
	}()
	return leaders, nil
}

func (e *Election) follow(ctx context.Context, current *Leader, events <-chan Event, leaders chan<- *Leader) {
	for {
		select {
		case leaders <- current:
		case <-ctx.Done():
			return
		}
		next := current
		for next == current {
			event, ok := <-events
			if !ok {
				return
			}
			next = e.after(ctx, current, event)
		}
		current = next
	}
}

// after is who leads after that event.
func (e *Election) after(ctx context.Context, current *Leader, event Event) *Leader {
	switch {
	case event.Word == EventGone:
		return e.since(ctx, current)
	case event.Name != e.name:
		return current
	case event.Word == "granted" && (current == nil || current.Fence < event.Fence):
		next := &Leader{Owner: event.Owner, Fence: event.Fence}
		if shown, err := e.Leader(ctx); err == nil && shown != nil && shown.Fence == next.Fence {
			next.Body = shown.Body
		}
		return next
	case event.Word == "body" && current != nil && current.Fence == event.Fence:
		return e.since(ctx, current)
	case event.Word == "released" || event.Word == "expired" || event.Word == "broken":
		if current != nil && current.Fence == event.Fence {
			return nil
		}
	}
	return current
}

// since is what the server says now.
func (e *Election) since(ctx context.Context, current *Leader) *Leader {
	for ctx.Err() == nil {
		shown, err := e.Leader(ctx)
		switch {
		case err != nil:
			sleep(ctx, time.Second)
		case shown != nil && current != nil && shown.Fence == current.Fence && bytes.Equal(shown.Body, current.Body):
			return current
		default:
			return shown
		}
	}
	return current
}
