/*
 * doorbell.h - both ends of the page by which a referee asks a child to make its next call (proto/worker.h).
 *
 * Theory of operation. The referee owns the first cache line, the child the rest. A ring is: write set and calls,
 * release-increment `bell`, wake its futex. An answer is: write reply and status, release-store `answer`, wake its
 * futex. Each side spins first, because a futex sleep adds several microseconds to the measured time, and sleeps when
 * spinning was too long, so that a waiting child does not hold a core. The child can write the whole page: a value that
 * the referee reads here only starts its own check, every size is read once and bounded, and no loop depends on a value
 * that the child controls.
 *
 * One thread at each end.
 */
#ifndef HARNESS_DOORBELL_H
#define HARNESS_DOORBELL_H

#include <stddef.h>
#include <stdint.h>

#include "proto/worker.h"
#include "server/harness/native/harness.h"

/* A sealed memfd of DOORBELL_BYTES, all zero. Returns the descriptor (given: close()) or < 0. */
HARNESS_API int harness_doorbell_create(void);

/* Map it; NULL if the descriptor is not such a page. Given: harness_doorbell_unmap(). The descriptor may be closed. */
HARNESS_API struct doorbell *harness_doorbell_map(int fd);
HARNESS_API void harness_doorbell_unmap(struct doorbell *page); /* NULL is fine */

/* --- the child's end --- */

/*
 * Wait until bell differs from seen (0 at first): spins for spin_ns, then sleeps up to timeout_ns in all (< 0: no
 * limit). out: the bell, set, calls and sets. Returns 0, -ETIMEDOUT, or -EINTR when a signal handler ran.
 */
HARNESS_API int harness_doorbell_wait(struct doorbell *page, uint32_t seen, int64_t spin_ns,
                                      int64_t timeout_ns, uint32_t out[4]);

/* Put the reply of n bytes (<= DOORBELL_REPLY_MAX) down, borrowed; the generation grows only if they differ from the
   last. Returns 0 or -EMSGSIZE. */
HARNESS_API int harness_reply_write(struct doorbell *page, const void *bytes, size_t n);

/* Say that this bell was answered. status: enum doorbell_status; events_ns, host_ns: the child's own times, 0: none. */
HARNESS_API void harness_doorbell_answer(struct doorbell *page, uint32_t bell, uint32_t status,
                                         uint64_t events_ns, uint64_t host_ns);

/* --- the referee's end --- */

/* Ring: returns the bell to await. calls >= 1; sets >= 1. */
HARNESS_API uint32_t harness_doorbell_ring(struct doorbell *page, uint32_t set, uint32_t calls,
                                           uint32_t sets);

/*
 * Wait for the answer to this bell: spins for spin_ns, then sleeps in slices of 5 ms, between which it looks whether
 * the process of pidfd (< 0: none) still lives; timeout_ns bounds it all.
 * Returns 0, -ETIMEDOUT, or -ESRCH: the child is dead and has not answered.
 */
HARNESS_API int harness_doorbell_await(struct doorbell *page, uint32_t bell, int pidfd, int64_t spin_ns,
                                       int64_t timeout_ns);

/* The child's values in its answer: claims, each read once. Any pointer may be NULL. */
HARNESS_API void harness_doorbell_claims(const struct doorbell *page, uint32_t *status, uint32_t *generation,
                                         uint64_t *events_ns, uint64_t *host_ns);

/*
 * Copy the reply out: at most cap bytes. generation is read before the bytes.
 * Returns the number of bytes, or -EPROTO when the child's size is beyond the page or cap.
 */
HARNESS_API int harness_reply_read(const struct doorbell *page, char *out, size_t cap, uint32_t *generation);

#endif
