package belay

import (
	"context"
	"errors"
	"math/rand"
	"testing"
	"time"
)

// holdFor is a client that hears no alarm, and a hold that was asked for at sent.
func holdFor(t *testing.T, sessionTTL, ttl, early time.Duration, sent instant) (*Held, *hold) {
	t.Helper()
	c, err := New(Config{SessionTTL: sessionTTL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.agenda.alarm.close() })
	c.closed = true
	s := &session{proven: sent.add(sessionTTL)}
	a := &ask{client: c, options: &lockOptions{ttl: ttl, early: early}, party: party{"x", "o"}, session: s}
	held := c.newHeld(context.Background())
	one := c.newHold(a, 7, "", sent)
	held.add(one)
	return held, one
}

func TestDeadline(t *testing.T) {
	const s = time.Second
	for _, test := range []struct{ session, ttl, early, want time.Duration }{
		{30 * s, 0, 0, 27 * s},
		{30 * s, 10 * s, 0, 9 * s},
		{10 * s, 30 * s, 0, 9 * s},
		{30 * s, 10 * s, 2 * s, 8 * s},
		{30 * s, 10 * s, 8 * s, 5 * s}, // renewals must have their chance
		{30 * s, 0, s, 29 * s},
	} {
		sent := now()
		_, one := holdFor(t, test.session, test.ttl, test.early, sent)
		if got := time.Duration(one.deadline() - sent); got != test.want {
			t.Errorf("session %v, ttl %v, early %v: lost after %v, want %v", test.session, test.ttl, test.early, got, test.want)
		}
	}
}

// Right after a stop of the process nothing has noticed yet that the lease is over.
func TestContextLooksAtTheClock(t *testing.T) {
	held, _ := holdFor(t, time.Minute, time.Second, 0, now().add(-time.Second))
	if held.ctx.Context.Err() != nil {
		t.Fatal("somebody has noticed")
	}
	if held.Context().Err() == nil {
		t.Fatal("the lease is over")
	}
	var lost *LostError
	if !errors.As(context.Cause(held.Context()), &lost) || lost.Reason != reasonSilence || lost.Fence != 7 {
		t.Fatalf("got %v", context.Cause(held.Context()))
	}
}

func TestAgenda(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewSource(seed))
	a := newAgenda(func() {})
	defer a.alarm.close()
	var ran []instant
	due := now()
	want := 0
	for i := 0; i < 1000; i++ {
		var one *task
		one = newTask(func() { ran = append(ran, one.at) })
		a.set(one, due-instant(random.Intn(1000)))
		switch random.Intn(3) {
		case 0:
			a.set(one, never)
		case 1:
			a.set(one, due-instant(random.Intn(1000)))
			want++
		default:
			want++
		}
	}
	late := newTask(func() { t.Error("it ran too early") })
	a.set(late, now().add(time.Hour))
	a.ring()
	for i := 1; i < len(ran); i++ {
		if ran[i-1] > ran[i] {
			t.Fatalf("%d ran before %d", ran[i-1], ran[i])
		}
	}
	if len(ran) != want || len(a.tasks) != 1 || a.armed != late.at {
		t.Fatalf("%d ran, want %d; %d are left", len(ran), want, len(a.tasks))
	}
}
