/**
 * The client of the Belay lock server: locks that are lost before anybody else can have them.
 *
 * <pre>{@code
 * try (Client client = Client.create(); // $BELAY_ADDR, or 127.0.0.1:7117
 *         Held held = client.lock("invoices").ttl(ofSeconds(30)).acquire()) {
 *     save(held.fence());
 * }
 * }</pre>
 *
 * <h2>Leases</h2>
 *
 * <p>A lease is proven for its TTL from the moment when the request that was last answered was sent, by
 * {@link java.lang.System#nanoTime}. A lock without a TTL lives as long as the session of the client, which is kept
 * alive with one small request every ten seconds, however many locks there are. One with a TTL is renewed by itself,
 * and needs both. What could not be renewed is lost a tenth of the lease before somebody else can have it.
 *
 * <p>After a stop of the process (SIGSTOP, a long collection of garbage) {@link belay.Held#isHeld} says at once that
 * the lease is over. A machine that was suspended is another matter on Linux: {@code nanoTime} stands still
 * meanwhile, and Java has no other clock for it. There, what you write to must compare fences.
 *
 * <h2>Threads</h2>
 *
 * <p>All threads may use a client, and what it has made. What waits in line ({@code acquire}, {@code convert}, a
 * transaction) can be interrupted, and gives its place up then; everything else answers within the time-out of the
 * client, and leaves the thread's interrupt status as it is. Callbacks and the stages of futures run in one thread of
 * the client; they must not block.
 */
package belay;
