//go:build !linux

package belay

import "time"

// now is the time of a clock that never goes back. On some systems it stands still while the
// machine is suspended.
func now() instant { return instant(time.Since(start)) }

// An alarm calls ring when its time has come.
type alarm struct{ timer *time.Timer }

func newAlarm(ring func()) *alarm { return &alarm{stoppedTimer(ring)} }

func (a *alarm) set(at instant) { a.timer.Reset(time.Duration(at - now())) }

func (a *alarm) close() { a.timer.Stop() }
