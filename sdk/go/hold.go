package belay

import (
	"context"
	"strconv"
	"time"
)

// Why a lock was lost, where the server has no word for it.
const (
	reasonStale   = "stale"
	reasonSilence = "silence"
	reasonSession = "session"
)

// A hold is a lock that was granted, until it is released or lost. It belongs to the lock of the
// client.
//
//	sent           sent + ttl/3       proven - early     proven = sent + ttl
//	|--------------|------------------|------------------|
//	| proven       | renewed, again   | lost             | somebody else may have it
//	|              | and again        |                  |
type hold struct {
	client      *Client
	session     *session
	name, owner string
	fence       uint64
	body        string
	ttl         time.Duration // 0: it lives as long as its session
	early       time.Duration
	proven      instant // never: as long as its session
	renew       instant // when to send the next RENEW
	renewing    bool    // one is on its way
	converting  int     // conversions under way: the fence may change
	tend        *task
	ended       bool
	cause       error       // why it ended
	onProven    func()      // once, when a renewal was answered: until then it is nobody's
	onEnd       func(error) // when it ends, but not by a release
}

func (c *Client) newHold(a *ask, fence uint64, body string, sent instant) *hold {
	h := &hold{
		client: c, session: a.session, name: a.name, owner: a.owner, fence: fence, body: body,
		ttl: a.options.ttl, early: a.options.early, proven: never, renew: never,
	}
	lease := c.config.SessionTTL
	if h.ttl > 0 {
		h.proven = sent.add(h.ttl)
		h.renew = sent.add(h.ttl / renewPart)
		c.ttls[h.ttl]++
		lease = min(lease, h.ttl)
	}
	if h.early == 0 {
		h.early = lease / earlyPart
	}
	h.early = min(h.early, lease/2)
	h.tend = newTask(h.look)
	c.holds[fence] = h
	c.agenda.set(h.tend, h.next())
	return h
}

// deadline is when it counts as lost if nothing is heard until then.
func (h *hold) deadline() instant {
	proven := min(h.proven, h.session.proven)
	return proven - instant(h.early)
}

func (h *hold) mayRenew() bool { return !h.renewing && h.client.isReady() }

func (h *hold) next() instant {
	if h.mayRenew() {
		return min(h.renew, h.deadline())
	}
	return h.deadline()
}

func (h *hold) look() {
	if h.isLate() {
		return
	}
	if h.mayRenew() && now() >= h.renew {
		h.sendRenew()
	}
	h.client.agenda.set(h.tend, h.next())
}

// isLate looks at the clock. Later than its deadline, the hold is lost.
func (h *hold) isLate() bool {
	if h.ended || now() < h.deadline() {
		return h.ended
	}
	h.lose(&LostError{Reason: reasonSilence})
	return true
}

func (h *hold) renewSoon() {
	if h.ttl > 0 {
		h.renew = now()
		h.client.agenda.set(h.tend, h.next())
	}
}

func (h *hold) sendRenew() {
	fence := h.fence
	k := &call{
		bytes:   appendCommand(nil, []string{"RENEW", h.name, fenceText(fence), "TTL", millis(h.ttl)}),
		until:   never,
		session: h.session,
	}
	k.done = func(a answer) {
		h.renewing = false
		switch moved := h.fence != fence || h.converting > 0; {
		case h.ended:
			return
		case a.err == nil:
			h.proven = max(h.proven, k.sent.add(h.ttl))
			h.renew = k.sent.add(h.ttl / renewPart)
			h.isNowProven()
		case hasCode(a.err, codeStale) && !moved:
			h.lose(&LostError{Reason: reasonStale})
			return
		default:
			h.renew = now().add(retryTime)
		}
		h.client.agenda.set(h.tend, h.next())
	}
	h.renewing = true
	h.client.send(k)
}

func (h *hold) isNowProven() {
	if f := h.onProven; f != nil && !h.isLate() {
		h.onProven = nil
		f()
	}
}

// moved is a conversion that was granted, and first asked for at sent.
func (h *hold) moved(fence uint64, sent instant) {
	c := h.client
	if h.ended {
		c.giveBack(h.name, fence, h.session, never, nil)
		return
	}
	delete(c.holds, h.fence)
	h.fence = fence
	c.holds[fence] = h
	if h.ttl > 0 {
		h.proven = max(h.proven, sent.add(h.ttl))
		h.renewSoon()
	}
}

// end takes it off the list of what is held.
func (h *hold) end(cause error) {
	c := h.client
	h.ended, h.cause = true, cause
	delete(c.holds, h.fence)
	delete(c.parties, party{h.name, h.owner})
	c.agenda.set(h.tend, never)
	if h.ttl == 0 {
		return
	}
	if c.ttls[h.ttl]--; c.ttls[h.ttl] == 0 {
		delete(c.ttls, h.ttl)
	}
}

func (h *hold) lose(lost *LostError) {
	if h.ended {
		return
	}
	lost.Name, lost.Fence = h.name, h.fence
	h.end(lost)
	h.client.log.Warn("belay: a lock is lost", "name", h.name, "fence", h.fence, "reason", lost.Reason)
	if lost.Reason == reasonSilence { // the server may not know
		h.client.giveBack(h.name, h.fence, h.session, h.proven, nil)
	}
	h.onEnd(lost)
}

// release gives it back. done may be nil.
func (h *hold) release(done func(answer)) {
	h.end(context.Canceled)
	h.client.giveBack(h.name, h.fence, h.session, h.proven, done)
}

// giveBack is sent again until it is answered or the lease is over.
func (c *Client) giveBack(name string, fence uint64, s *session, end instant, done func(answer)) {
	c.send(&call{
		bytes:   appendCommand(nil, []string{"RELEASE", name, fenceText(fence), "REQUEST", c.requestID()}),
		again:   true,
		patient: true,
		until:   end,
		session: s,
		done:    done,
	})
}

// holdEnded is what the server says of a hold: ">[broken, name, fence, 0, 0, reason]", and why an
// operator broke it: ">[broken-by, name, fence, token, text]".
func (c *Client) holdEnded(p, told push) {
	fence := fenceOf(p[2])
	h := c.holds[fence]
	if h == nil || h.name != textOf(p[1]) {
		return
	}
	lost := &LostError{Reason: textOf(p[5])}
	if told != nil && fenceOf(told[2]) == fence {
		lost.By, lost.Text = textOf(told[3]), textOf(told[4])
	}
	h.lose(lost)
}

func fenceText(fence uint64) string { return strconv.FormatUint(fence, 10) }
