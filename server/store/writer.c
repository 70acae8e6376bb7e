/*
 * Theory of operation. The loop thread gathers writes in `fresh`, and before
 * the loop next waits hands all of them to `queued`; the writer's thread takes
 * that whole list, commits it, appends it to `finished` and rings the async
 * handle; the loop runs the callbacks in the order of the calls. So a
 * transaction is as large as what came in during the one before: no timer, no
 * added delay for a lone write. (Waking the writer at once for the first of
 * several would make that one a transaction of its own.)
 *
 * What hands over is an idle handle, since the loop never sleeps while one is
 * active. A prepare handle would be too late for a write that another prepare
 * callback makes: libuv runs it a turn later, and the loop sleeps in between.
 *
 * Each write has its own savepoint, so that one that fails leaves its
 * neighbours alone. A full disk may cost the whole transaction: then each
 * write is tried again in a transaction of its own, and only those that fail
 * there have failed. A transaction that cannot even begin, since another process
 * holds the database, fails all of them: each would wait for it as long again.
 */
#include "server/store/writer.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include <utlist.h>

#include "common/clock.h"
#include "common/log.h"
#include "server/store/backend.h"

#define TRIES 8 /* of a transaction that is lost without an error of its writes */
#define WRITER_WEIGHT_MAX ((size_t)256 * 1024 * 1024)

struct writer {
    struct store_backend *backend;
    pthread_t thread;
    uv_async_t async;

    /* loop thread only */
    uv_loop_t *loop;
    uv_idle_t idle; /* active while fresh is not empty */
    struct write *fresh;
    size_t limit, under_way, weight;
    int64_t commits_told; /* when callbacks last began to run; some of the next may be among them */
    int handles_open;
    bool is_closing, is_delivering, is_failing, is_full;

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t wake;
    struct write *queued, *finished;
    bool is_stopping;
    int64_t commits, rows_written;
    double commit_ms_last, commit_ms_max;
    int64_t begun_ns; /* of the transaction that is under way; 0: none is */
    struct histogram commit_seconds;
};

/* Move all of `from` to the end of `to`. */
static void
move(struct write **from, struct write **to)
{
    DL_CONCAT(*to, *from);
    *from = NULL;
}

/* --- the writer's thread --- */

static int
apply_one(struct writer *w, struct write *write)
{
    struct store_backend *b = w->backend;
    int rc = b->ops->save(b, &write->error);

    if (rc == 0)
        rc = write->change(b, write->what, &write->error);
    if (rc == 0)
        rc = b->ops->keep(b, &write->error);
    else if (b->ops->is_open(b))
        b->ops->undo(b);
    write->code = rc;
    return rc;
}

/*
 * Apply the writes from first up to (not with) end in one transaction. Returns
 * 0 once it is durable; else nothing of it is stored, and err says why.
 */
static int
transact(struct writer *w, struct write *first, struct write *end, bool *is_begun, struct error *err)
{
    struct store_backend *b = w->backend;
    int rc = b->ops->begin(b, err);

    *is_begun = rc == 0;
    if (rc < 0)
        return rc;
    for (struct write *one = first; one != end; one = one->next) {
        if (apply_one(w, one) < 0 && !b->ops->is_open(b)) { /* all of it was rolled back */
            *err = one->error;
            return one->code;
        }
    }
    rc = b->ops->commit(b, err);
    if (rc < 0 && b->ops->is_open(b))
        b->ops->rollback(b);
    return rc;
}

static void
note_commit(struct writer *w, const struct write *first, const struct write *end, int64_t began_ns)
{
    double ms = (double)(clock_monotonic_ns() - began_ns) / 1e6;
    int64_t rows = 0;
    bool is_probe = true; /* which writes no rows, and does not count as a commit */

    for (const struct write *one = first; one != end; one = one->next) {
        rows += one->code == 0 ? one->rows : 0;
        is_probe = is_probe && one->rows == 0;
    }
    if (is_probe)
        return;
    pthread_mutex_lock(&w->mutex);
    w->commits++;
    w->rows_written += rows;
    w->commit_ms_last = ms;
    histogram_add(&w->commit_seconds, &histogram_seconds, ms / 1000);
    if (ms > w->commit_ms_max)
        w->commit_ms_max = ms;
    pthread_mutex_unlock(&w->mutex);
}

static void
note_begun(struct writer *w, int64_t now_ns)
{
    pthread_mutex_lock(&w->mutex);
    w->begun_ns = now_ns;
    pthread_mutex_unlock(&w->mutex);
}

