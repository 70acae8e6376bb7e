/*
 * scratch.h - private directories of children, and the compile caches that are
 * handed from one child to the next. What lies in them was written by foreign
 * code: nothing here follows a link.
 */
#ifndef WORKERS_SCRATCH_H
#define WORKERS_SCRATCH_H

#include <stdint.h>

#include <uv.h>

#include "common/error.h"

#define SCRATCH_PATH_SIZE 512
#define SCRATCH_NO_UID (-1)

/* Whether the root may be emptied. 0 (also where there is none), ERR_SYS, or ERR_INPUT: no directory, another's, or with what no daemon made. */
int scratch_check(const char *root, struct error *err);
/*
 * Make the root (0711) where it is missing and empty it. 0, ERR_CONFLICT (another daemon's children are in it), or as
 * scratch_check(). At start: blocks.
 *   held   given: a descriptor that keeps other daemons out as long as it is open; set where 0 is returned. May be NULL
 */
int scratch_prepare(const char *root, int *held, struct error *err);
/* Static: why children can write no files there (a full or read-only disk); NULL: they can. Does not wait. */
const char *scratch_trouble(const char *root);
/*
 * A fresh directory root/PREFIX-XXXXXX of mode 0700, owned by uid (SCRATCH_NO_UID: by us). The root is made where it has
 * gone. 0 or ERR_SYS.
 */
int scratch_make(const char *root, const char *prefix, int64_t uid, char out[SCRATCH_PATH_SIZE],
                 struct error *err);
/* Remove a directory with all that is in it, in libuv's pool. path is copied; what cannot be removed is logged. */
void scratch_remove(uv_loop_t *loop, const char *path);
/* The same, here and now: start and tests. 0 or ERR_SYS. */
int scratch_remove_now(const char *path, struct error *err);

/*
 * Move directory `from`, whose writer has ended, to `to`, and make it ours,
 * readable by every uid but writable by none: links, special files and hard
 * links are dropped, and it is refused beyond SCRATCH_CACHE_BYTES or _ENTRIES.
 * Runs in libuv's pool; cb on the loop with 0, ERR_NOTFOUND (no such
 * directory; a file or link in its place is removed), ERR_FULL or ERR_SYS. Paths are copied.
 */
#define SCRATCH_CACHE_BYTES (512LL << 20)
#define SCRATCH_CACHE_ENTRIES 20000
typedef void scratch_publish_cb(void *arg, int code, const struct error *err);
int scratch_publish(uv_loop_t *loop, const char *from, const char *to, scratch_publish_cb *cb, void *arg,
                    struct error *err);
int scratch_publish_now(const char *from, const char *to, struct error *err);

#endif
