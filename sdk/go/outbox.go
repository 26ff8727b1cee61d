package belay

import (
	"io"
	"sync"
)

// An outbox writes what is put into it: in one go with all that was put while it wrote.
type outbox struct {
	mu     sync.Mutex
	more   *sync.Cond
	bytes  []byte
	closed bool
	done   chan struct{} // all is written, or cannot be
}

func newOutbox() *outbox {
	o := &outbox{done: make(chan struct{})}
	o.more = sync.NewCond(&o.mu)
	return o
}

func (o *outbox) put(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bytes = append(o.bytes, b...)
	o.more.Signal()
}

// close ends run when it has written what was put.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.more.Signal()
}

// run writes until it is closed, or w fails: then whoever reads from it is told, too.
func (o *outbox) run(w io.Writer) {
	defer close(o.done)
	var batch []byte
	for {
		o.mu.Lock()
		for len(o.bytes) == 0 && !o.closed {
			o.more.Wait()
		}
		batch, o.bytes = o.bytes, batch[:0]
		o.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		if _, err := w.Write(batch); err != nil {
			return
		}
	}
}