/* Where the transaction was lost, since its connection was, it is made again. */
static int
commit(struct writer *w, struct write *first, struct write *end, bool *is_begun, struct error *err)
{
    int64_t began_ns = clock_monotonic_ns();

    note_begun(w, began_ns);
    int rc = transact(w, first, end, is_begun, err);
    for (int i = 1; i < TRIES && rc == ERR_UNAVAILABLE && *is_begun; i++)
        rc = transact(w, first, end, is_begun, err);
    note_begun(w, 0);
    if (rc == ERR_UNAVAILABLE && *is_begun) {
        log_warn("store", "given up after %d tries: %s", TRIES, err->text);
        rc = error_set(err, ERR_UNAVAILABLE, "the store is busy: try again later");
    }
    if (rc == 0)
        note_commit(w, first, end, began_ns);
    return rc;
}

/* From first up to (not with) end. */
static void
fail(struct write *first, const struct write *end, int rc, const struct error *err)
{
    for (struct write *one = first; one != end; one = one->next) {
        one->code = rc;
        one->error = *err;
    }
}

static void
commit_each(struct writer *w, struct write *first)
{
    bool is_begun = true;

    for (struct write *one = first; one && is_begun; one = one->next) {
        struct error err;
        int rc = commit(w, one, one->next, &is_begun, &err);
        if (rc < 0)
            fail(one, is_begun ? one->next : NULL, rc, &err);
    }
}

static void
commit_list(struct writer *w, struct write *first)
{
    struct error err;
    bool is_begun;
    int rc = commit(w, first, NULL, &is_begun, &err);

    if (rc < 0 && is_begun && first->next)
        commit_each(w, first);
    else if (rc < 0)
        fail(first, NULL, rc, &err);
}

static void *
writer_main(void *arg)
{
    struct writer *w = arg;
    struct write *mine = NULL;

    for (;;) {
        pthread_mutex_lock(&w->mutex);
        while (!w->queued && !w->is_stopping)
            pthread_cond_wait(&w->wake, &w->mutex);
        move(&w->queued, &mine);
        pthread_mutex_unlock(&w->mutex);
        if (!mine)
            return NULL;

        commit_list(w, mine);

        pthread_mutex_lock(&w->mutex);
        move(&mine, &w->finished);
        pthread_mutex_unlock(&w->mutex);
        uv_async_send(&w->async);
    }
}

/* --- the loop's thread --- */

/*
 * The caller gets each error; the log gets a line when a trouble begins and when it is over, however many writes fail.
 */
static void
note_outcome(struct writer *w, const struct write *write)
{
    const char *name = w->backend->name;

    if (write->code == ERR_STORE && !w->is_failing)
        log_error("store", "nothing can be written to %s: %s", name, write->error.text);
    else if (write->code == 0 && w->is_failing)
        log_info("store", "%s can be written again", name);
    if (write->code != 0 && write->code != ERR_STORE)
        return;
    w->is_failing = write->code != 0;
    w->is_full = w->is_failing && write->error.sys_errno == ENOSPC;
}

static void
deliver_one(struct writer *w, struct write *write)
{
    w->under_way--;
    note_outcome(w, write);
    w->weight -= write->weight;
    if (w->under_way == 0 && !w->is_closing)
        uv_unref((uv_handle_t *)&w->async);
    if (write->cb)
        write->cb(write->arg, write->code, &write->error);
    else if (write->code < 0)
        log_error(NULL, "a write that nobody waits for failed: %s", write->error.text);
    write->free(write);
}

static void
deliver(struct writer *w)
{
    struct write *mine = NULL, *write, *next;

    pthread_mutex_lock(&w->mutex);
    move(&w->finished, &mine);
    w->commits_told = w->commits;
    pthread_mutex_unlock(&w->mutex);
    w->is_delivering = true;
    DL_FOREACH_SAFE(mine, write, next)
    {
        deliver_one(w, write);
    }
    w->is_delivering = false;
}

static void
async_cb(uv_async_t *async)
{
    deliver(async->data);
}

static void
hand_over(struct writer *w)
{
    pthread_mutex_lock(&w->mutex);
    move(&w->fresh, &w->queued);
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->mutex);
}

static void
idle_cb(uv_idle_t *idle)
{
    uv_idle_stop(idle);
    hand_over(idle->data);
}

static int
start_thread(struct writer *w, struct error *err)
{
    sigset_t all, before;
    int rc;

    /* Signals belong to the loop's thread. */
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    rc = pthread_create(&w->thread, NULL, writer_main, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0)
        return error_set(err, ERR_SYS, "start the store's writer: error %d", rc);
    return 0;
}

static void
closed_cb(uv_handle_t *handle)
{
    struct writer *w = handle->data;

    w->handles_open--;
}

