#include "server/workers/gpu_child.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "common/auto.h"
#include "server/workers/prefork_pool.h"

/*
 * Theory of operation. A child is forked, is announced to the referee as soon as it has a channel, makes its context,
 * and is ready when the referee reports that. The setting `pool` is the number of children that wait in the pool; one
 * that was taken is in the list here. Timing waits until ending children have ended; the referee stops those being made
 * meanwhile.
 */

#define WARM_MS 60000 /* from forking to a context */
#define MAKING_MAX 4  /* concurrently; more would hardly be ready sooner */
/* Children that ended unused, in sequence: more than two rounds of them are not a coincidence. */
#define FAILURES_MAX (2 * MAKING_MAX + 1)
/* Plans that one executor runs: undetected damage to its context by one kernel then affects few other plans. */
#define PLANS_MAX 256

struct gpu_child {
    struct gpu_child *prev, *next;
    struct gpu_children *all;
    struct child *child;
    enum gpu_child_use use;
    bool is_known; /* to the referee */
    bool is_loaded;
    char task_id[REFERENCE_ID_SIZE];
    int64_t used; /* all->clock when it was last */
    int plans;    /* that it has run */
};

struct gpu_children {
    const struct config *config;
    struct referee *referee;
    const struct gpu_children_ops *ops;
    void *arg;
    struct prefork_pool *pool;
    struct zygote *zygote;
    struct gpu_child *list;
    bool is_stuck; /* as gpu_children_take_stuck() returns it */
    int failures;
    int64_t clock;
    int64_t lost, loads, evicted;
};

static void
free_one(struct gpu_child *c)
{
    DL_DELETE(c->all->list, c);
    free(c);
}

static void
drop(struct gpu_child *c)
{
    if (c->is_known)
        referee_drop(c->all->referee, child_name(c->child));
    c->is_known = false;
}

void
gpu_child_discard(struct gpu_child *c)
{
    drop(c);
    child_abandon(c->child);
    free_one(c);
}

void
gpu_child_let_go(struct gpu_child *c)
{
    drop(c);
    c->use = GPU_CHILD_ENDING;
}

void
gpu_children_note_busy(struct gpu_children *all, bool is_busy)
{
    prefork_pool_hold(all->pool, is_busy);
}

/* --- the pool --- */

static bool
tell_referee(struct gpu_children *all, struct child *child)
{
    AUTO_FD int channel = child_take_channel(child), pidfd = child_take_pidfd(child);

    if (channel < 0 || pidfd < 0)
        return false;
    referee_child(all->referee, child_name(child), fd_take(&channel), fd_take(&pidfd));
    return true;
}

static bool
spawned_cb(void *arg, struct child *child)
{
    return tell_referee(arg, child);
}

static void
forget_cb(void *arg, const struct child *child)
{
    struct gpu_children *all = arg;
    referee_drop(all->referee, child_name(child));
}

static void
lost_cb(void *arg, const struct child *child)
{
    struct gpu_children *all = arg;

    all->lost += !child_end(child)->was_killed;
    if (++all->failures >= FAILURES_MAX) {
        all->failures = 0;
        referee_kill(all->referee, "its children die before they are used");
    }
}

static void
changed_cb(void *arg)
{
    struct gpu_children *all = arg;
    all->ops->changed(all->arg);
}

static const struct prefork_ops pool_ops = { spawned_cb, forget_cb, lost_cb, changed_cb };

void
gpu_children_fill(struct gpu_children *all, int64_t more)
{
    prefork_pool_fill(all->pool, more);
}

void
gpu_children_became_ready(struct gpu_children *all, const char *name)
{
    struct gpu_child *c;

    if (prefork_pool_became_ready(all->pool, name))
        all->failures = 0;
    DL_FOREACH(all->list, c)
    {
        if (c->use == GPU_CHILD_RENEWING && strcmp(child_name(c->child), name) == 0) {
            c->use = GPU_CHILD_EXECUTOR;
            all->ops->changed(all->arg);
            return;
        }
    }
}

