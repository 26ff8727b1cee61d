// Package belay is the client of the Belay lock server: locks that are lost before anybody else
// can have them.
//
//	client, err := belay.New(belay.Config{}) // $BELAY_ADDR, or 127.0.0.1:7117
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//
//	held, err := client.Lock(ctx, "invoices", belay.TTL(30*time.Second))
//	if err != nil {
//		return err
//	}
//	defer held.Release()
//	return work(held.Context(), held.Fence())
//
// [Held.Context] ends when the lock is released, and when it is lost: the server says so, or it
// could not be renewed, and others may have it soon. Pass it to everything that needs the lock.
// Pass [Held.Fence] to what you write to, so that it can refuse a smaller number than it has seen:
// no lock server can stop a request that is already on its way.
//
// # Leases
//
// A lease is proven for its TTL from the moment when the request that was last answered was sent.
// On Linux the clock goes on while the machine is suspended (CLOCK_BOOTTIME); elsewhere it is the
// monotonic clock of Go. A lock without [TTL] lives as long as the session of the client, which is
// kept alive with one small request every ten seconds, however many locks there are. One with a
// TTL is renewed by itself, and needs both.
//
// After a stop of the process (SIGSTOP, a suspended machine) contexts end as soon as the process
// runs again; until they have, [Held.Held] and the Err method of [Held.Context] already say that
// the lease is over. Ask one of them directly before a step that must not be done twice.
//
// # Connections
//
// A client has one connection, and everything that is answered at once shares it: ten thousand
// goroutines may wait in line on it. Watches and transactions that wait have one of their own. If
// a connection breaks, or a server is silent, the client connects to this or another node of
// [Config].Addresses, attaches its session there, and sends again what was not answered. Requests
// that change something have an id, so they take effect once.
//
// When the program ends without [Client.Close], the server sees its connection close, and frees
// its locks at once.
//
// # Errors
//
// A [RefusedError], [ErrTimedOut] and a [DeadlockError] say that a lock is not yours; all three
// are [ErrNotAcquired]. A [ServerError] has the code of the server's answer. [ErrUnreachable] says
// that no server has answered, [ErrClosed] that the client was closed. When a context ends, the
// error is that of the context.
package belay
