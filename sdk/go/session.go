package belay

import (
	"fmt"
	"time"
)

const (
	renewPart = 3  // of a TTL: then it is renewed
	earlyPart = 10 // of a TTL: so long before its end what is not renewed counts as lost
	retryTime = 50 * time.Millisecond
)

// A session is what the locks of a client live in. It is attached to the link, and kept alive.
type session struct {
	id       string
	open     []byte // the request that opens it, always the same
	opened   bool   // it was answered
	attached bool   // to the present link
	used     bool   // by a transaction: there may be variables in it
	proven   instant
	keep     instant // when to send the next sign of life
	keeping  bool    // one is on its way
	tend     *task
}

// needSession is the session of the client, a new one if there is none.
func (c *Client) needSession() *session {
	if c.session != nil || c.closed {
		return c.session
	}
	s := &session{id: randomHex(16), proven: never, keep: never}
	s.open = appendCommand(nil, []string{"SESSION", "OPEN", "TTL", millis(c.config.SessionTTL),
		"DESCRIPTION", c.config.Owner, "ID", s.id, "REQUEST", c.requestID()})
	s.tend = newTask(func() { c.tendSession(s) })
	c.session = s
	if c.link != nil {
		c.attach()
	}
	return s
}

func (c *Client) isAttached() bool { return c.session == nil || c.session.attached }

func (c *Client) isReady() bool { return c.link != nil && c.isAttached() }

// attach ties the session to the link. What needs a connection waits for that.
func (c *Client) attach() {
	l, s := c.link, c.session
	if !s.opened {
		c.send(&call{bytes: s.open, urgent: true, until: never, session: s, done: func(a answer) {
			if a.err != nil {
				c.refuseSession(l, s, a.err)
				return
			}
			s.opened = true
		}})
	}
	k := &call{bytes: appendCommand(nil, []string{"SESSION", "ATTACH", s.id}), urgent: true, until: never, session: s}
	k.done = func(a answer) {
		switch {
		case hasCode(a.err, codeNoSession):
			c.endSession(s, reasonSession)
		case a.err != nil:
			c.refuseSession(l, s, a.err)
		case c.session == s:
			s.attached = true
			c.proveSession(s, k.sent)
			for _, h := range c.holds {
				h.renewSoon()
			}
			c.flush()
		}
	}
	c.send(k)
}

// refuseSession fails what waits for the session. When the link itself is gone, the next one
// attaches it.
func (c *Client) refuseSession(l *link, s *session, err error) {
	if c.link != l || c.session != s {
		return
	}
	c.refuse(err)
	c.leave(l, err)
	if !s.opened {
		c.endSession(s, reasonSession)
	}
}

func (c *Client) proveSession(s *session, sent instant) {
	s.proven = sent.add(c.config.SessionTTL)
	s.keep = sent.add(c.config.SessionTTL / renewPart)
	c.agenda.set(s.tend, s.keep)
}

// tendSession keeps the session alive, or ends it when that is not proven any more.
func (c *Client) tendSession(s *session) {
	if now() >= s.proven {
		c.endSession(s, reasonSilence)
		if c.link != nil { // it must not live on there, for somebody who has given it up
			c.leave(c.link, fmt.Errorf("%s did not answer in time", c.link.wire.from.text))
		}
		return
	}
	if now() >= s.keep && s.attached && !s.keeping {
		c.keepSession(s)
	}
	next := s.keep
	if !s.attached || s.keeping {
		next = s.proven
	}
	c.agenda.set(s.tend, min(next, s.proven))
}

func (c *Client) keepSession(s *session) {
	k := &call{bytes: appendCommand(nil, []string{"SESSION", "KEEPALIVE", s.id}), until: never, session: s}
	k.done = func(a answer) {
		s.keeping = false
		switch {
		case c.session != s:
		case a.value == int64(0) || hasCode(a.err, codeNoSession):
			c.endSession(s, reasonSession)
		case a.err == nil:
			c.proveSession(s, k.sent)
		default:
			s.keep = now().add(retryTime)
			c.agenda.set(s.tend, min(s.keep, s.proven))
		}
	}
	s.keeping = true
	c.send(k)
}

// sessionEnded is what the server says of it.
func (c *Client) sessionEnded(id, reason string) {
	if c.session != nil && c.session.id == id {
		c.endSession(c.session, reason)
	}
}

// endSession ends what was held in it. What waits in a line is asked for again in the next one.
func (c *Client) endSession(s *session, reason string) {
	if c.session != s {
		return
	}
	c.session = nil
	c.agenda.set(s.tend, never)
	c.log.Warn("belay: the session is over", "session", s.id, "reason", reason)
	for _, h := range c.holds {
		h.lose(&LostError{Reason: reason})
	}
	for _, k := range c.calls() {
		if k.session == s {
			c.forget(k)
			k.finish(answer{err: errSessionOver})
		}
	}
	if c.link != nil {
		c.flush()
	}
}
