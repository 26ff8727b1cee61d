package belay_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"example.org/belay"
)

func TestLockExcludes(t *testing.T) {
	c := startServer(t).client()
	first := mustLock(t, c, "x", belay.TTL(30*time.Second))
	_, err := c.TryLock(within(t), "x")
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
	if held, err := first.Release(); !held || err != nil {
		t.Fatalf("it was held until then, got %v", err)
	}
	if held, err := first.Release(); held || err != nil {
		t.Fatalf("it was released already, got %v", err)
	}
	if first.Held() || !errors.Is(first.Context().Err(), context.Canceled) {
		t.Fatal("it is released, and says that it is not")
	}
	second := mustLock(t, c, "x")
	if second.Fence() <= first.Fence() {
		t.Fatalf("fences %d, %d do not rise", first.Fence(), second.Fence())
	}
}
