/*
 * launch.h - load compiled kernels and launch them, as Triton's own launcher would (triton/backends/nvidia/driver.py,
 * release 3.6, is the source of the order of parameters and of the attributes).
 *
 * An image is a cubin that the kernel compiler made from a candidate's text: trusted to be what Triton makes of it,
 * and hostile in what it does when it runs. One thread, in the current context (harness_gpu_init()).
 */
#ifndef HARNESS_LAUNCH_H
#define HARNESS_LAUNCH_H

#include <stdint.h>

#include "server/harness/native/harness.h"

struct harness_image {
    uint64_t module;
    uint64_t function;
    int32_t spill_bytes; /* local memory of one thread */
};

/* How to launch; all of it from the image's own note, but for the grid. */
struct harness_launch {
    uint64_t function;
    uint32_t grid[3];      /* clusters, where there are any, else blocks; each 1 or more */
    uint32_t threads;      /* of one block */
    uint32_t cluster;      /* blocks of a cluster along x; 1: there is none */
    uint32_t shared_bytes; /* dynamic, of one block */
    uint32_t is_cooperative;
    uint32_t is_overlapping; /* may begin before the launch in front of it has ended (PDL) */
};

/*
 * Load a cubin and find its kernel.
 *   image         borrowed; a cubin for this device's architecture
 *   shared_bytes  dynamic shared memory that launches will ask for
 * Returns 0, -ENOMEM, or -EIO (no such kernel, or the device has less shared memory).
 */
HARNESS_API int harness_image_load(const void *image, const char *name, uint32_t shared_bytes,
                                   struct harness_image *out);
HARNESS_API int harness_image_free(uint64_t module);

/*
 * Queue one launch on the stream (0: the default one).
 *   arguments  borrowed: n addresses of the kernel's parameters, in order
 * Returns 0 or -EIO. An error of the kernel is reported by a later call.
 */
HARNESS_API int harness_launch(const struct harness_launch *how, uint64_t stream, void **arguments,
                               uint32_t n);

/* A tensor as the tensor memory accelerator sees it: sizes in elements, innermost dimension first. */
struct harness_tensor_map {
    uint64_t address;
    uint32_t rank;   /* 1 to 5 */
    int32_t type;    /* CUtensorMapDataType */
    int32_t swizzle; /* CUtensorMapSwizzle */
    int32_t fill;    /* CUtensorMapFloatOOBfill */
    uint64_t shape[5];
    uint64_t stride_bytes[5]; /* of dimension i + 1; rank - 1 of them */
    uint32_t box[5];
};

/* out: 128 bytes, aligned to 64. Returns 0 or -EIO. */
HARNESS_API int harness_tensor_map(const struct harness_tensor_map *what, void *out);

#endif
