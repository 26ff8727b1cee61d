/* transcript.h - a story of ops and what they brought about, checked line by line.
 *
 *   transcript((const char *const[]){
 *       "  0 acquire db ann ttl=100          -> granted ann #1 100ms",
 *       " 10 acquire db bob ttl=50 wait=500  -> (queued bob ticket=2 place=1 500ms)",
 *       "100 tick                            -> (expired ann #1 ttl), granted bob #3 ... @2",
 *       NULL,
 *   });
 *
 * The words are those of text_format.h; the n-th line's asker is n. `-> -` is: nothing
 * happened. After every line the op has gone through its binary form, and the machine through a
 * snapshot with another hash key: every story is a test of those as well. */
#ifndef BELAY_TESTS_TRANSCRIPT_H
#define BELAY_TESTS_TRANSCRIPT_H

/* Fails the running cmocka test, with every line that differs. */
void transcript(const char *const lines[]);
#endif
