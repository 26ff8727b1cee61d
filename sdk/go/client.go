package belay

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	clientOwnerMax = 100         // so that there is room for a number behind it
	closeTime      = time.Second // for the server to hear of it
)

// Config says where the servers are, and who the client is. The zero Config is what most need.
type Config struct {
	// Addresses of all nodes: "host:port", "tls://host:port" or "unix:///path"; one may be a
	// list with commas. The default is $BELAY_ADDR, or 127.0.0.1:7117.
	Addresses []string

	// Namespace of everything that the client does. The default is the server's, "default".
	Namespace string

	// Token to log in with. The default is $BELAY_TOKEN, or the first line of the file
	// $BELAY_TOKEN_FILE, or none.
	Token string

	// TLS is for addresses that begin with tls://. The server must prove that it is the host of
	// its address. The default is what $BELAY_TLS_CA, $BELAY_TLS_CERT and $BELAY_TLS_KEY name,
	// see [TLSFiles].
	TLS *tls.Config

	// Owner is who this client is, for people who look. The default is "host:pid".
	Owner string

	// SessionTTL is how long the server waits for a sign of life before it frees the locks.
	// The default is 30 s.
	SessionTTL time.Duration

	// Timeout is how long a call looks for an answer, beyond its own wait. The default is 10 s.
	Timeout time.Duration

	// Logger is told of connections, sessions and lost locks. The default is nobody.
	Logger *slog.Logger
}

