#include "server/workers/prefork_pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <utlist.h>

#include "common/log.h"
#include "server/workers/handle.h"

/*
 * Theory of operation. A child can receive its request at any time, so early making changes only the wait. Making one
 * takes from some ten milliseconds to seconds, and requests come one after the other or in bunches, so a few children
 * are enough and their number is fixed.
 *
 * A child of a CPU stage may get a request as soon as its zygote was asked for it. A child with ops is announced
 * through them once it was spawned, and makes itself ready; until it is taken the pool reports its end there. After one
 * that is lost, or cannot be made, none is made for a delay, which doubles until one is ready again.
 */

enum state { FORKING, WARMING, READY, ENDING, SWEPT };

struct waiting {
    struct waiting *prev, *next;
    struct prefork_pool *pool;
    struct child *child;
    enum state state;
};

struct prefork_pool {
    struct prefork_rules rules;
    char name[48];
    struct zygote *zygote;
    enum child_role role;
    struct waiting *list; /* the oldest first */
    uv_timer_t timer;
    uint64_t retry_ms;
    bool is_held;
    int64_t made, taken, missed, lost;
};

static void
remove_one(struct waiting *w)
{
    DL_DELETE(w->pool->list, w);
    free(w);
}

static void
forget(const struct waiting *w)
{
    const struct prefork_rules *r = &w->pool->rules;

    if (r->ops && (w->state == WARMING || w->state == READY))
        r->ops->forget(r->arg, w->child);
}

static void
became_ready(struct waiting *w)
{
    w->state = READY;
    w->pool->made++;
    w->pool->retry_ms = PREFORK_RETRY_MS;
}

/* --- ending --- */

static void
changed(struct prefork_pool *p)
{
    if (p->rules.ops)
        p->rules.ops->changed(p->rules.arg);
    else
        prefork_pool_fill(p, 0);
}

static void
timer_cb(uv_timer_t *timer)
{
    changed(timer->data);
}

static void
try_later(struct prefork_pool *p)
{
    uv_timer_start(&p->timer, timer_cb, p->retry_ms, 0);
    p->retry_ms = p->retry_ms * 2 < PREFORK_RETRY_MAX_MS ? p->retry_ms * 2 : PREFORK_RETRY_MAX_MS;
}

static void
ended_cb(void *arg, struct child *c)
{
    struct waiting *w = arg;
    struct prefork_pool *p = w->pool;
    const char *error = child_end(c)->error;

    bool is_swept = w->state == SWEPT; /* the others of its age are, too: new ones are made at once */
    if (!is_swept && zygote_is_ready(p->zygote)) { /* else it took them along */
        p->lost++;
        log_warn(p->name, "a child was lost before it was used: %s", *error ? error : "it ended");
        try_later(p);
        if (p->rules.ops)
            p->rules.ops->lost(p->rules.arg, c);
    }
    forget(w);
    child_free(c);
    remove_one(w);
    if (p->rules.ops || is_swept)
        changed(p);
}

/* --- making --- */

static void
spawned_cb(void *arg, struct child *c)
{
    struct waiting *w = arg;
    const struct prefork_rules *r = &w->pool->rules;

    if (!r->ops)
        return;
    if (r->ops->spawned(r->arg, c)) {
        w->state = WARMING;
        changed(w->pool);
    } else {
        w->state = ENDING;
        child_kill(c);
    }
}

/* It has nothing to say before it is asked. */
static void
message_cb(void *arg, struct child *c, struct message *m)
{
    (void)arg;
    (void)m;
    child_kill(c);
}

static const struct child_ops waiting_ops = { spawned_cb, message_cb, ended_cb };

static int
make_one(struct prefork_pool *p, struct error *err)
{
    struct waiting *w = calloc(1, sizeof(*w));

    if (!w)
        return error_set(err, ERR_NOMEM, "no memory for a child");
    w->pool = p;
    if (child_new(p->zygote, p->role, &waiting_ops, w, &w->child, err) != 0) {
        free(w);
        return err->code;
    }
    DL_APPEND(p->list, w);
    if (!p->rules.ops)
        became_ready(w);
    else if (!p->is_held)
        child_limit(w->child, p->rules.warm_ms);
    return 0;
}

