/*
 * watch.h - the memory, shared memory included, and the files of a child and its descendants.
 *
 * A resource limit holds for one process and for private memory: it covers neither a shared mapping, nor a memfd, nor
 * the number of files, nor the sum over eight processes. A zygote therefore reads the use of its children every tenth
 * of a second. A control group does it better if the host delegates one (docs/sandbox.md).
 */
#ifndef HARNESS_WATCH_H
#define HARNESS_WATCH_H

#include <stdint.h>

#include "server/harness/native/harness.h"

/* Layout known to server/harness/shared/native.py. */
struct harness_usage {
    uint64_t memory_bytes; /* an upper bound; exact when the limit is near */
    uint64_t disk_bytes; /* of the scratch directory, and of files that are open and have no name any more */
    uint64_t files;      /* entries of the scratch directory */
    uint64_t descriptors;
    uint64_t processes;
};

enum harness_excess { HARNESS_WITHIN = 0, HARNESS_MEMORY = 1, HARNESS_DISK = 2, HARNESS_DESCRIPTORS = 3 };

/*
 * Look at the process of a pidfd and all below it in the process tree. scratch: its own directory, or NULL.
 * memory_bytes, disk_bytes: the limits; 0: none. Counts may end early once a limit is passed.
 * Returns an enum harness_excess, or -ESRCH (it is dead). Never waits; a sixth of a millisecond for an ordinary child.
 */
HARNESS_API int harness_watch(int pidfd, const char *scratch, uint64_t memory_bytes, uint64_t disk_bytes,
                              struct harness_usage *out);

#endif
