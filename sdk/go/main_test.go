package belay_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/belay"
)

// The examples use a server of their own, which the environment names.
func TestMain(m *testing.M) {
	s, err := start()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = os.Setenv("BELAY_ADDR", s.address)
	code := m.Run()
	s.stop()
	os.Exit(code)
}

// A server is a real one on a free port, in memory.
type server struct {
	process *exec.Cmd
	address string
}

func start() (*server, error) {
	binary := os.Getenv("BELAY")
	if binary == "" {
		binary = filepath.Join("..", "..", "build", "belay")
	}
	s := &server{process: exec.Command(binary, "serve", "--memory", "--listen", "127.0.0.1:0")}
	s.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := s.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("no server: %w", err)
	}
	s.address = strings.Fields(line)[1]
	return s, nil
}

// serve starts a server for one test.
func serve(t testing.TB) *server {
	t.Helper()
	s, err := start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	return s
}

func (s *server) stop() {
	_ = s.process.Process.Signal(syscall.SIGCONT)
	_ = s.process.Process.Signal(syscall.SIGTERM)
	_ = s.process.Wait()
}

func (s *server) client(t testing.TB, configure ...func(*belay.Config)) *belay.Client {
	t.Helper()
	config := belay.Config{Addresses: []string{s.address}}
	for _, f := range configure {
		f(&config)
	}
	c, err := belay.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// soon is a context that ends long after everything should be done.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func lock(t testing.TB, c *belay.Client, name string, options ...belay.LockOption) *belay.Held {
	t.Helper()
	held, err := c.Lock(soon(t), name, options...)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

func release(t testing.TB, held *belay.Held) {
	t.Helper()
	if was, err := held.Release(); !was || err != nil {
		t.Fatalf("release of %s: %v, %v", held.Name(), was, err)
	}
}

// waiters waits until so many wait for the lock.
func waiters(t testing.TB, c *belay.Client, name string, n int) {
	t.Helper()
	ctx := soon(t)
	for {
		info, err := c.Show(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		if len(info.Waiters) == n {
			return
		}
	}
}

// hang stops the server: its connections stay open, and nothing is answered.
func (s *server) hang(t testing.TB) {
	t.Helper()
	if err := s.process.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}
