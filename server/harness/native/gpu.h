/*
 * gpu.h - one GPU, through the driver, in its primary context, so that torch in the same process shares all of it.
 *
 * Addresses are device addresses as integers. Fills and copies are queued on the default stream, in order with torch's
 * default stream; harness_gpu_sync() waits for them. One thread. Before anything else: harness_gpu_init().
 */
#ifndef HARNESS_GPU_H
#define HARNESS_GPU_H

#include <stdint.h>

#include "server/harness/native/harness.h"

/*
 * Make (or join) the primary context of a device and make it current for the thread. Calling it again for the same device is fine and makes the context current for another thread. 0 or < 0.
 */
HARNESS_API int harness_gpu_init(int ordinal);
HARNESS_API int harness_gpu_pci_bus_id(char *out, uint32_t cap); /* "0000:19:00.0" */

/*
 * GPU memory that another process may map: at least size bytes.
 *   fd      given: close() once it is sent; possession of it is the right to map
 *   ptr     where it is mapped here; actual: its size, a multiple of the granularity
 *   handle  for harness_gpu_arena_free()
 */
HARNESS_API int harness_gpu_arena_create(uint64_t size, int *fd, uint64_t *ptr, uint64_t *actual,
                                         uint64_t *handle);
/* Map another process' arena; size is its actual size. The descriptor is borrowed. */
HARNESS_API int harness_gpu_arena_import(int fd, uint64_t size, uint64_t *ptr, uint64_t *handle);
/* Unmap and let go; the memory is free once every process has. size: actual. */
HARNESS_API int harness_gpu_arena_free(uint64_t ptr, uint64_t size, uint64_t handle);

/* ptr and bytes: multiples of 4. */
HARNESS_API int harness_gpu_fill32(uint64_t ptr, uint32_t pattern, uint64_t bytes);
HARNESS_API int harness_gpu_copy(uint64_t to, uint64_t from, uint64_t bytes);
HARNESS_API int harness_gpu_sync(void); /* the whole context */

/* A private buffer to wash the L2 cache with; bytes 0: twice its size. Again with no more: fine. */
HARNESS_API int harness_gpu_flush_setup(uint64_t bytes);
/* Fill it, end what keeps lines in L2, and wait until that is done. */
HARNESS_API int harness_gpu_flush(void);

/* --- the canary: a kernel with a known time, by which the referee sees whether it has the GPU to itself --- */

HARNESS_API int harness_canary_setup(void); /* again is fine */
/* Launch it on a stream of its own and wait; *ns: from the launch to its end, by the host's clock. A step takes some
   20 ns. steps: 1 or more. */
HARNESS_API int harness_canary_run(uint32_t steps, int64_t *ns);
/* The same in two halves: launch it and return; wait until the last one has ended. */
int gpu_canary_start(uint32_t steps);
int gpu_canary_wait(void);

/* --- the pause: a kernel that does nothing for so long by the GPU's clock, on the default stream --- */

HARNESS_API int harness_pause_setup(void); /* again is fine */
/* Launch it and return. ns: 1 or more. */
HARNESS_API int harness_pause(uint64_t ns);

/* --- the gate: work queued after it begins at the call of harness_gate_open(), or most_ns after its start --- */

HARNESS_API int harness_gate_setup(void); /* again is fine */
/* Also ends what was to persist in the L2 cache. 0 or a negative errno. */
HARNESS_API int harness_gate(uint64_t most_ns);
HARNESS_API int harness_gate_open(void); /* all that were queued */

/* --- the gather: n elements of 1, 2, 4 or 8 bytes from anywhere into 8-byte slots, by one launch --- */

/* For at most `most` elements. It may be called again with no more. */
HARNESS_API int harness_gather_setup(uint32_t most);
/* ptrs[i]: aligned to widths[i]; both copied to the GPU before it returns. */
HARNESS_API int harness_gather_set(const uint64_t *ptrs, const uint32_t *widths, uint32_t n);
/* Launch on a stream of its own and wait. n as last set; 0 is fine and does nothing. */
HARNESS_API int harness_gather_run(void);
/* The slots of the last run, upper bytes zero. n <= what was set. */
HARNESS_API int harness_gather_read(uint64_t *out, uint32_t n);

/* For the heap: the driver's own allocator, in the current context. */
int gpu_alloc(uint64_t bytes, uint64_t *out);
int gpu_free(uint64_t at);

#endif
