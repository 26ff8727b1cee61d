package belay_test

import (
	"io"
	"net"
	"testing"
	"time"

	"example.org/belay"
)

// Whatever a server answers: calls end, with an error, and nothing panics.
func TestServersThatAreNone(t *testing.T) {
	for _, answer := range []string{
		"+OK\r\n", ":1\r\n", "_\r\n", "*0\r\n", "%0\r\n", ">0\r\n", ">1\r\n_\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n",
		"-UNAVAILABLE not now\r\n", "-NOSESSION none\r\n", "-STALE no\r\n", "-\r\n", "*1\r\n$7\r\ngranted\r\n",
		"*4\r\n$7\r\ngranted\r\n_\r\n_\r\n_\r\n", "*3\r\n$6\r\nqueued\r\n_\r\n_\r\n", "*2\r\n$7\r\nrefused\r\n_\r\n",
		"*1\r\n$7\r\nrefused\r\n", "*2\r\n$8\r\ndeadlock\r\n:1\r\n", "*3\r\n$7\r\nrefused\r\n:1\r\n*1\r\n:1\r\n",
		"+OK\r\n>6\r\n$7\r\ngranted\r\n_\r\n_\r\n_\r\n_\r\n_\r\n", "+OK\r\n>6\r\n_\r\n_\r\n_\r\n_\r\n_\r\n_\r\n",
		"+OK\r\n>6\r\n$6\r\nfailed\r\n$0\r\n\r\n:0\r\n:1\r\n:0\r\n$1\r\nx\r\n", "+OK\r\n>5\r\n$9\r\nbroken-by\r\n_\r\n_\r\n_\r\n_\r\n",
		"+OK\r\n>6\r\n$13\r\nsession-ended\r\n_\r\n_\r\n_\r\n_\r\n_\r\n", "+OK\r\n>4\r\n$5\r\nevent\r\n:1\r\n_\r\n%0\r\n",
	} {
		c, err := belay.New(belay.Config{Addresses: []string{answerAll(t, answer)}, Timeout: 50 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if held, err := c.Lock(soon(t), "x", belay.TTL(time.Second), belay.Wait(time.Millisecond)); err == nil {
			t.Errorf("%q: fence %d", answer, held.Fence())
		}
		_, _ = c.Show(soon(t), "x")
		_, _ = c.Transact(soon(t), belay.Transaction{Wait: time.Millisecond})
		_, _ = c.Watch(soon(t), "")
		_ = c.Close()
	}
}

// answerAll is the address of a server that answers every command with the same bytes.
func answerAll(t *testing.T, answer string) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for in := make([]byte, 1<<16); ; {
					n, err := conn.Read(in)
					if err != nil {
						return
					}
					for _, b := range in[:n] {
						if b == '*' { // the beginning of a command
							if _, err := io.WriteString(conn, answer); err != nil {
								return
							}
						}
					}
				}
			}()
		}
	}()
	return listener.Addr().String()
}
