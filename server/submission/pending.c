#include "server/submission/pending.h"

#include <stdlib.h>

#include <utlist.h>

#include "server/workers/handle.h"

#define RETRY_MS 1000

struct pending {
    uv_loop_t *loop;
    uv_timer_t timer;
    struct pending_retry *retries;
    void (*changed_cb)(void *arg);
    void *arg;
    int64_t writes, in_pool;
    enum pending_phase phase;
};

struct pending *
pending_new(uv_loop_t *loop, void (*changed_cb)(void *arg), void *arg)
{
    struct pending *p = calloc(1, sizeof(*p));

    if (p) {
        *p = (struct pending){ .loop = loop, .changed_cb = changed_cb, .arg = arg };
        uv_timer_init(loop, &p->timer);
        p->timer.data = p;
    }
    return p;
}

void
pending_free(struct pending *p)
{
    if (p)
        uv_close((uv_handle_t *)&p->timer, handle_free_cb);
}

void
pending_enter(struct pending *p, enum pending_phase phase)
{
    p->phase = phase > p->phase ? phase : p->phase;
}

bool
pending_is(const struct pending *p, enum pending_phase phase)
{
    return p->phase >= phase;
}

bool
pending_is_draining(const struct pending *p)
{
    return pending_is(p, PENDING_DRAINING);
}

void
pending_begin_write(struct pending *p)
{
    p->writes++;
}

void
pending_end_write(struct pending *p)
{
    p->writes--;
    pending_check(p);
}

static void
work_cb(uv_work_t *work)
{
    struct pending_work *w = work->data;
    w->work_cb(w->arg);
}

static void
done_cb(uv_work_t *work, int status)
{
    const struct pending_work *w = work->data;
    struct pending *p = w->pending;

    (void)status; /* the work is never cancelled */
    w->done_cb(w->arg);
    p->in_pool--;
    pending_end_write(p);
}

void
pending_work(struct pending *p, struct pending_work *w, void (*in_pool)(void *arg), void (*done)(void *arg),
             void *arg)
{
    *w = (struct pending_work){
        .work.data = w, .pending = p, .work_cb = in_pool, .done_cb = done, .arg = arg
    };
    pending_begin_write(p);
    p->in_pool++;
    if (!pending_is(p, PENDING_STOPPED)) {
        uv_queue_work(p->loop, &w->work, work_cb, done_cb);
        return;
    }
    work_cb(&w->work);
    done_cb(&w->work, 0);
}

static void
retry_cb(uv_timer_t *timer)
{
    struct pending *p = timer->data;
    struct pending_retry *r, *next, *list = p->retries;

    p->retries = NULL;
    DL_FOREACH_SAFE(list, r, next)
    {
        DL_DELETE(list, r);
        r->prev = NULL;
        r->cb(r->arg);
    }
}

void
pending_retry(struct pending *p, struct pending_retry *r, void (*cb)(void *arg), void *arg)
{
    if (r->prev)
        return;
    r->cb = cb;
    r->arg = arg;
    DL_APPEND(p->retries, r);
    if (!uv_is_active((uv_handle_t *)&p->timer))
        uv_timer_start(&p->timer, retry_cb, RETRY_MS, 0);
}

void
pending_check(struct pending *p)
{
    p->changed_cb(p->arg);
}

int64_t
pending_writes(const struct pending *p)
{
    return p->writes;
}

int64_t
pending_in_pool(const struct pending *p)
{
    return p->in_pool;
}
