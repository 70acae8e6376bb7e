/*
 * cupti.h - what the GPU did for this process, recorded below Python by CUPTI.
 *
 * It runs in a candidate's own process: what it tells is evidence that code there could have tampered with, and is
 * used so (docs/trust.md). The library is loaded at run time, as the driver is; only the parts of its binary interface
 * that have been the same since CUDA 9 are declared. Calls of this header come from one thread; CUPTI itself may call
 * back from any.
 */
#ifndef HARNESS_CUPTI_H
#define HARNESS_CUPTI_H

#include <stdint.h>

#define CUPTI_MAGIC 0x50554356u /* "VCUP" in memory */
#define CUPTI_FORMAT 1
#define CUPTI_RECORDS_MAX 8192
#define CUPTI_NAMES_MAX 256
#define CUPTI_NAME_SIZE 512
#define CUPTI_MODULES_MAX 1024
#define CUPTI_IMAGE_MAX (4 << 20) /* bytes of an image that is hashed; larger ones are told by their size */

/* Kinds of a record, CUPTI's own numbers. */
#define CUPTI_MEMCPY 1
#define CUPTI_MEMSET 2
#define CUPTI_KERNEL 10

/* What harness_cupti_take() writes: this head, then the records, the modules, the names, without gaps. */
struct cupti_head {
    uint32_t magic, format;
    uint32_t n_records, n_modules, n_names;
    uint32_t lost; /* records, names or modules that found no room, or that CUPTI dropped */
    uint64_t reserved;
};

struct cupti_record {
    uint32_t kind;
    uint32_t name;             /* of a kernel: index of its name; else copyKind of a copy, 0 */
    uint64_t start_ns, end_ns; /* on CUPTI's clock */
    uint64_t bytes;            /* of a copy or a fill */
    uint32_t grid[3], block[3];
    uint32_t stream, correlation;
};

struct cupti_module {
    uint8_t hash[32]; /* SHA-256 of the image; zero where it was too large */
    uint64_t size_bytes;
};

struct cupti_name {
    char text[CUPTI_NAME_SIZE]; /* cut to fit; ends with NUL */
};

/* Most bytes that harness_cupti_take() writes. */
#define CUPTI_TAKE_MAX                                                             \
    (sizeof(struct cupti_head) + CUPTI_RECORDS_MAX * sizeof(struct cupti_record) + \
     CUPTI_MODULES_MAX * sizeof(struct cupti_module) + CUPTI_NAMES_MAX * sizeof(struct cupti_name))

/*
 * Find CUPTI: the one that this process has loaded already, else the first of paths (separated by ':') that loads.
 * Returns 0, or -ENOENT (none of them) or -ENOSYS (one, without a call that is needed).
 */
int harness_cupti_open(const char *paths);
/* From now on note each module that is loaded to the GPU. 0 or -EIO (the library's words). */
int harness_cupti_watch(void);
/* Begin (after forgetting what was recorded) or end recording activity. 0 or -EIO. The device is idle: synchronise first. */
int harness_cupti_record(int on);
/* What was recorded and which modules were seen. Returns bytes written, or -ENOSPC (size below CUPTI_TAKE_MAX). */
int64_t harness_cupti_take(void *out, uint64_t size);
/* CUPTI's own version number, 0 where none is open. */
uint32_t harness_cupti_version(void);

#endif
