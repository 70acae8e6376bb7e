/*
 * readers.h - the threads that read: each has a reader of its own, takes the oldest request, and returns the outcome to
 * the loop. They do not depend on the kind of request. Loop thread only.
 */
#ifndef STORE_READERS_H
#define STORE_READERS_H

#include "server/store/store.h"

struct readers;
struct store_backend;

#define READERS_THREADS 2 /* at most */

/* b is borrowed until readers_free(). 0, ERR_NOMEM, ERR_SYS or as the back end's reader_new(). */
int readers_new(uv_loop_t *loop, struct store_backend *b, int threads, struct readers **out,
                struct error *err);
/* Make the pending reads and run their callbacks, end the threads; later reads are refused. */
void readers_finish(struct readers *r);
/*
 * The same if that was not done. Not from a callback of the loop: it runs the loop until its handles are closed. NULL is
 * fine.
 */
void readers_free(struct readers *r);

/* As store_read(). */
int readers_put(struct readers *r, store_read_cb *read_cb, store_read_done_cb *done_cb, void *arg,
                struct error *err);

#endif
