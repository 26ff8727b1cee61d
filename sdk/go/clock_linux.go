package belay

import (
	"os"
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7 // it goes on while the machine is suspended; CLOCK_MONOTONIC does not

// now is the time of a clock that never goes back and never stands still.
func now() instant {
	var t syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&t)), 0)
	if errno != 0 {
		return instant(time.Since(start))
	}
	return instant(t.Nano())
}

// An alarm calls ring when its time has come, at once after the machine was suspended meanwhile:
// timers of the Go runtime would still wait for what was left of their time.
type alarm struct {
	file  *os.File // a timerfd; nil: no descriptor was left
	timer *time.Timer
}

const (
	tfdNonblock = syscall.O_NONBLOCK
	tfdCloexec  = syscall.O_CLOEXEC
	tfdAbstime  = 1
)

func newAlarm(ring func()) *alarm {
	fd, _, errno := syscall.Syscall(syscall.SYS_TIMERFD_CREATE, clockBoottime, tfdNonblock|tfdCloexec, 0)
	if errno != 0 {
		return &alarm{timer: stoppedTimer(ring)}
	}
	a := &alarm{file: os.NewFile(fd, "timerfd")}
	go func() {
		var count [8]byte
		for {
			if _, err := a.file.Read(count[:]); err != nil {
				return // closed
			}
			ring()
		}
	}()
	return a
}

func (a *alarm) set(at instant) {
	if a.file == nil {
		a.timer.Reset(time.Duration(at - now()))
		return
	}
	spec := struct{ interval, value syscall.Timespec }{value: syscall.NsecToTimespec(int64(max(at, 1)))}
	raw, err := a.file.SyscallConn()
	if err != nil {
		return // closed
	}
	_ = raw.Control(func(fd uintptr) {
		syscall.RawSyscall6(syscall.SYS_TIMERFD_SETTIME, fd, tfdAbstime, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
	})
}

func (a *alarm) close() {
	if a.file == nil {
		a.timer.Stop()
		return
	}
	_ = a.file.Close()
}
