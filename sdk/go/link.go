package belay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sort"
	"time"
)

const (
	connectTime = 3 * time.Second // for one server to accept and greet us
	silenceTime = 4 * time.Second // without an answer that is due: the server is left
	pingTime    = 3 * time.Second // of silence, while something is waited for
	pauseMin    = 50 * time.Millisecond
	pauseMax    = time.Second
)

// A call is a request whose answer is awaited:
//
//	queue --greeted--> sent --answer--> done
//	  ^                 | '--"queued"--> parked --push--> done
//	  '--link is lost---+-----------------'
//
// Everything in it belongs to the lock of the client.
type call struct {
	bytes   []byte
	again   bool         // it is sent again when its answer did not come
	parks   bool         // it may be told "queued", and has its answer as a push then
	placed  func(int)    // is told the place in the line
	done    func(answer) // is called once
	session *session     // it ends with this one
	urgent  bool         // it goes before the session is attached: it attaches it
	patient bool         // it outlasts the lack of a connection
	seq     uint64       // in the order in which they were asked
	until   instant      // it is given up then
	first   instant      // sent for the first time; 0: it was not sent yet
	sent    instant      // sent for the last time
	lost    instant      // on no connection since; 0: it is on one
	ticket  uint64       // parked
	over    bool         // it is done, or nobody wants it any more
	expiry  *task
}

// An answer is what became of a call.
type answer struct {
	value any
	err   error
	late  bool // it came by a push
}

// A link is the connection that all calls of a client share.
type link struct {
	client *Client
	wire   *wire
	sent   []*call // in the order in which they are answered
	parked map[uint64]*call
	early  map[uint64]push // outcomes that came before their "queued"
	told   push            // "broken-by", for the "broken" behind it
	heard  instant
	apart  int // transactions that wait on connections of their own
	watch  *task
	out    *outbox
	ctx    context.Context // ends with it
	end    context.CancelFunc
}

// ---- calls ------------------------------------------------------------------------------------

// send sends k now, or when there is a connection.
func (c *Client) send(k *call) {
	c.seq++
	k.seq = c.seq
	if c.closed {
		k.finish(answer{err: ErrClosed})
		return
	}
	k.expiry = newTask(func() { c.expire(k) })
	if c.link != nil && (k.urgent || c.isAttached()) {
		c.link.send(k)
	} else {
		k.lost = now()
		c.queue = append(c.queue, k)
		c.connect()
	}
	if !k.over {
		c.agenda.set(k.expiry, c.end(k))
	}
}

// end is when k is given up if nothing changes.
func (c *Client) end(k *call) instant {
	if k.lost == 0 || k.patient {
		return k.until
	}
	return min(k.until, k.lost.add(c.config.Timeout))
}

func (c *Client) expire(k *call) {
	if end := c.end(k); end > now() {
		c.agenda.set(k.expiry, end)
		return
	}
	err := ErrUnreachable
	if c.trouble != nil {
		err = fmt.Errorf("%w: %w", ErrUnreachable, c.trouble)
	}
	c.forget(k)
	k.finish(answer{err: fmt.Errorf("belay: %w", err)})
}

// forget makes k one that nobody wants. Its answer, if it comes, finds its place in the order.
func (c *Client) forget(k *call) {
	if k.expiry != nil {
		c.agenda.set(k.expiry, never)
	}
	for i, other := range c.queue {
		if other == k {
			c.queue = append(c.queue[:i:i], c.queue[i+1:]...)
			break
		}
	}
	if c.link != nil && k.ticket != 0 {
		delete(c.link.parked, k.ticket)
	}
}

func (k *call) finish(a answer) {
	if k.over {
		return
	}
	k.over = true
	if k.done != nil {
		k.done(a)
	}
}

// ---- the connection ---------------------------------------------------------------------------

// connect makes a connection if there is none and somebody needs it.
func (c *Client) connect() {
	if !c.connecting && c.link == nil && c.isNeeded() {
		c.connecting = true
		go c.connectLoop()
	}
}

func (c *Client) isNeeded() bool {
	used := c.session != nil && c.session.used
	return !c.closed && (len(c.queue) > 0 || len(c.holds) > 0 || used)
}

