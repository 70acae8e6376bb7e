#include "server/workers/private.h"

#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/log.h"

/*
 * Children of one lane. Each is forked and makes its context before anybody
 * needs it, is told to the referee as soon as it has a channel, and is ready
 * when the referee says so.
 */

#define WARM_MS 60000 /* from forking to a context */
#define RETRY_MS 1000
#define FAILURES_MAX 5 /* children that died unused, one after another: something is wrong with the workers */

static void
runner_free(struct runner *r)
{
    DL_DELETE(r->lane->runners, r);
    free(r);
}

void
runner_discard(struct runner *r)
{
    if (r->is_told)
        referee_tell(r->lane, json_pack("{s:s, s:s}", "op", "drop", "child", child_name(r->child)), NULL, 0);
    child_abandon(r->child);
    runner_free(r);
}

/*
 * Children that make their context have their limit only while the referee can
 * say that they have: one that is asked for a report hears nobody before that.
 */
void
runners_limit_warming(struct lane *l)
{
    bool is_deaf = l->job && l->job->is_asked;
    struct runner *r;

    DL_FOREACH(l->runners, r)
    if (r->state < RUNNER_READY)
        child_limit(r->child, is_deaf ? 0 : WARM_MS);
}

/* A child that nobody had used yet is gone. */
static void
count_failure(struct lane *l, const char *why)
{
    log_warn(l->device.name, "a child was lost before it was used: %s", why);
    if (++l->failures >= FAILURES_MAX) {
        l->failures = 0;
        process_kill(l->referee, "its children die before they are used");
    }
}

static void
runner_ended_cb(void *arg, struct child *c)
{
    struct runner *r = arg;
    struct lane *l = r->lane;
    struct job *j = l->job;
    bool is_lost = child_end(c)->is_lost;

    if (r->use == USE_POOL && !(is_lost && !zygote_is_ready(l->zygote)))
        count_failure(l, child_end(c)->error[0] ? child_end(c)->error : "it ended");
    if (j && j->candidate == r) {
        job_inherit(j, c);
        j->candidate = NULL;
    }
    if (j && j->reference == r)
        j->reference = NULL;
    if (r->is_told)
        referee_tell(l, json_pack("{s:s, s:s}", "op", "drop", "child", child_name(c)), NULL, 0);
    child_free(c);
    runner_free(r);
    lane_pump(l);
}

static void
runner_spawned_cb(void *arg, struct child *c)
{
    struct runner *r = arg;
    struct channel_fd fds[] = { { "channel", child_take_channel(c) }, { "pidfd", child_take_pidfd(c) } };

    if (fds[0].fd < 0 || fds[1].fd < 0) {
        auto_close(&fds[0].fd);
        auto_close(&fds[1].fd);
        child_kill(c);
        return;
    }
    r->state = RUNNER_WARMING;
    r->is_told = true;
    referee_tell(r->lane, json_pack("{s:s, s:s}", "op", "child", "child", child_name(c)), fds,
                 ARRAY_LEN(fds));
}

static const struct child_ops runner_ops = { .spawned = runner_spawned_cb, .ended = runner_ended_cb };

static int
runner_new(struct lane *l, struct error *err)
{
    struct runner *r = calloc(1, sizeof(*r));

    if (!r)
        return error_set(err, ERR_NOMEM, "no memory for a child");
    r->lane = l;
    DL_APPEND(l->runners, r);
    if (child_new(l->zygote, CHILD_RUN, &runner_ops, r, &r->child, err) != 0) {
        runner_free(r);
        return err->code;
    }
    runners_limit_warming(l);
    return 0;
}

void
runner_became_ready(struct lane *l, struct runner *r)
{
    if (r->state != RUNNER_WARMING)
        return;
    r->state = RUNNER_READY;
    child_limit(r->child, 0);
    l->failures = 0;
    lane_pump(l);
}

void
runner_take_as(struct lane *l, struct runner *r, enum runner_use use)
{
    r->use = use;
    r->used = l->clock;
    child_limit(r->child, 0);
}

struct runner *
runner_find(struct lane *l, const char *name)
{
    struct runner *r;
    DL_FOREACH(l->runners, r)
    if (strcmp(child_name(r->child), name) == 0)
        return r;
    return NULL;
}

struct runner *
runner_find_reference(const struct lane *l, const char *task_id)
{
    struct runner *r;
    DL_FOREACH(l->runners, r)
    if (r->use == USE_REFERENCE && r->state == RUNNER_READY && strcmp(r->task_id, task_id) == 0)
        return r;
    return NULL;
}

struct runner *
runner_find_ready(struct lane *l)
{
    struct runner *r;
    DL_FOREACH(l->runners, r)
    if (r->use == USE_POOL && r->state == RUNNER_READY)
        return r;
    return NULL;
}

bool
runners_are_quiet(struct lane *l)
{
    struct runner *r;
    DL_FOREACH(l->runners, r)
    if (r->state < RUNNER_READY)
        return false;
    return true;
}

int
runners_count(const struct lane *l, enum runner_use use, bool is_ready_only)
{
    struct runner *r;
    int n = 0;

    DL_FOREACH(l->runners, r)
    n += r->use == use && (!is_ready_only || r->state == RUNNER_READY);
    return n;
}

static void
retry_cb(uv_timer_t *timer)
{
    lane_pump(timer->data);
}

void
runners_fill_pool(struct lane *l)
{
    struct job *j = l->job;
    struct runner *r;
    struct error err = { 0 };
    int64_t have = 0, want = l->config->pool;

    if (j && (j->phase == PHASE_QUIET || (j->is_asked && strcmp(j->stage, "timing") == 0)))
        return;
    if (j && j->phase == PHASE_ACQUIRE)
        want = (want < 1 ? 1 : want) + (j->is_registration || j->reference ? 0 : 1);
    DL_FOREACH(l->runners, r)
    have += r->use == USE_POOL;
    for (; have < want; have++) {
        if (runner_new(l, &err) != 0) {
            log_warn(l->device.name, "%s", err.text);
            uv_timer_start(&l->retry_timer, retry_cb, RETRY_MS, 0);
            return;
        }
    }
}

void
runners_evict(struct lane *l)
{
    for (;;) {
        struct runner *r, *oldest = NULL;
        int64_t n = 0;
        DL_FOREACH(l->runners, r)
        {
            if (r->use != USE_REFERENCE)
                continue;
            n++;
            if (!oldest || r->used < oldest->used)
                oldest = r;
        }
        if (!oldest || n <= l->config->references_kept)
            return;
        runner_discard(oldest);
    }
}

void
runners_abandon(struct lane *l)
{
    struct runner *r, *next;

    DL_FOREACH_SAFE(l->runners, r, next)
    {
        child_abandon(r->child);
        runner_free(r);
    }
}
