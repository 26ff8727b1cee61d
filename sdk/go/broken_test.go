package belay_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"example.org/belay"
)

// A proxy stands between a client and a server, and breaks their connections.
type proxy struct {
	listener net.Listener
	to       string
	mu       sync.Mutex
	open     []net.Conn
	made     int
}

func (s *server) proxy(t testing.TB) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, to: s.address}
	go p.run()
	t.Cleanup(func() {
		_ = listener.Close()
		p.reset()
	})
	return p
}

func (p *proxy) run() {
	for {
		from, err := p.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", p.to)
		if err != nil {
			_ = from.Close()
			continue
		}
		p.mu.Lock()
		p.open = append(p.open, from, to)
		p.made++
		p.mu.Unlock()
		go func() { _, _ = io.Copy(from, to) }()
		go func() { _, _ = io.Copy(to, from) }()
	}
}

// reset breaks all connections, so that nobody takes it for a close.
func (p *proxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.open {
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
	p.open = nil
}

func (p *proxy) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.made
}

func TestPlacesAndLocksAreKeptOverBrokenConnections(t *testing.T) {
	s := serve(t)
	p := s.proxy(t)
	c := s.client(t, func(config *belay.Config) { config.Addresses = []string{p.listener.Addr().String()} })
	other := s.client(t)
	mine, theirs := lock(t, c, "mine", belay.TTL(time.Minute)), lock(t, other, "theirs")
	granted := make(chan *belay.Held)
	go func() {
		held, err := c.Lock(context.Background(), "theirs")
		if err != nil {
			t.Error(err)
		}
		granted <- held
	}()
	waiters(t, other, "theirs", 1)
	before, session := mine.Fence(), c.Session()
	for i := 1; i <= 3; i++ {
		made := p.connections()
		p.reset()
		if current, err := mine.Check(soon(t)); !current || err != nil {
			t.Fatalf("check: %v, %v", current, err)
		}
		if p.connections() == made {
			t.Fatal("no connection was broken")
		}
	}
	if mine.Fence() != before || !mine.Held() || c.Session() != session {
		t.Fatal("it is another lock, or another session")
	}
	waiters(t, other, "theirs", 1)
	release(t, theirs)
	release(t, <-granted)
	release(t, mine)
}

// A request takes effect once, however often it is sent.
func TestReleaseOverBrokenConnections(t *testing.T) {
	s := serve(t)
	p := s.proxy(t)
	c := s.client(t, func(config *belay.Config) { config.Addresses = []string{p.listener.Addr().String()} })
	for i := 0; i < 50; i++ {
		held := lock(t, c, "x", belay.Wait(0))
		go p.reset()
		release(t, held)
	}
}
