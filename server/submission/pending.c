#include "server/submission/pending.h"

#include <stdlib.h>

struct pending {
    uv_loop_t *loop;
    void (*changed_cb)(void *arg);
    void *arg;
    int64_t writes, in_pool;
    bool is_draining, is_stopped;
};

struct pending *
pending_new(uv_loop_t *loop, void (*changed_cb)(void *arg), void *arg)
{
    struct pending *p = calloc(1, sizeof(*p));

    if (p)
        *p = (struct pending){ .loop = loop, .changed_cb = changed_cb, .arg = arg };
    return p;
}

void
pending_free(struct pending *p)
{
    free(p);
}

void
pending_drain(struct pending *p)
{
    p->is_draining = true;
}

bool
pending_is_draining(const struct pending *p)
{
    return p->is_draining;
}

void
pending_stop(struct pending *p)
{
    p->is_stopped = true;
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

void
pending_work(struct pending *p, uv_work_t *work, uv_work_cb work_cb, uv_after_work_cb done_cb)
{
    pending_begin_write(p);
    p->in_pool++;
    if (!p->is_stopped) {
        uv_queue_work(p->loop, work, work_cb, done_cb);
        return;
    }
    work_cb(work);
    done_cb(work, 0);
}

void
pending_end_work(struct pending *p)
{
    p->in_pool--;
    pending_end_write(p);
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
