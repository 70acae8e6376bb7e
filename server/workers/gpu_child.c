#include "server/workers/private.h"

#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/log.h"

/*
 * Children of one lane. Each is forked and makes its context before anybody
 * needs it, is told to the referee as soon as it has a channel, and is ready
 * when the referee says so. As many are kept so as the setting `pool` says.
 * Timing waits until what is ended has ended; what is being made the referee
 * has stand still meanwhile.
 */

#define WARM_MS 60000 /* from forking to a context */
#define RETRY_MS 1000
#define MAKING_MAX 4 /* side by side; more are hardly made sooner */
/* Children that died unused, one after another: more than two rounds of them are no chance. */
#define FAILURES_MAX (2 * MAKING_MAX + 1)

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
        referee_drop(r->lane, r);
    child_abandon(r->child);
    runner_free(r);
}

void
runner_let_go(struct runner *r)
{
    if (r->is_told)
        referee_drop(r->lane, r);
    r->is_told = false;
    r->use = USE_NONE;
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
    {
        if (r->state >= RUNNER_READY)
            continue;
        child_limit(r->child, is_deaf ? 0 : WARM_MS);
    }
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

    if (r->use == USE_POOL && !(is_lost && !zygote_is_ready(l->zygote))) {
        l->supply.lost++;
        count_failure(l, child_end(c)->error[0] ? child_end(c)->error : "it ended");
    }
    /* Those of the job are asked for by name: what became of them is in the report. */
    l->lost +=
        r->use != USE_NONE && (!j || (j->candidate != r && j->reference != r)) && !child_end(c)->was_killed;
    l->references.evicted += r->use == USE_REFERENCE && (!j || j->reference != r);
    l->is_stuck |= r->use == USE_NONE && child_end(c)->is_stuck;
    if (j && j->candidate == r) {
        job_inherit(j, c);
        j->candidate = NULL;
    }
    if (j && j->reference == r)
        j->reference = NULL;
    if (r->is_told)
        referee_drop(l, r);
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
    lane_pump(r->lane);
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
    l->supply.made++;
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
    struct runner *r, *newest = NULL;
    DL_FOREACH(l->runners, r)
    if (r->use == USE_POOL && r->state == RUNNER_READY)
        newest = r;
    return newest;
}

bool
runners_are_quiet(const struct lane *l)
{
    const struct runner *r;
    DL_FOREACH(l->runners, r)
    if (r->state < RUNNER_READY || r->use == USE_NONE)
        return false;
    return true;
}

bool
runners_can_stand_still(const struct lane *l)
{
    const struct runner *r;
    DL_FOREACH(l->runners, r)
    if (r->state == RUNNER_FORKING || r->use == USE_NONE)
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
    int64_t have = 0, making = 0, want = l->config->pool;

    DL_FOREACH(l->runners, r)
    {
        have += r->use == USE_POOL;
        making += r->state < RUNNER_READY;
    }
    if (j && j->is_alone && j->phase != PHASE_ACQUIRE)
        return;
    if (j && (j->phase == PHASE_QUIET || (j->is_asked && strcmp(j->stage, "timing") == 0)))
        return;
    if (j && j->phase == PHASE_ACQUIRE)
        want += j->is_registration || j->reference ? 0 : 1;
    for (; have < want && making < MAKING_MAX; have++, making++) {
        if (runner_new(l, &err) != 0) {
            log_warn(l->device.name, "%s", err.text);
            uv_timer_start(&l->retry_timer, retry_cb, RETRY_MS, 0);
            return;
        }
    }
}

json_t *
runners_pool_json(const struct lane *l)
{
    int ready = runners_count(l, USE_POOL, true);

    return json_pack("{s:i, s:i, s:I, s:I, s:I, s:f}", "ready", ready, "making",
                     runners_count(l, USE_POOL, false) - ready, "most", (json_int_t)l->config->pool, "made",
                     (json_int_t)l->supply.made, "lost", (json_int_t)l->supply.lost, "waited_s",
                     l->supply.waited_s);
}

void
runners_make_room(struct lane *l)
{
    struct runner *r, *next;

    DL_FOREACH_SAFE(l->runners, r, next)
    {
        if (r->use != USE_NONE && (!l->job || (r != l->job->candidate && r != l->job->reference)))
            runner_discard(r);
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
        l->references.evicted++;
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