/* Close the handles and wait for it: memory of a handle that is closing must not go. */
static void
close_handles(struct writer *w)
{
    uv_close((uv_handle_t *)&w->async, closed_cb);
    uv_close((uv_handle_t *)&w->idle, closed_cb);
    while (w->handles_open > 0)
        uv_run(w->loop, UV_RUN_NOWAIT);
}

static void
writer_destroy(struct writer *w)
{
    close_handles(w);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->mutex);
    free(w);
}

int
writer_new(uv_loop_t *loop, struct store_backend *b, size_t limit, struct writer **out, struct error *err)
{
    struct writer *w = calloc(1, sizeof(*w));
    int rc;

    *out = NULL;
    if (!w)
        return error_set(err, ERR_NOMEM, "no memory for the store's writer");
    w->loop = loop;
    w->backend = b;
    w->limit = limit;
    rc = uv_async_init(loop, &w->async, async_cb);
    if (rc < 0) {
        free(w);
        return error_set(err, ERR_SYS, "make the store's async handle: %s", uv_strerror(rc));
    }
    uv_idle_init(loop, &w->idle); /* cannot fail */
    w->handles_open = 2;
    w->async.data = w;
    w->idle.data = w;
    uv_unref((uv_handle_t *)&w->async); /* it holds the loop only while a write is under way */
    uv_unref((uv_handle_t *)&w->idle);
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->wake, NULL);
    rc = start_thread(w, err);
    if (rc < 0) {
        writer_destroy(w);
        return rc;
    }
    *out = w;
    return 0;
}

void
writer_finish(struct writer *w)
{
    assert(!w->is_delivering);
    if (w->is_closing)
        return;
    w->is_closing = true;
    if (w->backend->ops->hurry)
        w->backend->ops->hurry(w->backend);
    hand_over(w);
    pthread_mutex_lock(&w->mutex);
    w->is_stopping = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->mutex);
    pthread_join(w->thread, NULL);
    deliver(w);
}

void
writer_free(struct writer *w)
{
    if (!w)
        return;
    writer_finish(w);
    writer_destroy(w);
}

static bool
is_away(const struct writer *w)
{
    return w->backend->ops->is_away && w->backend->ops->is_away(w->backend);
}

static int
refusal(const struct writer *w, const struct write *write, struct error *err)
{
    size_t limit = write->is_new_work ? w->limit : 2 * w->limit;

    if (w->is_closing)
        return error_set(err, ERR_UNAVAILABLE, "the store is being closed");
    if (write->is_new_work && is_away(w))
        return error_set(err, ERR_UNAVAILABLE, "the database is away: try again later");
    if (w->under_way >= limit)
        return error_set(err, ERR_FULL, "%zu writes are waiting for the disk: the limit is %zu", w->under_way,
                         limit);
    if (write->is_new_work && w->under_way > 0 && w->weight + write->weight > WRITER_WEIGHT_MAX)
        return error_set(err, ERR_FULL, "%zu MiB are waiting for the disk: the limit is %zu", w->weight >> 20,
                         WRITER_WEIGHT_MAX >> 20);
    return 0;
}

int
writer_put(struct writer *w, struct write *write, struct error *err)
{
    int rc = refusal(w, write, err);

    if (rc < 0) {
        write->free(write);
        return rc;
    }
    if (w->under_way++ == 0)
        uv_ref((uv_handle_t *)&w->async);
    w->weight += write->weight;
    DL_APPEND(w->fresh, write);
    uv_idle_start(&w->idle, idle_cb);
    return 0;
}

bool
writer_is_failing(const struct writer *w)
{
    return w->is_failing || is_away(w);
}

const char *
writer_trouble(const struct writer *w)
{
    if (is_away(w))
        return "the database is away";
    if (!w->is_failing)
        return NULL;
    return w->is_full ? "the disk of the store is full" : "the store cannot be written: the log says why";
}

int64_t
writer_commits(const struct writer *w)
{
    return w->commits_told;
}

int64_t
writer_writing_ms(struct writer *w)
{
    pthread_mutex_lock(&w->mutex);
    int64_t begun_ns = w->begun_ns;
    pthread_mutex_unlock(&w->mutex);
    return begun_ns == 0 ? 0 : (clock_monotonic_ns() - begun_ns) / 1000000;
}

void
writer_figures(struct writer *w, struct store_figures *out)
{
    pthread_mutex_lock(&w->mutex);
    out->commits = w->commits;
    out->rows_written = w->rows_written;
    out->commit_ms_last = w->commit_ms_last;
    out->commit_seconds = w->commit_seconds;
    out->commit_ms_max = w->commit_ms_max;
    pthread_mutex_unlock(&w->mutex);
    out->queued_writes = (int64_t)w->under_way;
}
