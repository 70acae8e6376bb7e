#include "server/keeper.h"

#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/log.h"

/*
 * Theory of operation. A sweep goes through its phases in small writes with a
 * pause after each, so that it never keeps other writes waiting for longer
 * than a batch takes. What it removes is the store's to decide (sweep.c).
 */

#define DAY_MS (INT64_C(86400) * 1000)
#define PAUSE_MS 5
#define PAGE_BYTES 4096 /* SQLite's, unless the file was made otherwise */

enum phase { BY_AGE, BY_ROWS, LOGS, VACUUM, PHASES };

/* What the last sweep did, or the present one so far. */
struct tally {
    int64_t started_ms, finished_ms; /* wall clock; 0: never, not yet */
    int64_t submissions, groups, logs, blobs, pages;
    struct error err;
};

struct keeper {
    const struct config *config;
    struct store *store;
    uv_timer_t timer; /* the next sweep, or the next batch of this one */
    bool is_running, is_stopped, wants_vacuum;
    enum phase phase;
    struct store_sweep step;
    struct tally now, last;
};

static void next_batch(struct keeper *k);

static void
timer_cb(uv_timer_t *timer)
{
    struct keeper *k = timer->data;

    if (k->is_running)
        next_batch(k);
    else
        keeper_run(k, false);
}

static void
rest(struct keeper *k)
{
    if (!k->is_stopped)
        uv_timer_start(&k->timer, timer_cb, (uint64_t)k->config->retention_interval_s * 1000, 0);
}

static void
finish(struct keeper *k)
{
    struct tally *t = &k->now;

    t->finished_ms = clock_wall_ms();
    k->last = *t;
    k->is_running = false;
    if (t->err.code != ERR_NONE)
        log_error("retention", "it ended early: %s", t->err.text);
    else if (t->submissions + t->logs + t->pages > 0)
        log_info("retention",
                 "removed %lld submissions in %lld groups or alone, captured output of %lld more, %lld texts",
                 (long long)t->submissions, (long long)t->groups, (long long)t->logs, (long long)t->blobs);
    rest(k);
}

/* Whether there is anything to do in a phase; step is ready then. */
static bool
prepare(struct keeper *k, enum phase phase)
{
    const struct config *c = k->config;
    int64_t now_ms = clock_wall_ms();
    struct store_counts counts;

    k->step = (struct store_sweep){ .what = SWEEP_SUBMISSIONS, .now_ms = now_ms, .most = INT64_MAX };
    switch (phase) {
    case BY_AGE:
        k->step.before_ms = now_ms - c->retention_days * DAY_MS;
        return c->retention_days > 0;
    case BY_ROWS:
        k->step.before_ms = now_ms + 1;
        if (c->retention_rows == 0 || store_count(k->store, &counts, NULL) != 0)
            return false;
        k->step.most =
            counts.by_state[SUBMISSION_DONE] + counts.by_state[SUBMISSION_CANCELLED] - c->retention_rows;
        return k->step.most > 0;
    case LOGS:
        k->step.what = SWEEP_LOGS;
        k->step.before_ms = now_ms - c->retention_log_days * DAY_MS;
        return c->retention_log_days > 0;
    default:
        k->step.what = SWEEP_VACUUM;
        return k->wants_vacuum || k->now.submissions + k->now.logs > 0;
    }
}

static void
add_up(struct keeper *k)
{
    k->now.submissions += k->step.submissions;
    k->now.groups += k->step.groups;
    k->now.logs += k->step.logs;
    k->now.blobs += k->step.blobs;
    k->now.pages += k->step.pages;
}

/* The next phase that has anything to do, or the end. */
static void
go_on(struct keeper *k, enum phase from)
{
    for (k->phase = from; k->phase < PHASES; k->phase++) {
        if (prepare(k, k->phase)) {
            next_batch(k);
            return;
        }
    }
    finish(k);
}

static void
batch_cb(void *arg, int code, const struct error *err)
{
    struct keeper *k = arg;

    if (k->is_stopped)
        return;
    if (code != 0 || k->step.is_over)
        add_up(k);
    if (code != 0) {
        k->now.err = *err;
        finish(k);
    } else if (k->step.is_over) {
        go_on(k, k->phase + 1);
    } else {
        uv_timer_start(&k->timer, timer_cb, PAUSE_MS, 0);
    }
}

static void
next_batch(struct keeper *k)
{
    struct error err = { 0 };

    if (store_sweep_step(k->store, &k->step, batch_cb, k, &err) != 0)
        batch_cb(k, (int)err.code, &err);
}

bool
keeper_run(struct keeper *k, bool vacuum)
{
    if (k->is_running || k->is_stopped)
        return false;
    k->is_running = true;
    k->wants_vacuum = vacuum;
    k->now = (struct tally){ .started_ms = clock_wall_ms() };
    go_on(k, BY_AGE);
    return true;
}

/* --- life --- */

int
keeper_new(uv_loop_t *loop, const struct config *config, struct store *store, struct keeper **out,
           struct error *err)
{
    struct keeper *k = calloc(1, sizeof(*k));

    *out = k;
    if (!k)
        return error_set(err, ERR_NOMEM, "no memory for retention");
    k->config = config;
    k->store = store;
    uv_timer_init(loop, &k->timer);
    k->timer.data = k;
    uv_unref((uv_handle_t *)&k->timer);
    rest(k);
    return 0;
}

void
keeper_stop(struct keeper *k)
{
    k->is_stopped = true;
    uv_close((uv_handle_t *)&k->timer, NULL);
}

void
keeper_free(struct keeper *k)
{
    free(k);
}

void
keeper_reload(struct keeper *k)
{
    if (!k->is_running)
        rest(k);
}

/* --- telling --- */

static json_t *
tally_json(const struct tally *t)
{
    char started[CLOCK_TEXT_SIZE], finished[CLOCK_TEXT_SIZE];

    if (t->finished_ms == 0)
        return json_null();
    clock_text(t->started_ms, started);
    clock_text(t->finished_ms, finished);
    return json_pack("{s:s, s:s, s:s?, s:I, s:I, s:I, s:I, s:I}", "started", started, "finished", finished,
                     "error", t->err.code != ERR_NONE ? t->err.text : NULL, "submissions",
                     (json_int_t)t->submissions, "groups", (json_int_t)t->groups, "logs", (json_int_t)t->logs,
                     "blobs", (json_int_t)t->blobs, "freed_bytes", (json_int_t)t->pages * PAGE_BYTES);
}

json_t *
keeper_json(const struct keeper *k)
{
    const struct config *c = k->config;

    return json_pack("{s:I, s:I, s:I, s:I, s:b, s:o}", "days", (json_int_t)c->retention_days, "rows",
                     (json_int_t)c->retention_rows, "log_days", (json_int_t)c->retention_log_days,
                     "interval_s", (json_int_t)c->retention_interval_s, "running", (int)k->is_running, "last",
                     tally_json(&k->last));
}
