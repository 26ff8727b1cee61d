/* feed.h - bounded history of news, for watchers that come, go and come back.
 *
 * Holds copies of the newest `cap` events. Numbers have no gaps. They mean nothing to another
 * feed: each starts somewhere else, far from all others, so that one that is asked about a
 * number of another does not have it. Loop thread only. Invariant: next - first <= cap, and
 * event N lives in slot N % cap. */
#ifndef BELAY_EVENTS_FEED_H
#define BELAY_EVENTS_FEED_H

#include "base/err.h"
#include "base/list.h"
#include "machine/event.h"

#include <stddef.h>
#include <stdint.h>

struct feed; /* fields live in feed.c */

/* A watcher wants to hear that there is news. `wake` is called on each append with the event
 * as it happened (borrowed), or NULL when something is missing; it must not change the feed.
 * One that needs the history reads it with feed_get() when it is ready to (back-pressure is the
 * watcher's). */
struct watcher {
    struct list node; /* list_init() it first */
    void (*wake)(struct watcher *w, const struct event *ev);
};

struct feed *feed_open(size_t cap); /* cap > 0; never NULL */
void feed_close(struct feed *f);    /* NULL is allowed */
/* The first number, 1 if nobody says; before the first event. */
void feed_start_at(struct feed *f, uint64_t number);

/* The time of day, to note with each event; without it none is noted. */
void feed_set_clock(struct feed *f, uint64_t (*wall_ms)(void));
uint64_t feed_first(const struct feed *f); /* the number of the oldest event that is kept */

uint64_t feed_append(struct feed *f, const struct event *ev); /* copies; returns its number */
/* The state was replaced: what comes does not follow what is here. Every number up to here is
 * gone, also for watchers that have read everything. */
void feed_gap(struct feed *f);
/* Borrows event `seq`, valid until the next call of feed_get() or feed_append(): who, what,
 * where and when, without bodies and rows. seq < feed_next(). BELAY_ERR_GONE: dropped already,
 * the watcher must read a full state first. */
BELAY_MUST_CHECK enum belay_err feed_get(struct feed *f, uint64_t seq,
                                         const struct event **ret_ev);
uint64_t feed_next(const struct feed *f);
void feed_watch(struct feed *f, struct watcher *w);
void feed_unwatch(struct watcher *w); /* any number of times */
#endif
