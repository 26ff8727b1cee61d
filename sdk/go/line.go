package belay

import "time"

const lineTime = time.Second // between two looks at a line

// A line is that of one lock, for those of this client who want to know their places in it. One
// look a second is for all of them.
type line struct {
	client *Client
	name   string
	asks   map[string]*ask // by owner
	look   *task
}

// queued is told the place whenever the request is sent, and looks at the line from then on.
func (a *ask) queued(place int) {
	if a.options.onPlace == nil {
		return
	}
	a.tell(place)
	c := a.client
	l := c.lines[a.name]
	if l == nil {
		l = &line{client: c, name: a.name, asks: map[string]*ask{}}
		l.look = newTask(l.ask)
		c.lines[a.name] = l
		c.agenda.set(l.look, now().add(lineTime))
	}
	l.asks[a.owner] = a
}

// tell leaves out a place that nobody has taken yet: the next look will find it.
func (a *ask) tell(place int) {
	select {
	case a.places <- place:
	default:
	}
}

func (a *ask) leaveLine() {
	if a.options.onPlace == nil {
		return
	}
	c := a.client
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lines[a.name]
	if l == nil || l.asks[a.owner] != a {
		return
	}
	if delete(l.asks, a.owner); len(l.asks) == 0 {
		c.agenda.set(l.look, never)
		delete(c.lines, a.name)
	}
}

// ask asks for the first 100. An error ends the looking.
func (l *line) ask() {
	c := l.client
	c.send(&call{
		bytes: appendCommand(nil, []string{"SHOW", l.name}),
		again: true,
		until: now().add(c.config.Timeout),
		done: func(a answer) {
			if a.err != nil || c.lines[l.name] != l {
				return
			}
			for _, w := range lockInfoOf(a.value).Waiters {
				if one := l.asks[w.Owner]; one != nil && one.session.id == w.Session {
					one.tell(w.Position)
				}
			}
			c.agenda.set(l.look, now().add(lineTime))
		},
	})
}