void
prefork_pool_fill(struct prefork_pool *p, int64_t more)
{
    struct error err = { 0 };
    struct prefork_counts n;

    prefork_pool_count(p, &n);
    if (uv_is_active((uv_handle_t *)&p->timer) || !zygote_is_ready(p->zygote))
        return;
    for (; n.kept < n.most + more && (p->rules.making_max == 0 || n.making < p->rules.making_max);
         n.kept++, n.making++) {
        if (make_one(p, &err) != 0) {
            log_warn(p->name, "%s", err.text);
            try_later(p);
            return;
        }
    }
}

/* --- using --- */

struct child *
prefork_pool_take(struct prefork_pool *p, const struct child_ops *ops, void *arg)
{
    struct waiting *w;

    DL_FOREACH(p->list, w)
    {
        if (w->state == READY && access(child_scratch(w->child), F_OK) != 0) {
            log_warn(p->name, "%s was removed, the directory of a child", child_scratch(w->child));
            forget(w);
            w->state = SWEPT;
            child_kill(w->child);
        } else if (w->state == READY) {
            struct child *c = w->child;
            child_hand_over(c, ops, arg);
            remove_one(w);
            p->taken++;
            return c;
        }
    }
    p->missed += p->rules.most > 0;
    return NULL;
}

static struct waiting *
find(const struct prefork_pool *p, const char *name)
{
    struct waiting *w;

    DL_FOREACH(p->list, w)
    {
        if (strcmp(child_name(w->child), name) == 0)
            return w;
    }
    return NULL;
}

bool
prefork_pool_became_ready(struct prefork_pool *p, const char *name)
{
    struct waiting *w = find(p, name);

    if (w && w->state == WARMING) {
        child_limit(w->child, 0);
        became_ready(w);
        changed(p);
    }
    return w != NULL;
}

bool
prefork_pool_end(struct prefork_pool *p, const char *name)
{
    struct waiting *w = find(p, name);

    if (w) {
        w->state = ENDING;
        child_kill(w->child);
    }
    return w != NULL;
}

void
prefork_pool_hold(struct prefork_pool *p, bool on)
{
    struct waiting *w;

    p->is_held = on;
    DL_FOREACH(p->list, w)
    {
        if (w->state < READY)
            child_limit(w->child, on ? 0 : p->rules.warm_ms);
    }
}

bool
prefork_pool_is_forking(const struct prefork_pool *p)
{
    const struct waiting *w;

    DL_FOREACH(p->list, w)
    {
        if (w->state == FORKING || w->state >= ENDING)
            return true;
    }
    return false;
}

void
prefork_pool_count(const struct prefork_pool *p, struct prefork_counts *out)
{
    const struct waiting *w;

    *out = (struct prefork_counts){
        .most = p->rules.most, .made = p->made, .taken = p->taken, .missed = p->missed, .lost = p->lost
    };
    DL_FOREACH(p->list, w)
    {
        out->ready += w->state == READY;
        out->making += w->state < READY;
    }
    out->kept = out->ready + out->making;
}

/* --- its life --- */

int
prefork_pool_new(uv_loop_t *loop, const char *name, struct zygote *z, enum child_role role,
                 const struct prefork_rules *rules, struct prefork_pool **out, struct error *err)
{
    struct prefork_pool *p = calloc(1, sizeof(*p));

    *out = NULL;
    if (!p)
        return error_set(err, ERR_NOMEM, "no memory for a pool of children");
    *p = (struct prefork_pool){ .rules = *rules, .zygote = z, .role = role, .retry_ms = PREFORK_RETRY_MS };
    snprintf(p->name, sizeof(p->name), "%s", name);
    uv_timer_init(loop, &p->timer);
    p->timer.data = p;
    *out = p;
    return 0;
}

void
prefork_pool_abandon(struct prefork_pool *p)
{
    struct waiting *w, *next;

    uv_timer_stop(&p->timer);
    p->retry_ms = PREFORK_RETRY_MS;
    DL_FOREACH_SAFE(p->list, w, next)
    {
        forget(w);
        child_abandon(w->child);
        remove_one(w);
    }
}

void
prefork_pool_free(struct prefork_pool *p)
{
    if (p)
        uv_close((uv_handle_t *)&p->timer, handle_free_cb);
}