void
gpu_children_went(struct gpu_children *all, const char *name)
{
    struct gpu_child *c;

    if (prefork_pool_end(all->pool, name))
        return;
    DL_FOREACH(all->list, c)
    {
        if (strcmp(child_name(c->child), name) == 0) {
            bool is_spare = c->use == GPU_CHILD_RENEWING || c->use == GPU_CHILD_EXECUTOR;
            c->is_known = false;
            c->use = is_spare ? GPU_CHILD_ENDING : c->use;
            child_kill(c->child);
            if (is_spare)
                all->ops->changed(all->arg);
            return;
        }
    }
}

/* --- using one --- */

struct gpu_child *
gpu_children_reference(const struct gpu_children *all, const char *task_id)
{
    struct gpu_child *c;

    DL_FOREACH(all->list, c)
    {
        if (c->use == GPU_CHILD_REFERENCE && strcmp(c->task_id, task_id) == 0)
            return c;
    }
    return NULL;
}

static void
ended_cb(void *arg, struct child *child)
{
    struct gpu_child *c = arg;
    struct gpu_children *all = c->all;
    const struct child_end *end = child_end(child);
    /* The end of the job's own children is in the report. */
    bool is_job_s = all->ops->ended(all->arg, c);

    all->lost += c->use != GPU_CHILD_ENDING && !is_job_s && !end->was_killed;
    all->evicted += c->use == GPU_CHILD_REFERENCE && !is_job_s;
    all->is_stuck |= c->use == GPU_CHILD_ENDING && end->is_stuck;
    drop(c);
    child_free(child);
    free_one(c);
    all->ops->changed(all->arg);
}

static const struct child_ops child_ops = { .ended = ended_cb };

struct gpu_child *
gpu_children_take(struct gpu_children *all, enum gpu_child_use use, const char *task_id)
{
    struct gpu_child *c = calloc(1, sizeof(*c));

    if (!c || !(c->child = prefork_pool_take(all->pool, &child_ops, c))) {
        free(c);
        return NULL;
    }
    c->all = all;
    c->use = use;
    c->is_known = true;
    DL_APPEND(all->list, c);
    all->loads += use == GPU_CHILD_REFERENCE;
    snprintf(c->task_id, sizeof(c->task_id), "%s", task_id ? task_id : "");
    gpu_child_note_used(c);
    return c;
}

struct gpu_child *
gpu_children_take_executor(struct gpu_children *all)
{
    struct gpu_child *c;

    DL_FOREACH(all->list, c)
    {
        if (c->use == GPU_CHILD_EXECUTOR) {
            c->use = GPU_CHILD_CANDIDATE;
            child_read(c->child);
            child_forget_output(c->child);
            return c;
        }
    }
    return NULL;
}

static void
tool_spawned_cb(void *arg, struct child *child)
{
    struct gpu_child *c = arg;

    c->is_known = tell_referee(c->all, child);
    if (!c->is_known)
        child_kill(child);
    c->all->ops->changed(c->all->arg);
}

struct gpu_child *
gpu_children_take_tool(struct gpu_children *all)
{
    static const struct child_ops tool_ops = { .spawned = tool_spawned_cb, .ended = ended_cb };
    struct gpu_child *c = calloc(1, sizeof(*c));
    struct error err = { 0 };

    if (!c || child_new(all->zygote, CHILD_SANITIZE, &tool_ops, c, &c->child, &err) != 0) {
        free(c);
        return NULL;
    }
    c->all = all;
    c->use = GPU_CHILD_TOOL;
    DL_APPEND(all->list, c);
    return c;
}

bool
gpu_child_is_known(const struct gpu_child *c)
{
    return c->is_known;
}

static int
count(const struct gpu_children *all, enum gpu_child_use use)
{
    const struct gpu_child *c;
    int n = 0;

    DL_FOREACH(all->list, c)
    {
        n += c->use == use;
    }
    return n;
}

bool
gpu_children_are_renewing(const struct gpu_children *all)
{
    return count(all, GPU_CHILD_RENEWING) > 0;
}

bool
gpu_child_keep(struct gpu_child *c)
{
    if (!c->is_known || ++c->plans >= PLANS_MAX)
        return false;
    c->use = GPU_CHILD_RENEWING;
    return true;
}

void
gpu_child_note_used(struct gpu_child *c)
{
    c->used = ++c->all->clock;
}

void
gpu_child_note_loaded(struct gpu_child *c, const char *task_id)
{
    snprintf(c->task_id, sizeof(c->task_id), "%s", task_id);
    c->is_loaded = true;
}

