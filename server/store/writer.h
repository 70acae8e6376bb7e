/*
 * writer.h - the queue of writes and the thread that makes them: it takes all queued writes, has the back end commit
 * them as one transaction, and returns the outcomes to the loop. It depends neither on the database nor on the kind of
 * write.
 */
#ifndef STORE_WRITER_H
#define STORE_WRITER_H

#include <stdbool.h>
#include <stddef.h>

#include <uv.h>

#include "common/error.h"
#include "server/store/backend.h"

/* One queued write. */
struct write {
    struct write *prev, *next;
    change_fn *
        change; /* made inside a savepoint, on the writer's thread; perhaps twice (after a rolled back transaction) */
    void *what;                    /* to change: memory of the write */
    void (*free)(struct write *w); /* loop thread */
    struct piece *pieces;          /* further memory that it owns (writes.c) */
    bool is_short;                 /* there was no memory for a piece */
    size_t weight;                 /* bytes that it keeps in memory */
    bool is_new_work;              /* refused first when the queue is long */
    int rows;                      /* rows it writes, for the figures */
    store_done_cb *cb;             /* may be NULL */
    void *arg;
    int code;
    struct error error;
};

struct writer;

/*
 * Start the thread.
 *   b     borrowed until writer_free(); its writes are made by the thread alone meanwhile
 *   limit most writes that are under way; what finishes work has as many again for itself
 * Returns 0, ERR_NOMEM or ERR_SYS. Loop thread, as everything here.
 */
int writer_new(uv_loop_t *loop, struct store_backend *b, size_t limit, struct writer **out,
               struct error *err);

/*
 * Commit the queued writes, run their callbacks, end the thread; later writes are refused. Not from a callback of a
 * write.
 */
void writer_finish(struct writer *w);
/*
 * The same if that was not done. Not from a callback of the loop: it runs the loop until its handle is closed. NULL is
 * fine.
 */
void writer_free(struct writer *w);

/* Queue a write: taken, also when it is refused. 0, ERR_FULL, or ERR_UNAVAILABLE (the store is being closed). */
int writer_put(struct writer *w, struct write *write, struct error *err);

/* A write failed for the disk or the database, and none has succeeded since. */
bool writer_is_failing(const struct writer *w);
/* Commits reported to the loop: later reads see them all. */
int64_t writer_commits(const struct writer *w);
/* As store_trouble(), store_writing_ms(). */
const char *writer_trouble(const struct writer *w);
int64_t writer_writing_ms(struct writer *w);
/* Fills all but wal_bytes. */
void writer_figures(struct writer *w, struct store_figures *out);

#endif
