package belay_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
)

// Lock and Release by 64 goroutines of one client, each with a lock of its own.
func BenchmarkUncontended(b *testing.B) {
	c := serve(b).client(b)
	ctx := context.Background()
	var names atomic.Int64
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		name := fmt.Sprint("lock ", names.Add(1))
		for pb.Next() {
			held, err := c.Lock(ctx, name)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = held.Release()
		}
	})
}

// One lock goes from hand to hand: by 64 goroutines of one client.
func BenchmarkHandOver(b *testing.B) {
	c := serve(b).client(b)
	ctx := context.Background()
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			held, err := c.Lock(ctx, "x")
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = held.Release()
		}
	})
}