func (c *Client) connectLoop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.link == nil && c.isNeeded() {
		if pause := c.pace.pause(len(c.addresses)); pause > 0 {
			c.mu.Unlock()
			sleep(c.ctx, pause)
			c.mu.Lock()
			continue
		}
		a, limit := c.addresses[c.at], min(connectTime, c.limit())
		c.mu.Unlock()
		w, err := c.dial(c.ctx, a, limit)
		c.mu.Lock()
		switch {
		case err != nil:
			c.failed(err)
			c.refuse(err)
		case c.closed:
			w.drop()
		default:
			c.begin(w)
		}
	}
	c.connecting = false
}

// failed notes that the server in use is not well: the next one is tried.
func (c *Client) failed(err error) {
	c.trouble = err
	c.pace.failures++
	c.at = (c.at + 1) % len(c.addresses)
	c.log.Debug("belay: a server has failed", "error", err)
}

// refuse fails what waits for a connection when a server says that it may not have one.
func (c *Client) refuse(err error) {
	var said *ServerError
	if !errors.As(err, &said) || said.Code == codeUnavailable {
		return
	}
	queue := c.queue
	c.queue = nil
	for _, k := range queue {
		c.forget(k)
		k.finish(answer{err: err})
	}
}

// limit is how long an answer may take. With another server in reserve, two more can be tried
// before a lease counts as lost.
func (c *Client) limit() time.Duration {
	if len(c.addresses) == 1 || c.session == nil {
		return silenceTime
	}
	least := c.config.SessionTTL
	for ttl := range c.ttls {
		least = min(least, ttl)
	}
	patience := (least - least/renewPart - least/earlyPart) / 3
	return min(max(patience, pauseMin), silenceTime)
}

func (c *Client) begin(w *wire) {
	l := &link{
		client: c, wire: w, heard: now(),
		parked: map[uint64]*call{}, early: map[uint64]push{}, out: newOutbox(),
	}
	l.watch = newTask(l.look)
	l.ctx, l.end = context.WithCancel(context.Background())
	c.link = l
	c.log.Debug("belay: connected", "address", w.from.text)
	go l.out.run(w)
	go l.read()
	if c.session != nil {
		c.attach()
	} else {
		c.flush()
	}
}

// flush sends what has waited for this connection.
func (c *Client) flush() {
	queue := c.queue
	c.queue = nil
	for _, k := range queue {
		c.link.send(k)
	}
}

// leave drops the connection because of a failure. What may be sent again waits for the next one.
func (c *Client) leave(l *link, err error) {
	if c.link != l {
		return
	}
	c.link = nil
	c.failed(err)
	l.end()
	l.wire.drop()
	l.out.close()
	c.agenda.set(l.watch, never)
	if c.session != nil {
		c.session.attached = false
	}
	var kept []*call
	for _, k := range l.calls() {
		k.ticket = 0
		if k.over {
			continue
		}
		if k.again {
			k.lost = now()
			kept = append(kept, k)
			c.agenda.set(k.expiry, c.end(k))
		} else {
			c.forget(k)
			k.finish(answer{err: fmt.Errorf("belay: %w: %w", ErrUnreachable, err)})
		}
	}
	c.queue = append(kept, c.queue...)
	c.connect()
}

// calls are all that are not done.
func (c *Client) calls() []*call {
	if c.link == nil {
		return append([]*call(nil), c.queue...)
	}
	return append(c.link.calls(), c.queue...)
}

// calls are those on their way, in the order in which they were asked.
func (l *link) calls() []*call {
	all := append([]*call(nil), l.sent...)
	for _, k := range l.parked {
		all = append(all, k)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].seq < all[j].seq })
	return all
}

func (l *link) send(k *call) {
	k.sent = now()
	k.lost = 0
	if k.first == 0 {
		k.first = k.sent
	}
	l.sent = append(l.sent, k)
	l.out.put(k.bytes)
	l.lookBy(k.sent.add(l.client.limit()))
}

// ---- signs of life ----------------------------------------------------------------------------

func (l *link) lookBy(at instant) {
	if l.watch.index < 0 || at < l.watch.at {
		l.client.agenda.set(l.watch, at)
	}
}

