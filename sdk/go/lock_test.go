package belay_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/belay"
)

func TestLockExcludes(t *testing.T) {
	c := serve(t).client(t)
	first := lock(t, c, "x", belay.TTL(30*time.Second))
	_, err := c.TryLock(soon(t), "x")
	var refused *belay.RefusedError
	if !errors.As(err, &refused) || refused.Reason != "held" || !errors.Is(err, belay.ErrNotAcquired) {
		t.Fatalf("got %v, want a refusal", err)
	}
	if len(refused.Holders) != 1 || refused.Holders[0].Owner != first.Owner() || refused.Holders[0].Fence != first.Fence() {
		t.Fatalf("got holders %v, want %s", refused.Holders, first.Owner())
	}
	if !first.Held() || first.Context().Err() != nil {
		t.Fatal("it is held, and says that it is not")
	}
	release(t, first)
	if was, err := first.Release(); was || err != nil {
		t.Fatalf("it was released already, and a second release says %v, %v", was, err)
	}
	if first.Held() || first.Context().Err() != context.Canceled || context.Cause(first.Context()) != context.Canceled {
		t.Fatal("it is released, and says that it is not")
	}
	second := lock(t, c, "x")
	if second.Fence() <= first.Fence() {
		t.Fatalf("fences %d, %d do not rise", first.Fence(), second.Fence())
	}
}

func TestContextHasValuesButNotTheEndOfTheCaller(t *testing.T) {
	type key struct{}
	c := serve(t).client(t)
	ctx, cancel := context.WithCancel(context.WithValue(soon(t), key{}, "value"))
	held, err := c.Lock(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if held.Context().Err() != nil || held.Context().Value(key{}) != "value" {
		t.Fatal("the context of the lock call is over, and so is that of the lock")
	}
}

func TestWaitEnds(t *testing.T) {
	c := serve(t).client(t)
	held := lock(t, c, "x")
	if _, err := c.Lock(soon(t), "x", belay.Wait(time.Millisecond)); !errors.Is(err, belay.ErrTimedOut) {
		t.Errorf("Wait: got %v", err)
	}
	ctx, cancel := context.WithTimeout(soon(t), time.Millisecond)
	defer cancel()
	if _, err := c.Lock(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("deadline: got %v", err)
	}
	ctx, cancel = context.WithCancel(soon(t))
	failed := make(chan error)
	go func() {
		_, err := c.Lock(ctx, "x", belay.OnPlace(func(int) { cancel() }))
		failed <- err
	}()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("cancel: got %v", err)
	}
	waiters(t, c, "x", 0)
	release(t, held)
	release(t, lock(t, c, "x", belay.Wait(0)))
}

func TestPlaceInLine(t *testing.T) {
	c := serve(t).client(t)
	held := lock(t, c, "x")
	places := make(chan int, 10)
	granted := make(chan *belay.Held)
	var line []*belay.Held
	for i := 1; i <= 2; i++ {
		go func() {
			h, _ := c.Lock(context.Background(), "x", belay.OnPlace(func(place int) { places <- place }))
			granted <- h
		}()
		if place := <-places; place != i {
			t.Fatalf("place %d, want %d", place, i)
		}
	}
	release(t, held)
	line = append(line, <-granted)
	if place := <-places; place != 1 {
		t.Fatalf("place %d, want 1", place)
	}
	release(t, line[0])
	release(t, <-granted)
}

func TestSharedAndSemaphore(t *testing.T) {
	c := serve(t).client(t)
	readers := []*belay.Held{lock(t, c, "rw", belay.Shared()), lock(t, c, "rw", belay.Shared())}
	if _, err := c.TryLock(soon(t), "rw"); !errors.Is(err, belay.ErrNotAcquired) {
		t.Fatalf("got %v", err)
	}
	release(t, readers[1])
	before := readers[0].Fence()
	if err := readers[0].Convert(soon(t)); err != nil || readers[0].Fence() <= before {
		t.Fatalf("convert: %v, fence %d after %d", err, readers[0].Fence(), before)
	}
	lock(t, c, "pool", belay.Permits(2, 3))
	lock(t, c, "pool", belay.Permits(1, 3))
	if _, err := c.TryLock(soon(t), "pool", belay.Permits(1, 3)); !errors.Is(err, belay.ErrNotAcquired) {
		t.Fatalf("got %v", err)
	}
}

func TestLockAllTakesAllOrNone(t *testing.T) {
	c := serve(t).client(t)
	b := lock(t, c, "b")
	if _, err := c.LockAll(soon(t), []string{"c", "b", "a"}, belay.Wait(time.Millisecond)); !errors.Is(err, belay.ErrTimedOut) {
		t.Fatalf("got %v", err)
	}
	a := lock(t, c, "a", belay.Wait(0))
	release(t, a)
	release(t, b)
	all, err := c.LockAll(soon(t), []string{"c", "b", "a"})
	if err != nil {
		t.Fatal(err)
	}
	if fences := all.Fences(); len(fences) != 3 || !(fences["a"] < fences["b"] && fences["b"] < fences["c"]) {
		t.Fatalf("got fences %v", fences)
	}
	if _, err := c.Break(soon(t), "b", "test"); err != nil {
		t.Fatal(err)
	}
	<-all.Context().Done()
	var lost *belay.LostError
	if !errors.As(context.Cause(all.Context()), &lost) || lost.Name != "b" || lost.Text != "test" {
		t.Fatalf("got %v", context.Cause(all.Context()))
	}
	if was, err := all.Release(); was || err != nil {
		t.Fatalf("got %v, %v", was, err)
	}
}

