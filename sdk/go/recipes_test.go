package belay_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"example.org/belay"
)

// A job that every replica starts at the same time of day, and one of them does. The body of the
// lock has the day of the last run: a replica whose clock is late finds that it is done already.
func Example_runOnceAcrossReplicas() {
	client, _ := belay.New(belay.Config{})
	defer client.Close()

	nightly := func(ctx context.Context, day string, job func(ctx context.Context, fence uint64) error) error {
		err := client.WithLock(ctx, "nightly-report", func(ctx context.Context, held *belay.Held) error {
			if string(held.Body()) == day {
				return nil
			}
			if err := job(ctx, held.Fence()); err != nil {
				return err // another replica may try
			}
			return held.SetBody(ctx, []byte(day))
		}, belay.Wait(0))
		if errors.Is(err, belay.ErrNotAcquired) {
			return nil // another replica is doing it
		}
		return err
	}

	for replica := 1; replica <= 3; replica++ {
		if err := nightly(context.Background(), "2026-11-19", work); err != nil {
			log.Print(err)
		}
	}
	// Output: working
}

// A task that runs in the background of one replica at a time, and moves to another one when that
// replica ends or cannot be reached.
func Example_leaderOnlyTask() {
	client, _ := belay.New(belay.Config{})
	defer client.Close()

	lead := func(ctx context.Context, task func(ctx context.Context, term uint64)) error {
		for {
			held, err := client.Election("indexer").Campaign(ctx)
			if err != nil {
				return err // ctx has ended, or the client is closed
			}
			stop := context.AfterFunc(ctx, func() { held.Release() })
			task(held.Context(), held.Fence())
			stop()
			held.Release()
		}
	}

	ctx, shutdown := context.WithCancel(context.Background())
	err := lead(ctx, func(leading context.Context, term uint64) {
		fmt.Println("leading")
		shutdown()
		<-leading.Done()
		fmt.Println("stopped")
	})
	fmt.Println(errors.Is(err, context.Canceled))
	// Output:
	// leading
	// stopped
	// true
}

// At most two requests at a time to a service that bears no more, from all replicas together.
func Example_rateLimit() {
	client, _ := belay.New(belay.Config{})
	defer client.Close()

	send := func(ctx context.Context, mail string) error {
		return client.WithLock(ctx, "mail-api", func(ctx context.Context, _ *belay.Held) error {
			fmt.Println("sent", mail)
			return nil
		}, belay.Permits(1, 2))
	}

	var all sync.WaitGroup
	for _, mail := range []string{"a", "b", "c"} {
		mail := mail
		all.Add(1)
		go func() {
			defer all.Done()
			if err := send(context.Background(), mail); err != nil {
				log.Print(err)
			}
		}()
	}
	all.Wait()
	// Unordered output:
	// sent a
	// sent b
	// sent c
}

// Replicas that start together migrate the schema once: the others wait, and find it done.
func Example_migrationAtStartUp() {
	client, _ := belay.New(belay.Config{})
	defer client.Close()

	version := 0 // in the database
	migrate := func(ctx context.Context) error {
		return client.WithLock(ctx, "schema", func(ctx context.Context, held *belay.Held) error {
			if version == 2 {
				return nil
			}
			version = 2 // in a transaction that refuses a fence smaller than the last one
			return work(ctx, held.Fence())
		}, belay.TTL(time.Minute))
	}

	var replicas sync.WaitGroup
	for i := 0; i < 3; i++ {
		replicas.Add(1)
		go func() {
			defer replicas.Done()
			if err := migrate(context.Background()); err != nil {
				log.Print(err)
			}
		}()
	}
	replicas.Wait()
	// Output: working
}
