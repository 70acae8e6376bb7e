#include "server/store/readers.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include <utlist.h>

#include "server/store/backend.h"

/*
 * Theory of operation. Requests wait in one list for whichever thread is free; two threads are enough to let a short read
 * pass a long one. A request is one transaction, so that what it reads is of one instant, and its snapshot is given up
 * at its end. A request that is made after the callback of a write sees that write.
 *
 * A thread is woken once for all that a turn of the loop asks for, by an idle handle (as writer.c does): waking one
 * costs more than a short read. While it reads, another takes what is left.
 */

struct request {
    struct request *prev, *next;
    store_read_cb *read_cb;
    store_read_done_cb *done_cb;
    void *arg;
};

struct reading_thread {
    struct readers *all;
    pthread_t thread;
    struct store_reader *reader;
};

struct readers {
    uv_loop_t *loop;
    uv_async_t async;
    uv_idle_t idle; /* active until a thread is woken for what was asked */
    struct reading_thread threads[READERS_THREADS];
    int wanted, n; /* threads: to be, and that run */
    bool is_finished;
    int handles_open;
    size_t under_way;

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t wake;
    struct request *asked, *done;
    bool is_stopping;
};

static void *
thread_main(void *arg)
{
    struct reading_thread *t = arg;
    struct readers *r = t->all;

    pthread_mutex_lock(&r->mutex);
    for (;;) {
        struct request *q = r->asked;
        if (!q && r->is_stopping)
            break;
        if (!q) {
            pthread_cond_wait(&r->wake, &r->mutex);
            continue;
        }
        DL_DELETE(r->asked, q);
        if (r->asked)
            pthread_cond_signal(&r->wake);
        pthread_mutex_unlock(&r->mutex);
        t->reader->ops->begin(t->reader);
        q->read_cb(q->arg, t->reader);
        t->reader->ops->end(t->reader);
        pthread_mutex_lock(&r->mutex);
        DL_APPEND(r->done, q);
        uv_async_send(&r->async);
    }
    pthread_mutex_unlock(&r->mutex);
    return NULL;
}

/* A callback may ask for another read. */
static void
deliver(struct readers *r)
{
    struct request *q, *next, *all;

    pthread_mutex_lock(&r->mutex);
    all = r->done;
    r->done = NULL;
    pthread_mutex_unlock(&r->mutex);
    DL_FOREACH_SAFE(all, q, next)
    {
        if (--r->under_way == 0 && !r->is_finished)
            uv_unref((uv_handle_t *)&r->async);
        q->done_cb(q->arg);
        free(q);
    }
}

static void
async_cb(uv_async_t *async)
{
    deliver(async->data);
}

static void
idle_cb(uv_idle_t *idle)
{
    uv_idle_stop(idle);
    pthread_cond_signal(&((struct readers *)idle->data)->wake);
}

static int
start_threads(struct readers *r, struct store_backend *b, struct error *err)
{
    sigset_t all, before;
    int rc = 0;

    sigfillset(&all); /* signals belong to the loop's thread */
    pthread_sigmask(SIG_BLOCK, &all, &before);
    while (rc == 0 && r->n < r->wanted) {
        struct reading_thread *t = &r->threads[r->n];
        t->all = r;
        rc = b->ops->reader_new(b, &t->reader, err);
        if (rc != 0)
            break;
        int failed = pthread_create(&t->thread, NULL, thread_main, t);
        if (failed) {
            t->reader->ops->free(t->reader);
            rc = error_set(err, ERR_SYS, "start a thread that reads the store: error %d", failed);
        } else {
            r->n++;
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

int
readers_new(uv_loop_t *loop, struct store_backend *b, int threads, struct readers **out, struct error *err)
{
    struct readers *r = calloc(1, sizeof(*r));

    *out = NULL;
    if (!r)
        return error_set(err, ERR_NOMEM, "no memory for the store's readers");
    r->loop = loop;
    r->wanted = threads;
    int rc = uv_async_init(loop, &r->async, async_cb);
    if (rc < 0) {
        free(r);
        return error_set(err, ERR_SYS, "make the readers' async handle: %s", uv_strerror(rc));
    }
    uv_idle_init(loop, &r->idle); /* cannot fail */
    r->handles_open = 2;
    r->async.data = r->idle.data = r;
    uv_unref((uv_handle_t *)&r->async); /* it holds the loop only while a read is under way */
    uv_unref((uv_handle_t *)&r->idle);
    pthread_mutex_init(&r->mutex, NULL);
    pthread_cond_init(&r->wake, NULL);
    rc = start_threads(r, b, err);
    if (rc != 0) {
        readers_free(r);
        return rc;
    }
    *out = r;
    return 0;
}

void
readers_finish(struct readers *r)
{
    if (r->is_finished)
        return;
    r->is_finished = true;
    pthread_mutex_lock(&r->mutex);
    r->is_stopping = true;
    pthread_cond_broadcast(&r->wake);
    pthread_mutex_unlock(&r->mutex);
    for (int i = 0; i < r->n; i++) {
        pthread_join(r->threads[i].thread, NULL);
        r->threads[i].reader->ops->free(r->threads[i].reader);
    }
    deliver(r);
}

static void
closed_cb(uv_handle_t *handle)
{
    ((struct readers *)handle->data)->handles_open--;
}

void
readers_free(struct readers *r)
{
    if (!r)
        return;
    readers_finish(r);
    uv_close((uv_handle_t *)&r->async, closed_cb);
    uv_close((uv_handle_t *)&r->idle, closed_cb);
    while (r->handles_open > 0)
        uv_run(r->loop, UV_RUN_NOWAIT);
    pthread_cond_destroy(&r->wake);
    pthread_mutex_destroy(&r->mutex);
    free(r);
}

int
readers_put(struct readers *r, store_read_cb *read_cb, store_read_done_cb *done_cb, void *arg,
            struct error *err)
{
    if (r->is_finished)
        return error_set(err, ERR_UNAVAILABLE, "the store is being closed");
    struct request *q = malloc(sizeof(*q));
    if (!q)
        return error_set(err, ERR_NOMEM, "no memory to ask the store");
    *q = (struct request){ .read_cb = read_cb, .done_cb = done_cb, .arg = arg };
    if (r->under_way++ == 0)
        uv_ref((uv_handle_t *)&r->async);
    pthread_mutex_lock(&r->mutex);
    DL_APPEND(r->asked, q);
    pthread_mutex_unlock(&r->mutex);
    uv_idle_start(&r->idle, idle_cb);
    return 0;
}