bool
gpu_child_is_loaded(const struct gpu_child *c)
{
    return c->is_loaded;
}

struct child *
gpu_child_process(const struct gpu_child *c)
{
    return c->child;
}

/* --- all of them --- */

bool
gpu_children_can_stand_still(const struct gpu_children *all)
{
    const struct gpu_child *c;

    DL_FOREACH(all->list, c)
    {
        if (c->use == GPU_CHILD_ENDING)
            return false;
    }
    return !prefork_pool_is_forking(all->pool);
}

bool
gpu_children_are_quiet(const struct gpu_children *all)
{
    struct prefork_counts n;

    prefork_pool_count(all->pool, &n);
    return n.making == 0 && gpu_children_can_stand_still(all);
}

void
gpu_children_make_room(struct gpu_children *all, const struct gpu_child *a, const struct gpu_child *b)
{
    struct gpu_child *c, *next;

    prefork_pool_abandon(all->pool);
    DL_FOREACH_SAFE(all->list, c, next)
    {
        if (c->use != GPU_CHILD_ENDING && c != a && c != b)
            gpu_child_discard(c);
    }
}

void
gpu_children_evict(struct gpu_children *all)
{
    for (;;) {
        struct gpu_child *c, *oldest = NULL;
        int64_t n = 0;
        DL_FOREACH(all->list, c)
        {
            if (c->use != GPU_CHILD_REFERENCE)
                continue;
            n++;
            if (!oldest || c->used < oldest->used)
                oldest = c;
        }
        if (!oldest || n <= all->config->references_kept)
            return;
        all->evicted++;
        gpu_child_discard(oldest);
    }
}

void
gpu_children_abandon(struct gpu_children *all)
{
    struct gpu_child *c, *next;

    prefork_pool_abandon(all->pool);
    DL_FOREACH_SAFE(all->list, c, next)
    {
        child_abandon(c->child);
        free_one(c);
    }
}

/* --- looking --- */

void
gpu_children_show(const struct gpu_children *all, double waited_s, json_t *status)
{
    int references = count(all, GPU_CHILD_REFERENCE);
    struct prefork_counts n;

    prefork_pool_count(all->pool, &n);
    AUTO_JSON json_t *shown = json_pack(
        "{s:{s:I, s:i, s:i}, s:{s:I, s:I, s:I, s:I, s:I, s:f}, s:{s:i, s:I, s:I, s:I}}", "children", "ready",
        (json_int_t)n.ready, "references", references, "candidates", count(all, GPU_CHILD_CANDIDATE), "pool",
        "ready", (json_int_t)n.ready, "making", (json_int_t)n.making, "most", (json_int_t)n.most, "made",
        (json_int_t)n.made, "lost", (json_int_t)n.lost, "waited_s", waited_s, "references", "kept",
        references, "most", (json_int_t)all->config->references_kept, "loads", (json_int_t)all->loads,
        "evicted", (json_int_t)all->evicted);
    json_object_update(status, shown);
}

int64_t
gpu_children_lost(const struct gpu_children *all)
{
    return all->lost;
}

bool
gpu_children_take_stuck(struct gpu_children *all)
{
    bool was_stuck = all->is_stuck;

    all->is_stuck = false;
    return was_stuck;
}

/* --- its life --- */

int
gpu_children_new(uv_loop_t *loop, const struct config *config, const char *device, struct zygote *zygote,
                 struct referee *referee, const struct gpu_children_ops *ops, void *arg,
                 struct gpu_children **out, struct error *err)
{
    struct gpu_children *all = calloc(1, sizeof(*all));

    *out = NULL;
    if (!all)
        return error_set(err, ERR_NOMEM, "no memory for the children of %s", device);
    *all = (struct gpu_children){
        .config = config, .referee = referee, .zygote = zygote, .ops = ops, .arg = arg
    };
    const struct prefork_rules rules = {
        .most = config->pool, .making_max = MAKING_MAX, .warm_ms = WARM_MS, .ops = &pool_ops, .arg = all
    };
    if (prefork_pool_new(loop, device, zygote, CHILD_RUN, &rules, &all->pool, err) != 0) {
        free(all);
        return err->code;
    }
    *out = all;
    return 0;
}

void
gpu_children_free(struct gpu_children *all)
{
    if (!all)
        return;
    prefork_pool_free(all->pool);
    free(all);
}
