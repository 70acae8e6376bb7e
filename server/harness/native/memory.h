/*
 * memory.h - shared memory whose size the peer cannot change.
 *
 * A memfd is sealed against shrinking and growing as soon as it has its size: a peer that could shorten it would make
 * any access to the missing pages end the process by SIGBUS.
 */
#ifndef HARNESS_MEMORY_H
#define HARNESS_MEMORY_H

#include <stdint.h>

#include "server/harness/native/harness.h"

/* A sealed memfd of size bytes (> 0), all zero, close-on-exec. Returns the descriptor (given: close()) or < 0. */
int harness_memfd(const char *name, uint64_t size);

/* The arena of a machine without a GPU: harness_memfd() under the name "arena". */
HARNESS_API int harness_arena_memfd(uint64_t size);

/*
 * Map size bytes of a sealed memfd from its start, shared, readable and writable. The descriptor may be closed after.
 * Returns NULL (harness_error() says why) unless it is exactly size bytes and sealed against shrinking.
 * Given: harness_unmap() with the same size.
 */
HARNESS_API void *harness_map(int fd, uint64_t size);
HARNESS_API void harness_unmap(void *mapped, uint64_t size); /* NULL is fine */

#endif
