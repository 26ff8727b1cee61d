package belay_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/belay"
)

// A server is a real one on a free port, in memory. It is stopped at the end of the test.
type server struct {
	t       testing.TB
	process *exec.Cmd
	address string
}

func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	binary := os.Getenv("BELAY")
	if binary == "" {
		binary = filepath.Join("..", "..", "build", "belay")
	}
	s := &server{t: t}
	s.process = exec.Command(binary, append([]string{"serve", "--memory", "--listen", "127.0.0.1:0"}, args...)...)
	out, err := s.process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("no server: %v", err)
	}
	s.address = strings.Fields(line)[1]
	return s
}

func (s *server) stop() {
	if s.process.ProcessState != nil {
		return
	}
	_ = s.process.Process.Signal(syscall.SIGCONT)
	_ = s.process.Process.Signal(syscall.SIGTERM)
	_ = s.process.Wait()
}

func (s *server) kill() {
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
}

func (s *server) client(configure ...func(*belay.Config)) *belay.Client {
	s.t.Helper()
	config := belay.Config{Addresses: []string{s.address}}
	for _, f := range configure {
		f(&config)
	}
	c, err := belay.New(config)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// within is a context that ends long after everything should be done.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func mustLock(t testing.TB, c *belay.Client, name string, options ...belay.LockOption) *belay.Held {
	t.Helper()
	held, err := c.Lock(within(t), name, options...)
	if err != nil {
		t.Fatal(err)
	}
	return held
}