// TLSFiles reads files in PEM: the CAs that vouch for servers (""; those of the system), and the
// certificate and key that this program shows to them ("": none).
func TLSFiles(ca, cert, key string) (*tls.Config, error) {
	config := &tls.Config{}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("belay: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("belay: %s: no certificate in it", ca)
		}
	}
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("belay: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// complete fills in the defaults.
func (c *Config) complete() error {
	if c.Token == "" {
		token, err := tokenOfEnvironment()
		if err != nil {
			return err
		}
		c.Token = token
	}
	if c.Owner == "" {
		host, _ := os.Hostname()
		c.Owner = fmt.Sprintf("%.*s:%d", clientOwnerMax/2, host, os.Getpid())
	}
	if c.SessionTTL == 0 {
		c.SessionTTL = 30 * time.Second
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	switch {
	case len(c.Owner) > clientOwnerMax:
		return fmt.Errorf("belay: the owner of a client has at most %d bytes", clientOwnerMax)
	case c.SessionTTL < time.Millisecond || c.Timeout < 0:
		return errors.New("belay: a duration is too short")
	}
	c.SessionTTL = c.SessionTTL.Truncate(time.Millisecond)
	return nil
}

func tokenOfEnvironment() (string, error) {
	if token, ok := os.LookupEnv("BELAY_TOKEN"); ok {
		return token, nil
	}
	path := os.Getenv("BELAY_TOKEN_FILE")
	if path == "" {
		return "", nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("belay: %w", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(line), nil
}

// A Client is a connection to a Belay server, and a session there. All its methods may be called
// by all goroutines at once.
//
// It connects when it has to. When the connection breaks it connects to this or another node,
// attaches its session again, and sends again what was not answered.
type Client struct {
	config    Config
	addresses []address
	log       *slog.Logger
	id        string // begins the ids of its requests
	ctx       context.Context
	cancel    context.CancelFunc
	requests  atomic.Uint64
	owners    atomic.Uint64

	mu         sync.Mutex
	agenda     *agenda
	closed     bool
	link       *link // nil: there is none
	connecting bool
	at         int // the address in use, or to be tried
	pace       pace
	trouble    error   // what a server has failed with last
	queue      []*call // those that wait for a connection
	seq        uint64
	session    *session // nil: none is needed yet, or the last one is over
	holds      map[uint64]*hold
	parties    map[party]bool
	lines      map[string]*line
	ttls       map[time.Duration]int // of the holds
}

// New makes a client. It connects to nothing, and fails only when the configuration is wrong.
func New(config Config) (*Client, error) {
	list := config.Addresses
	if len(list) == 0 {
		list = []string{addressDefault}
		if env := os.Getenv("BELAY_ADDR"); env != "" {
			list = []string{env}
		}
	}
	addresses, err := parseAddresses(list)
	if err != nil {
		return nil, err
	}
	if err := config.complete(); err != nil {
		return nil, err
	}
	for _, a := range addresses {
		if a.tls && config.TLS == nil {
			config.TLS, err = TLSFiles(os.Getenv("BELAY_TLS_CA"), os.Getenv("BELAY_TLS_CERT"), os.Getenv("BELAY_TLS_KEY"))
			if err != nil {
				return nil, err
			}
		}
	}
	c := &Client{
		config: config, addresses: addresses, log: config.Logger, id: randomHex(12),
		holds: map[uint64]*hold{}, parties: map[party]bool{}, lines: map[string]*line{}, ttls: map[time.Duration]int{},
	}
	if c.log == nil {
		c.log = slog.New(silent{})
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.agenda = newAgenda(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.closed {
			c.agenda.ring()
		}
	})
	return c, nil
}

func randomHex(n int) string {
	raw := make([]byte, n)
	if _, err := rand.Read(raw); err != nil {
		panic("belay: no random numbers: " + err.Error())
	}
	return hex.EncodeToString(raw)
}

// silent is a log that nobody reads.
type silent struct{}

func (silent) Enabled(context.Context, slog.Level) bool  { return false }
func (silent) Handle(context.Context, slog.Record) error { return nil }
func (silent) WithAttrs([]slog.Attr) slog.Handler        { return silent{} }
func (silent) WithGroup(string) slog.Handler             { return silent{} }

// requestID makes the id by which a server knows a request that is sent again.
func (c *Client) requestID() string {
	return c.id + "-" + strconv.FormatUint(c.requests.Add(1), 10)
}

// Address is the node that the client is connected to, "" if there is none.
func (c *Client) Address() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link == nil {
		return ""
	}
	return c.link.wire.from.text
}

// Session is the id of the client's session, "" if there is none.
func (c *Client) Session() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == nil || !c.session.opened {
		return ""
	}
	return c.session.id
}

// Close gives all locks back, ends all calls with [ErrClosed], and frees everything. A second one
// does nothing.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	calls := c.calls()
	freed := c.freeSession()
	c.closed = true
	c.queue = nil
	for _, h := range c.holds {
		h.end(ErrClosed)
		h.onEnd(ErrClosed)
	}
	for _, k := range calls {
		c.forget(k)
		k.finish(answer{err: fmt.Errorf("belay: %w", ErrClosed)})
	}
	c.mu.Unlock()

	select {
	case <-freed:
	case <-time.After(closeTime):
	}
	c.cancel()
	c.agenda.alarm.close()
	c.mu.Lock()
	l := c.link
	c.link = nil
	c.mu.Unlock()
	if l != nil {
		l.out.close()
		_ = l.wire.Close()
	}
	return nil
}

// freeSession ends the session, if there is one. The channel closes when that is done.
func (c *Client) freeSession() <-chan struct{} {
	freed := make(chan struct{})
	if c.session == nil || !c.isReady() {
		close(freed)
		return freed
	}
	c.link.send(&call{
		bytes: appendCommand(nil, []string{"SESSION", "CLOSE", c.session.id, "REQUEST", c.requestID()}),
		done:  func(answer) { close(freed) },
	})
	return freed
}

// do asks for an answer that comes at once.
func (c *Client) do(ctx context.Context, again bool, words ...string) (any, error) {
	out := make(chan answer, 1)
	k := &call{
		bytes: appendCommand(nil, words), again: again,
		until: now().add(c.config.Timeout), done: func(a answer) { out <- a },
	}
	c.mu.Lock()
	c.send(k)
	c.mu.Unlock()
	select {
	case a := <-out:
		return a.value, a.err
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		c.forget(k)
		k.over = true
		return nil, fmt.Errorf("belay: %w", ctx.Err())
	}
}

// change is do for what changes something: it takes effect once, however often it is sent.
func (c *Client) change(ctx context.Context, words ...string) (any, error) {
	return c.do(ctx, true, append(words, "REQUEST", c.requestID())...)
}

// Call sends any command, once. The answer is nil, an int64, a float64, a string, a []any or a
// map[string]any. Commands that wait, and those of the connection (such as USE), are not for it.
func (c *Client) Call(ctx context.Context, words ...string) (any, error) {
	if len(words) == 0 {
		return nil, errors.New("belay: a command has at least one word")
	}
	return c.do(ctx, false, words...)
}

// Break takes a lock away from its holders. It answers how many they were. The reason is told to
// them, and is in the server's audit log.
func (c *Client) Break(ctx context.Context, name, reason string) (int, error) {
	words := []string{"BREAK", name}
	if reason != "" {
		words = append(words, "REASON", reason)
	}
	v, err := c.change(ctx, words...)
	return int(wholeOf(v)), err
}

// A LockInfo is what a server knows about a lock.
type LockInfo struct {
	Name    string
	State   string // "unlocked", "shared", "exclusive", "semaphore" or "closed"
	Body    []byte
	Holders []Holder // the first 100
	Waiters []Waiter // the first 100
}

// A Waiter is one of those who wait for a lock.
type Waiter struct {
	Owner    string
	Session  string
	Mode     string
	Ticket   uint64
	Position int // 1 is next
}

// Show says who holds a lock, and who waits for it.
func (c *Client) Show(ctx context.Context, name string) (*LockInfo, error) {
	v, err := c.do(ctx, true, "SHOW", name)
	if err != nil {
		return nil, err
	}
	return lockInfoOf(v), nil
}

func lockInfoOf(v any) *LockInfo {
	m, _ := v.(map[string]any)
	info := &LockInfo{Name: textOf(m["name"]), State: textOf(m["state"]), Body: []byte(textOf(m["body"]))}
	for _, h := range rowsOf(m["holders"]) {
		info.Holders = append(info.Holders, Holder{
			Owner: textOf(h["owner"]), Session: textOf(h["session"]), Mode: textOf(h["mode"]),
			Fence: fenceOf(h["fence"]), ExpiresIn: durationOf(h["expires_in_ms"]),
		})
	}
	for _, w := range rowsOf(m["waiters"]) {
		info.Waiters = append(info.Waiters, Waiter{
			Owner: textOf(w["owner"]), Session: textOf(w["session"]), Mode: textOf(w["mode"]),
			Ticket: fenceOf(w["ticket"]), Position: int(wholeOf(w["position"])),
		})
	}
	return info
}

// dial connects to a server that answers within limit.
func (c *Client) dial(ctx context.Context, a address, limit time.Duration) (*wire, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return dial(ctx, a, &c.config)
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
