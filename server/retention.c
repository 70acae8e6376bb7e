#include "server/retention.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/json.h"
#include "common/log.h"

/*
 * Theory of operation. A sweep goes through its phases in small writes with a
 * pause after each, so that it never keeps other writes waiting for longer
 * than a batch takes. What it removes is the store's to decide (sweep.c).
 */

#define DAY_MS (INT64_C(86400) * 1000)
#define PAUSE_MS 5
#define PAGE_BYTES 4096 /* SQLite's, unless the file was made otherwise */

enum sweep_phase { BY_AGE, COUNT, BY_ROWS, LOGS, VACUUM, PHASES };

/* The counts of the last sweep, or of the present one so far. */
struct sweep_counts {
    int64_t started_ms, finished_ms; /* wall clock; 0: never, not yet */
    int64_t submissions, groups, logs, blobs, pages;
    struct error err;
};

struct retention {
    const struct config *config;
    struct store *store;
    uv_timer_t timer; /* the next sweep, or the next batch of this one */
    bool is_running, is_stopped, wants_vacuum;
    enum sweep_phase phase;
    struct store_sweep step;
    struct sweep_counts now, last;
    struct store_counts stored; /* all zero where they could not be read */
};

static void next_batch(struct retention *r);
static void go_on(struct retention *r, enum sweep_phase from);

static void
timer_cb(uv_timer_t *timer)
{
    struct retention *r = timer->data;

    if (r->is_running)
        next_batch(r);
    else
        retention_sweep(r, false);
}

static void
rest(struct retention *r)
{
    if (!r->is_stopped)
        uv_timer_start(&r->timer, timer_cb, (uint64_t)r->config->retention_interval_s * 1000, 0);
}

static void
finish(struct retention *r)
{
    struct sweep_counts *t = &r->now;

    t->finished_ms = clock_wall_ms();
    r->last = *t;
    r->is_running = false;
    if (t->err.code != ERR_NONE)
        log_error("retention", "it ended early: %s", t->err.text);
    else if (t->submissions + t->logs + t->pages > 0)
        log_info("retention",
                 "removed %lld submissions in %lld groups or alone, captured output of %lld more, %lld texts",
                 (long long)t->submissions, (long long)t->groups, (long long)t->logs, (long long)t->blobs);
    rest(r);
}

static void
count_cb(void *arg, struct store_reader *reader)
{
    struct retention *r = arg;

    if (reader_count(reader, &r->stored, NULL) != 0)
        r->stored = (struct store_counts){ 0 };
}

static void
counted_cb(void *arg)
{
    struct retention *r = arg;

    if (!r->is_stopped)
        go_on(r, BY_ROWS);
}

/* Whether there is anything to do in a phase; step is ready then. */
static bool
prepare(struct retention *r, enum sweep_phase phase)
{
    const struct config *c = r->config;
    int64_t now_ms = clock_wall_ms();

    r->step = (struct store_sweep){ .what = SWEEP_SUBMISSIONS, .now_ms = now_ms, .most = INT64_MAX };
    switch (phase) {
    case BY_AGE:
        r->step.before_ms = now_ms - c->retention_days * DAY_MS;
        return c->retention_days > 0;
    case COUNT:
        r->stored = (struct store_counts){ 0 };
        return c->retention_rows > 0 && store_read(r->store, count_cb, counted_cb, r, NULL) == 0;
    case BY_ROWS:
        r->step.before_ms = now_ms + 1;
        r->step.most = r->stored.by_state[SUBMISSION_DONE] + r->stored.by_state[SUBMISSION_CANCELLED] -
                       c->retention_rows;
        return c->retention_rows > 0 && r->step.most > 0;
    case LOGS:
        r->step.what = SWEEP_LOGS;
        r->step.before_ms = now_ms - c->retention_log_days * DAY_MS;
        return c->retention_log_days > 0;
    default:
        r->step.what = SWEEP_VACUUM;
        return r->wants_vacuum || r->now.submissions + r->now.logs > 0;
    }
}

static void
add_up(struct retention *r)
{
    r->now.submissions += r->step.submissions;
    r->now.groups += r->step.groups;
    r->now.logs += r->step.logs;
    r->now.blobs += r->step.blobs;
    r->now.pages += r->step.pages;
}

/* The next phase that has anything to do, or the end. */
static void
go_on(struct retention *r, enum sweep_phase from)
{
    for (r->phase = from; r->phase < PHASES; r->phase++) {
        if (prepare(r, r->phase)) {
            if (r->phase != COUNT)
                next_batch(r);
            return;
        }
    }
    finish(r);
}

static void
batch_cb(void *arg, int code, const struct error *err)
{
    struct retention *r = arg;

    if (r->is_stopped)
        return;
    if (code != 0 || r->step.is_over)
        add_up(r);
    if (code != 0) {
        r->now.err = *err;
        finish(r);
    } else if (r->step.is_over) {
        go_on(r, r->phase + 1);
    } else {
        uv_timer_start(&r->timer, timer_cb, PAUSE_MS, 0);
    }
}

static void
next_batch(struct retention *r)
{
    struct error err = { 0 };

    if (store_sweep_step(r->store, &r->step, batch_cb, r, &err) != 0)
        batch_cb(r, (int)err.code, &err);
}

bool
retention_sweep(struct retention *r, bool vacuum)
{
    if (r->is_running || r->is_stopped)
        return false;
    r->is_running = true;
    r->wants_vacuum = vacuum;
    r->now = (struct sweep_counts){ .started_ms = clock_wall_ms() };
    go_on(r, BY_AGE);
    return true;
}

/* --- life --- */

int
retention_new(uv_loop_t *loop, const struct config *config, struct store *store, struct retention **out,
              struct error *err)
{
    struct retention *r = calloc(1, sizeof(*r));

    *out = r;
    if (!r)
        return error_set(err, ERR_NOMEM, "no memory for retention");
    r->config = config;
    r->store = store;
    uv_timer_init(loop, &r->timer);
    r->timer.data = r;
    uv_unref((uv_handle_t *)&r->timer);
    rest(r);
    return 0;
}

void
retention_stop(struct retention *r)
{
    r->is_stopped = true;
    uv_close((uv_handle_t *)&r->timer, NULL);
}

void
retention_free(struct retention *r)
{
    free(r);
}

void
retention_reload(struct retention *r)
{
    if (!r->is_running)
        rest(r);
}

/* --- telling --- */

static json_t *
tally_json(const struct sweep_counts *t)
{
    if (t->finished_ms == 0)
        return json_null();
    return json_pack("{s:o, s:o, s:s?, s:I, s:I, s:I, s:I, s:I}", "started", time_json(t->started_ms),
                     "finished", time_json(t->finished_ms), "error",
                     t->err.code != ERR_NONE ? t->err.text : NULL, "submissions", (json_int_t)t->submissions,
                     "groups", (json_int_t)t->groups, "logs", (json_int_t)t->logs, "blobs",
                     (json_int_t)t->blobs, "freed_bytes", (json_int_t)t->pages * PAGE_BYTES);
}

json_t *
retention_json(const struct retention *r)
{
    const struct config *c = r->config;

    return json_pack("{s:I, s:I, s:I, s:I, s:b, s:o}", "days", (json_int_t)c->retention_days, "rows",
                     (json_int_t)c->retention_rows, "log_days", (json_int_t)c->retention_log_days,
                     "interval_s", (json_int_t)c->retention_interval_s, "running", (int)r->is_running, "last",
                     tally_json(&r->last));
}
