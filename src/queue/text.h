/* text.h - text between processes and PostgreSQL. */
#ifndef BELAY_QUEUE_TEXT_H
#define BELAY_QUEUE_TEXT_H

#include "base/buf.h"

/* Appends `s` as text that PostgreSQL takes: what is not UTF-8, and NUL, becomes U+FFFD. */
void text_put_clean(struct buf *out, struct slice s);

/* PostgreSQL array literals: text_array_add() any number of times between begin and end. NULL
 * data is NULL. */
void text_array_begin(struct buf *out);
void text_array_add(struct buf *out, struct slice item);
void text_array_add_i64(struct buf *out, int64_t item);
void text_array_end(struct buf *out);

/* The next number of a literal such as {1,2,3}; false at its end. `*at` starts at the literal.
 */
bool text_array_next_i64(const char **at, int64_t *ret_v);

/* Appends `s`, which is UTF-8, as a JSON string with its quotes. */
void text_put_json(struct buf *out, struct slice s);

/* Appends an array literal of n random UUIDs. */
void text_put_uuids(struct buf *out, size_t n);

/* Appends "name", quoted as an identifier. */
void text_put_ident(struct buf *out, const char *name);
#endif