// look leaves a server that does not answer, and asks one that is only waited for.
func (l *link) look() {
	switch limit := l.client.limit(); {
	case len(l.sent) > 0:
		due := max(l.heard, l.sent[0].sent).add(limit)
		if due <= now() {
			l.client.leave(l, fmt.Errorf("%s has not answered for %v", l.wire.from.text, limit))
			return
		}
		l.lookBy(due)
	case len(l.parked) > 0 || l.apart > 0:
		due := l.heard.add(pingTime)
		if due <= now() {
			l.send(&call{bytes: appendCommand(nil, []string{"PING"}), over: true})
			return
		}
		l.lookBy(due)
	}
}

// ---- answers ----------------------------------------------------------------------------------

func (l *link) read() {
	c := l.client
	for {
		v, err := l.wire.in.read()
		c.mu.Lock()
		switch {
		case err != nil:
			c.leave(l, fmt.Errorf("%s: %w", l.wire.from.text, err))
		case c.link == l:
			l.heard = now()
			err = l.take(v)
		}
		if err == nil && c.link != l {
			err = net.ErrClosed
		}
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (l *link) take(v any) error {
	if p, ok := v.(push); ok {
		l.takePush(p)
		return nil
	}
	if len(l.sent) == 0 {
		err := fmt.Errorf("%s: %w: an answer without a request", l.wire.from.text, errProtocol)
		l.client.leave(l, err)
		return err
	}
	k := l.sent[0]
	if said, ok := v.(*ServerError); ok && said.Code == codeUnavailable {
		l.client.leave(l, fmt.Errorf("%s: %w", l.wire.from.text, said))
		return nil
	}
	l.sent[0] = nil
	l.sent = l.sent[1:]
	l.isGood()
	if ticket, place, ok := isQueued(v); ok && k.parks {
		l.park(k, ticket, place)
	} else {
		l.finish(k, answer{value: v})
	}
	return nil
}

func (l *link) isGood() { l.client.pace = pace{} }

func (l *link) finish(k *call, a answer) {
	if said, ok := a.value.(*ServerError); ok {
		a.value, a.err = nil, said
	}
	if k.over {
		return
	}
	l.client.forget(k)
	k.finish(a)
}

// isQueued reads "[queued, ticket, position]".
func isQueued(v any) (ticket uint64, place int, ok bool) {
	items, _ := v.([]any)
	if len(items) < 3 || items[0] != "queued" {
		return 0, 0, false
	}
	return fenceOf(items[1]), int(wholeOf(items[2])), true
}

func (l *link) park(k *call, ticket uint64, place int) {
	if p, ok := l.early[ticket]; ok {
		delete(l.early, ticket)
		l.outcome(k, p)
		return
	}
	k.ticket = ticket
	if k.over {
		return // somebody else looks after it
	}
	l.parked[ticket] = k
	if k.placed != nil {
		k.placed(place)
	}
	l.lookBy(l.heard.add(pingTime))
}

// takePush reads ">[word, ...]". What it does not know is for later versions.
func (l *link) takePush(p push) {
	l.isGood()
	if len(p) == 0 {
		return
	}
	told := l.told
	l.told = nil
	switch word, _ := p[0].(string); {
	case len(p) == 5 && word == "broken-by":
		l.told = p
	case len(p) == 6 && word == "session-ended":
		l.client.sessionEnded(textOf(p[1]), textOf(p[5]))
	case len(p) == 6 && (word == "broken" || word == "expired"):
		l.client.holdEnded(p, told)
	case len(p) == 6 && word != "overdue":
		ticket := fenceOf(p[3])
		if k := l.parked[ticket]; k != nil {
			l.outcome(k, p)
		} else if l.mayPark() {
			l.early[ticket] = p
		}
	}
}

func (l *link) mayPark() bool {
	for _, k := range l.sent {
		if k.parks {
			return true
		}
	}
	clear(l.early)
	return false
}

// outcome is the last word about a place in the line, ">[word, name, fence, ticket, expires, body
// or reason]". It becomes what would have been its answer without a line.
func (l *link) outcome(k *call, p push) {
	switch word := textOf(p[0]); word {
	case "failed":
		if !k.over && k.ticket == 0 {
			l.sent = append([]*call{k}, l.sent...) // it was taken from there
		}
		l.client.leave(l, fmt.Errorf("%s: %s", l.wire.from.text, textOf(p[5])))
	case "granted":
		l.finish(k, answer{value: []any{word, p[2], p[4], p[5]}, late: true})
	default:
		l.finish(k, answer{value: []any{word, p[5]}, late: true})
	}
}
