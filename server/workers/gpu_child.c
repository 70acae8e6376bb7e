#include "server/workers/gpu_child.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "common/auto.h"
#include "common/log.h"

/*
 * Theory of operation. A child is forked, is made known to the referee as soon as it has a channel, makes its context,
 * and is ready when the referee says so. As many wait as the setting `pool` says. Timing waits until what is ended has
 * ended; what is being made the referee has stand still meanwhile.
 */

#define WARM_MS 60000 /* from forking to a context */
#define RETRY_MS 1000
#define MAKING_MAX 4 /* side by side; more are hardly made sooner */
/* Children that died unused, one after another: more than two rounds of them are no chance. */
#define FAILURES_MAX (2 * MAKING_MAX + 1)

enum state { FORKING, WARMING, READY };

struct gpu_child {
    struct gpu_child *prev, *next;
    struct gpu_children *all;
    struct child *child;
    enum state state;
    enum gpu_child_use use;
    bool is_known; /* to the referee */
    bool is_loaded;
    char task_id[LANE_TASK_SIZE];
    int64_t used; /* all->clock when it was last */
};

struct gpu_children {
    const struct config *config;
    char device[32];
    struct zygote *zygote;
    struct referee *referee;
    const struct gpu_children_ops *ops;
    void *arg;
    struct gpu_child *list;
    uv_timer_t retry_timer;
    bool is_busy;  /* the referee */
    bool is_stuck; /* as gpu_children_take_stuck() says */
    int failures;
    int64_t clock;
    int64_t made, lost_waiting, lost, loads, evicted;
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

/* Children that make their context have their limit only while the referee can say that they have. */
static void
limit_warming(struct gpu_children *all)
{
    struct gpu_child *c;

    DL_FOREACH(all->list, c)
    {
        if (c->state < READY)
            child_limit(c->child, all->is_busy ? 0 : WARM_MS);
    }
}

void
gpu_children_note_busy(struct gpu_children *all, bool is_busy)
{
    all->is_busy = is_busy;
    limit_warming(all);
}

/* --- ending --- */

/* A child that nobody had used yet is gone. */
static void
count_failure(struct gpu_children *all, const char *why)
{
    log_warn(all->device, "a child was lost before it was used: %s", why);
    if (++all->failures >= FAILURES_MAX) {
        all->failures = 0;
        referee_kill(all->referee, "its children die before they are used");
    }
}

static void
ended_cb(void *arg, struct child *child)
{
    struct gpu_child *c = arg;
    struct gpu_children *all = c->all;
    const struct child_end *end = child_end(child);

    if (c->use == GPU_CHILD_POOL && !(end->is_lost && !zygote_is_ready(all->zygote))) {
        all->lost_waiting++;
        count_failure(all, end->error[0] ? end->error : "it ended");
    }
    /* What became of the job's own is in the report. */
    bool is_job_s = all->ops->ended(all->arg, c);
    all->lost += c->use != GPU_CHILD_ENDING && !is_job_s && !end->was_killed;
    all->evicted += c->use == GPU_CHILD_REFERENCE && !is_job_s;
    all->is_stuck |= c->use == GPU_CHILD_ENDING && end->is_stuck;
    drop(c);
    child_free(child);
    free_one(c);
    all->ops->changed(all->arg);
}

/* --- making --- */

static void
spawned_cb(void *arg, struct child *child)
{
    struct gpu_child *c = arg;
    AUTO_FD int channel = child_take_channel(child), pidfd = child_take_pidfd(child);

    if (channel < 0 || pidfd < 0) {
        child_kill(child);
        return;
    }
    c->state = WARMING;
    c->is_known = true;
    referee_child(c->all->referee, child_name(child), fd_take(&channel), fd_take(&pidfd));
    c->all->ops->changed(c->all->arg);
}

static const struct child_ops child_ops = { .spawned = spawned_cb, .ended = ended_cb };

static int
make_one(struct gpu_children *all, struct error *err)
{
    struct gpu_child *c = calloc(1, sizeof(*c));

    if (!c)
        return error_set(err, ERR_NOMEM, "no memory for a child");
    c->all = all;
    DL_APPEND(all->list, c);
    if (child_new(all->zygote, CHILD_RUN, &child_ops, c, &c->child, err) != 0) {
        free_one(c);
        return err->code;
    }
    limit_warming(all);
    return 0;
}

static void
retry_cb(uv_timer_t *timer)
{
    struct gpu_children *all = timer->data;
    all->ops->changed(all->arg);
}

void
gpu_children_fill(struct gpu_children *all, int64_t more)
{
    struct gpu_child *c;
    struct error err = { 0 };
    int64_t have = 0, making = 0, want = all->config->pool + more;

    DL_FOREACH(all->list, c)
    {
        have += c->use == GPU_CHILD_POOL;
        making += c->state < READY;
    }
    for (; have < want && making < MAKING_MAX; have++, making++) {
        if (make_one(all, &err) != 0) {
            log_warn(all->device, "%s", err.text);
            uv_timer_start(&all->retry_timer, retry_cb, RETRY_MS, 0);
            return;
        }
    }
}

/* --- what the referee says of them --- */

static struct gpu_child *
find(const struct gpu_children *all, const char *name)
{
    struct gpu_child *c;

    DL_FOREACH(all->list, c)
    {
        if (strcmp(child_name(c->child), name) == 0)
            return c;
    }
    return NULL;
}

void
gpu_children_became_ready(struct gpu_children *all, const char *name)
{
    struct gpu_child *c = find(all, name);

    if (!c || c->state != WARMING)
        return;
    c->state = READY;
    child_limit(c->child, 0);
    all->failures = 0;
    all->made++;
    all->ops->changed(all->arg);
}

void
gpu_children_went(struct gpu_children *all, const char *name)
{
    struct gpu_child *c = find(all, name);

    if (!c)
        return;
    c->is_known = false;
    child_kill(c->child);
}

/* --- using one --- */

struct gpu_child *
gpu_children_reference(const struct gpu_children *all, const char *task_id)
{
    struct gpu_child *c;

    DL_FOREACH(all->list, c)
    {
        if (c->use == GPU_CHILD_REFERENCE && c->state == READY && strcmp(c->task_id, task_id) == 0)
            return c;
    }
    return NULL;
}

struct gpu_child *
gpu_children_take(struct gpu_children *all, enum gpu_child_use use, const char *task_id)
{
    struct gpu_child *c, *newest = NULL;

    DL_FOREACH(all->list, c)
    {
        if (c->use == GPU_CHILD_POOL && c->state == READY)
            newest = c;
    }
    if (!newest)
        return NULL;
    newest->use = use;
    all->loads += use == GPU_CHILD_REFERENCE;
    snprintf(newest->task_id, sizeof(newest->task_id), "%s", task_id ? task_id : "");
    gpu_child_note_used(newest);
    return newest;
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
gpu_children_are_quiet(const struct gpu_children *all)
{
    const struct gpu_child *c;

    DL_FOREACH(all->list, c)
    {
        if (c->state < READY || c->use == GPU_CHILD_ENDING)
            return false;
    }
    return true;
}

bool
gpu_children_can_stand_still(const struct gpu_children *all)
{
    const struct gpu_child *c;

    DL_FOREACH(all->list, c)
    {
        if (c->state == FORKING || c->use == GPU_CHILD_ENDING)
            return false;
    }
    return true;
}

void
gpu_children_make_room(struct gpu_children *all, const struct gpu_child *a, const struct gpu_child *b)
{
    struct gpu_child *c, *next;

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

    uv_timer_stop(&all->retry_timer);
    DL_FOREACH_SAFE(all->list, c, next)
    {
        child_abandon(c->child);
        free_one(c);
    }
}

/* --- looking --- */

int
gpu_children_count(const struct gpu_children *all, enum gpu_child_use use, bool is_ready_only)
{
    const struct gpu_child *c;
    int n = 0;

    DL_FOREACH(all->list, c)
    {
        n += c->use == use && (!is_ready_only || c->state == READY);
    }
    return n;
}

json_t *
gpu_children_pool_json(const struct gpu_children *all, double waited_s)
{
    int ready = gpu_children_count(all, GPU_CHILD_POOL, true);

    return json_pack("{s:i, s:i, s:I, s:I, s:I, s:f}", "ready", ready, "making",
                     gpu_children_count(all, GPU_CHILD_POOL, false) - ready, "most",
                     (json_int_t)all->config->pool, "made", (json_int_t)all->made, "lost",
                     (json_int_t)all->lost_waiting, "waited_s", waited_s);
}

int64_t
gpu_children_loads(const struct gpu_children *all)
{
    return all->loads;
}

int64_t
gpu_children_evicted(const struct gpu_children *all)
{
    return all->evicted;
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
        .config = config, .zygote = zygote, .referee = referee, .ops = ops, .arg = arg
    };
    snprintf(all->device, sizeof(all->device), "%s", device);
    uv_timer_init(loop, &all->retry_timer);
    all->retry_timer.data = all;
    *out = all;
    return 0;
}

static void
closed_cb(uv_handle_t *handle)
{
    free(handle->data);
}

void
gpu_children_free(struct gpu_children *all)
{
    if (all)
        uv_close((uv_handle_t *)&all->retry_timer, closed_cb);
}
