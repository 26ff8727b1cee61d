// Locks of Go, by TASKS goroutines of one process.
//
//	go belay|etcd pair|handover TASKS WARM_S SECONDS PORT
//
// Prints what run wants to know as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"example.org/belay"
	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
)

const ttl, heldFor = 30 * time.Second, time.Millisecond

// take waits for a lock and answers what gives it back.
type take func() (release func(), err error)

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

func belayLocks(port string) func(name string) take {
	client := must(belay.New(belay.Config{Addresses: []string{"127.0.0.1:" + port}}))
	var options []belay.LockOption
	if os.Getenv("BENCH_LEASE") != "" {
		options = append(options, belay.TTL(ttl))
	}
	return func(name string) take {
		return func() (func(), error) {
			held, err := client.Lock(context.Background(), name, options...)
			return func() { must(held.Release()) }, err
		}
	}
}

// A mutex of etcd excludes other sessions only, so each task has its own; they share the client.
func etcdLocks(port string) func(name string) take {
	client := must(clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:" + port}}))
	return func(name string) take {
		session := must(concurrency.NewSession(client, concurrency.WithTTL(int(ttl.Seconds()))))
		mutex := concurrency.NewMutex(session, name)
		return func() (func(), error) {
			err := mutex.Lock(context.Background())
			return func() { must(0, mutex.Unlock(context.Background())) }, err
		}
	}
}

// baton measures one lock on its way. Its holder changes it.
type baton struct {
	mu      sync.Mutex // for the reader of times
	times   []time.Duration
	inside  atomic.Int32
	givenAt time.Time
	last    chan struct{} // closed when another task has the lock
}

// hold holds the lock for a moment, and answers what is closed when another task has it.
func (b *baton) hold() <-chan struct{} {
	now := time.Now()
	if b.inside.Add(1) != 1 {
		log.Fatal("two hold the lock")
	}
	if b.last != nil {
		b.mu.Lock()
		b.times = append(b.times, now.Sub(b.givenAt))
		b.mu.Unlock()
		close(b.last)
	}
	time.Sleep(heldFor)
	b.last = make(chan struct{})
	rest := b.last
	b.inside.Add(-1)
	b.givenAt = time.Now()
	return rest
}

func (b *baton) median(from, to int) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	times := append([]time.Duration(nil), b.times[from:to]...)
	sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
	return float64(times[len(times)/2]) / 1e3
}

func (b *baton) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.times)
}

func cpuSeconds() float64 {
	var u syscall.Rusage
	must(0, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

func main() {
	system, handover, port := os.Args[1], os.Args[2] == "handover", os.Args[6]
	tasks := must(strconv.Atoi(os.Args[3]))
	warm, seconds := must(strconv.ParseFloat(os.Args[4], 64)), must(strconv.ParseFloat(os.Args[5], 64))
	locks := map[string]func(string) func(string) take{"belay": belayLocks, "etcd": etcdLocks}[system](port)
	var pairs atomic.Int64
	var b baton
	work := func(take take) {
		for {
			release, err := take()
			must(0, err)
			var next <-chan struct{}
			if handover {
				next = b.hold()
			}
			release()
			pairs.Add(1)
			if handover {
				<-next
			}
		}
	}
	for i := 0; i < tasks; i++ {
		name := fmt.Sprint("bench-", os.Getpid())
		if !handover {
			name += fmt.Sprint("-", i)
		}
		go work(locks(name))
	}
	time.Sleep(time.Duration(warm * 1e9))
	n, times, cpu, at := pairs.Load(), b.count(), cpuSeconds(), time.Now()
	time.Sleep(time.Duration(seconds * 1e9))
	out := map[string]any{"pairs": pairs.Load() - n, "s": time.Since(at).Seconds(), "cpu_s": cpuSeconds() - cpu, "handover_us": nil}
	if end := b.count(); end > times {
		out["handover_us"] = b.median(times, end)
	}
	must(0, json.NewEncoder(os.Stdout).Encode(out))
}
