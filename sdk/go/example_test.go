package belay_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"example.org/belay"
	"example.org/belay/txn"
)

// What the examples guard.
func work(ctx context.Context, fence uint64) error {
	fmt.Println("working")
	return ctx.Err()
}

func Example() {
	client, err := belay.New(belay.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	held, err := client.Lock(context.Background(), "invoices", belay.TTL(30*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer held.Release()
	if err := work(held.Context(), held.Fence()); err != nil {
		log.Print(context.Cause(held.Context())) // why it was lost
	}
	// Output: working
}

func ExampleClient_TryLock() {
	client, _ := belay.New(belay.Config{})
	defer client.Close()
	ctx := context.Background()

	held, err := client.TryLock(ctx, "deploy", belay.Owner("ci-7"))
	if err != nil {
		log.Fatal(err)
	}
	defer held.Release()

	_, err = client.TryLock(ctx, "deploy")
	var refused *belay.RefusedError
	if errors.As(err, &refused) {
		fmt.Println(refused.Reason, "by", refused.Holders[0].Owner)
	}
	// Output: held by ci-7
}

func ExampleClient_WithLock() {
	client, _ := belay.New(belay.Config{})
	defer client.Close()

	err := client.WithLock(context.Background(), "report", func(ctx context.Context, held *belay.Held) error {
		return work(ctx, held.Fence())
	}, belay.Wait(time.Minute))
	fmt.Println(err)
	// Output:
	// working
	// <nil>
}

func ExampleHeld_Context() {
	client, _ := belay.New(belay.Config{})
	defer client.Close()
	ctx := context.Background()

	held, err := client.Lock(ctx, "db")
	if err != nil {
		log.Fatal(err)
	}
	defer held.Release()
	if _, err := client.Break(ctx, "db", "runner 4 is gone"); err != nil {
		log.Fatal(err)
	}
	<-held.Context().Done()
	fmt.Println(context.Cause(held.Context()))
	// Output: belay: db: lost: break: runner 4 is gone
}

func ExampleClient_Watch() {
	client, _ := belay.New(belay.Config{})
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	events, err := client.Watch(ctx, "watched/")
	if err != nil {
		log.Fatal(err)
	}
	held, err := client.Lock(ctx, "watched/1")
	if err != nil {
		log.Fatal(err)
	}
	held.Release()
	for event := range events {
		fmt.Println(event.Word, event.Name)
		if event.Word == "released" {
			return
		}
	}
	// Output:
	// granted watched/1
	// released watched/1
}

func ExampleElection() {
	client, _ := belay.New(belay.Config{})
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	election := client.Election("scheduler")

	leaders, err := election.Observe(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-leaders)
	held, err := election.Campaign(ctx, belay.Body([]byte("10.0.0.7:80")))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s leads\n", (<-leaders).Body)
	held.Release()
	fmt.Println(<-leaders)
	// Output:
	// <nil>
	// 10.0.0.7:80 leads
	// <nil>
}

func ExampleClient_Transact() {
	client, _ := belay.New(belay.Config{})
	defer client.Close()

	enter := belay.Transaction{Statements: []txn.Statement{
		txn.Assert(txn.Not(txn.Exists("Month-End", "CGROVE-35"))),
		txn.Assert(txn.Set("MDS-Entry", "CGROVE-35", "R-45899", txn.AllowDuplicates())),
	}}
	result, err := client.Transact(context.Background(), enter)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Status)
	// Output: ok
}