func TestWithLockFailsWhenTheLockIsLost(t *testing.T) {
	c := serve(t).client(t)
	failure := errors.New("own")
	for _, test := range []struct{ own, want error }{{nil, &belay.LostError{}}, {failure, failure}} {
		err := c.WithLock(soon(t), "x", func(ctx context.Context, held *belay.Held) error {
			if _, err := c.Break(soon(t), "x", ""); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return test.own
		})
		var lost *belay.LostError
		if errors.As(test.want, &lost) != errors.As(err, &lost) || (test.own != nil && err != test.own) {
			t.Errorf("got %v, want %v", err, test.want)
		}
	}
	if err := c.WithLock(soon(t), "x", func(context.Context, *belay.Held) error { return nil }, belay.Wait(0)); err != nil {
		t.Errorf("it was not released: %v", err)
	}
}

func TestWrongArguments(t *testing.T) {
	c, err := belay.New(belay.Config{Addresses: []string{"127.0.0.1:1"}}) // nothing is sent
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for name, options := range map[string][]belay.LockOption{
		"":                        nil,
		strings.Repeat("x", 513):  nil,
		"negative ttl":            {belay.TTL(-1)},
		"negative wait":           {belay.Wait(-2)},
		"more permits than there": {belay.Permits(3, 2)},
		"permits of none":         {belay.Permits(1, 0)},
		"no permit":               {belay.Permits(0, 2)},
		"a shared semaphore":      {belay.Shared(), belay.Permits(1, 2)},
		"a long owner":            {belay.Owner(strings.Repeat("x", 129))},
	} {
		if _, err := c.Lock(soon(t), name, options...); err == nil || errors.Is(err, belay.ErrUnreachable) {
			t.Errorf("%q: got %v", name, err)
		}
	}
	for _, names := range [][]string{nil, {"a", "a"}} {
		if _, err := c.LockAll(soon(t), names); err == nil || errors.Is(err, belay.ErrUnreachable) {
			t.Errorf("%v: got %v", names, err)
		}
	}
}

// One connection, and everybody in one line on it.
func TestManyWaitOnOneConnection(t *testing.T) {
	const many = 1000
	c := serve(t).client(t)
	first := lock(t, c, "x")
	var all sync.WaitGroup
	last := first.Fence() // guarded by the lock
	for i := 0; i < many; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			held, err := c.Lock(context.Background(), "x")
			if err != nil {
				t.Error(err)
				return
			}
			if held.Fence() <= last {
				t.Errorf("fence %d after %d", held.Fence(), last)
			}
			last = held.Fence()
			if was, err := held.Release(); !was || err != nil {
				t.Errorf("release: %v, %v", was, err)
			}
		}()
	}
	for waiting := int64(0); waiting < many; {
		shown, err := c.Call(soon(t), "NAMESPACE", "SHOW", "default")
		if err != nil {
			t.Fatal(err)
		}
		waiting = shown.(map[string]any)["waiting"].(int64)
	}
	release(t, first)
	all.Wait()
}

func TestCloseFreesEverything(t *testing.T) {
	s := serve(t)
	other := s.client(t)
	lock(t, other, "theirs")
	before := runtime.NumGoroutine()

	c := s.client(t)
	held := lock(t, c, "x", belay.TTL(time.Minute))
	events, err := c.Watch(soon(t), "nothing")
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error)
	go func() {
		_, err := c.Lock(context.Background(), "theirs")
		waiting <- err
	}()
	waiters(t, other, "theirs", 1)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; !errors.Is(err, belay.ErrClosed) {
		t.Errorf("a wait ends with %v", err)
	}
	if held.Held() || !errors.Is(context.Cause(held.Context()), belay.ErrClosed) {
		t.Errorf("a lock ends with %v", context.Cause(held.Context()))
	}
	if _, open := <-events; open {
		t.Error("a watch goes on")
	}
	if _, err := c.Lock(soon(t), "y"); !errors.Is(err, belay.ErrClosed) {
		t.Errorf("a lock behind it: %v", err)
	}
	lock(t, other, "x", belay.Wait(0))
	waiters(t, other, "theirs", 0)
	for end := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(end) {
			buf := make([]byte, 1<<20)
			t.Fatalf("goroutines are left:\n%s", buf[:runtime.Stack(buf, true)])
		}
	}
}

// A server that hangs says nothing. The lock is lost by the clock.
func TestLostInSilence(t *testing.T) {
	s := serve(t)
	c := s.client(t, func(config *belay.Config) { config.SessionTTL = 300 * time.Millisecond })
	own := lock(t, c, "own lease", belay.TTL(200*time.Millisecond))
	session := lock(t, c, "session")
	s.hang(t)
	for _, held := range []*belay.Held{own, session} {
		<-held.Context().Done()
		var lost *belay.LostError
		if !errors.As(context.Cause(held.Context()), &lost) || lost.Reason != "silence" || lost.Name != held.Name() {
			t.Errorf("%s: got %v", held.Name(), context.Cause(held.Context()))
		}
		if held.Held() {
			t.Errorf("%s: it is lost, and says that it is held", held.Name())
		}
	}
}
