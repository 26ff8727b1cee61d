package belay

import (
	"container/heap"
	"math"
	"time"
)

// An instant is a moment of the clock that leases are measured by: nanoseconds since some start.
type instant int64

const never instant = math.MaxInt64

func (t instant) add(d time.Duration) instant { return t + instant(d) }

func (t instant) until() time.Duration { return time.Duration(t - now()) }

var start = time.Now()

func stoppedTimer(f func()) *time.Timer {
	t := time.AfterFunc(time.Hour, f)
	t.Stop()
	return t
}

// A task is something to do at its time.
type task struct {
	at    instant
	run   func()
	index int // in the agenda; -1: it is not there
}

func newTask(run func()) *task { return &task{run: run, index: -1} }

// An agenda runs tasks at their times. Its user locks it.
type agenda struct {
	tasks tasks
	alarm *alarm
	armed instant
}

func newAgenda(ring func()) *agenda {
	return &agenda{alarm: newAlarm(ring), armed: never}
}

// set adds or moves a task; never takes it off.
func (a *agenda) set(t *task, at instant) {
	t.at = at
	switch {
	case t.index >= 0 && at == never:
		heap.Remove(&a.tasks, t.index)
	case t.index >= 0:
		heap.Fix(&a.tasks, t.index)
	case at != never:
		heap.Push(&a.tasks, t)
	}
	a.arm()
}

// arm sets the alarm for the first task. An alarm that rings too early costs less than setting it
// again for every task that is taken off.
func (a *agenda) arm() {
	if len(a.tasks) > 0 && a.tasks[0].at < a.armed {
		a.armed = a.tasks[0].at
		a.alarm.set(a.armed)
	}
}

// ring runs what is due.
func (a *agenda) ring() {
	a.armed = 0 // set below, once
	for len(a.tasks) > 0 && a.tasks[0].at <= now() {
		heap.Pop(&a.tasks).(*task).run()
	}
	a.armed = never
	a.arm()
}

type tasks []*task

func (s tasks) Len() int           { return len(s) }
func (s tasks) Less(i, j int) bool { return s[i].at < s[j].at }
func (s tasks) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}
func (s *tasks) Push(t any) {
	t.(*task).index = len(*s)
	*s = append(*s, t.(*task))
}
func (s *tasks) Pop() any {
	last := len(*s) - 1
	t := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	t.index = -1
	return t
}
