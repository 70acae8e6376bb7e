/*
 * heap.h - a child's allocations, served from its arena so that its outputs are where the referee can read them.
 *
 * harness_arena_malloc() and harness_arena_free() have the signatures that torch's pluggable CUDA allocator wants; put
 * behind a torch.cuda.MemPool they serve that pool's segments. First fit, multiples of 512 bytes, neighbours that are
 * free are joined. The bookkeeping is kept apart from the memory: the memory may be a GPU's. When the heap is
 * full the driver's own allocator serves instead ("spilled"), so that large intermediates work; an output that was
 * spilled lies outside the arena and must be copied into it. Any thread.
 */
#ifndef HARNESS_HEAP_H
#define HARNESS_HEAP_H

#include <stdint.h>
#include <sys/types.h>

#include "server/harness/native/harness.h"

/*
 * Serve from [base, base + size) from now on, base being a multiple of 512. Returns 0, -EINVAL, -ENOMEM, or -EBUSY
 * while blocks of an earlier heap are in use.
 */
HARNESS_API int harness_heap_set(uint64_t base, uint64_t size);

HARNESS_API uint64_t harness_heap_used(void); /* bytes handed out of the heap now */

/* NULL when neither the heap nor the driver has size bytes. device and stream are torch's, and not looked at. */
HARNESS_API void *harness_arena_malloc(ssize_t size, int device, void *stream);
/* A pointer that is not one of ours is ignored and reported on stderr: torch allows no refusal. size is ignored. */
HARNESS_API void harness_arena_free(void *ptr, ssize_t size, int device, void *stream);

/*
 * For a second pool, whose blocks are in the place where they will be read: harness_place_malloc() serves
 * [base, base + size) once, from its beginning, base being a multiple of 512; a block that does not fit any more is
 * NULL. A caller that sets another place must not use blocks of the one before. Returns 0 or -EINVAL.
 */
HARNESS_API int harness_place_set(uint64_t base, uint64_t size);
HARNESS_API void *harness_place_malloc(ssize_t size, int device, void *stream);
HARNESS_API void harness_place_free(void *ptr, ssize_t size, int device, void *stream); /* does nothing */

#endif
