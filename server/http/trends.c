#include "server/http/handlers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/classes.h"
#include "common/clock.h"
#include "common/json.h"
#include "server/http/answers.h"

/* Questions about many submissions at once. All are answered from sums that the store keeps, of the caller's scope. */

static const struct window {
    const char *name;
    int64_t length_s;
    int span_s;
} windows[] = {
    { "5m", 300, STORE_TREND_MINUTE_S },       { "1h", 3600, STORE_TREND_MINUTE_S },
    { "24h", 86400, STORE_TREND_QUARTER_S },   { "7d", 7 * 86400, STORE_TREND_LONG_S },
    { "30d", 30 * 86400, STORE_TREND_LONG_S },
};

/* The requested window, of those of at least least_s; NULL: the problem is sent. */
static const struct window *
window_of(struct exchange *x, const char *otherwise, int64_t least_s)
{
    const char *name = target_value(&x->target, "window");
    char detail[64] = "is one of";

    if (!name)
        name = otherwise;
    for (size_t i = 0; i < ARRAY_LEN(windows); i++) {
        if (windows[i].length_s < least_s)
            continue;
        if (strcmp(windows[i].name, name) == 0)
            return &windows[i];
        snprintf(detail + strlen(detail), sizeof(detail) - strlen(detail), " %s", windows[i].name);
    }
    exchange_bad_parameter(x, "window", detail);
    return NULL;
}

/* --- /v1/trends --- */

/* 30 days of six hours, and the one that has begun. */
#define STRETCHES_MAX 122

struct stretch {
    int64_t n, by_class[CLASS_N], rewarded;
    int64_t bins[STORE_REWARD_NBINS];
    double reward_sum;
    int64_t wait_ms, device_ms;
};

struct trend {
    int64_t since_s;
    int span_s, n;
    struct stretch stretches[STRETCHES_MAX];
    int64_t entered[STAGE_NSTAGES], passed[STAGE_NSTAGES], failed[STAGE_NSTAGES], skipped[STAGE_NSTAGES];
    json_t *classes; /* view */
};

/*
 * A submission that failed before a stage did not enter it; one that reached a later stage passed or skipped it. A
 * correct submission that ended before a stage was excused from it: timing without a GPU, or what "until" left out.
 */
static void
add_stages(struct trend *t, const struct trend_row *row)
{
    int passed = stage_find(row->passed), failed = stage_find(row->failed_at);
    bool is_ok = class_find(row->class_) == CLASS_OK;

    for (int i = 0; i < STAGE_NSTAGES; i++) {
        bool is_failure = i == failed, is_pass = i <= passed && !is_failure;
        t->passed[i] += is_pass ? row->n : 0;
        t->failed[i] += is_failure ? row->n : 0;
        t->entered[i] += is_pass || is_failure ? row->n : 0;
        t->skipped[i] += is_ok && i > passed ? row->n : 0;
    }
}

static void
trend_row_cb(void *arg, const struct trend_row *row)
{
    struct trend *t = arg;
    int64_t i = (row->start_s - t->since_s) / t->span_s;

    if (i < 0 || i >= STRETCHES_MAX) /* the clock was set back: of the future */
        return;
    if (i >= t->n)
        t->n = (int)i + 1;
    struct stretch *s = &t->stretches[i];
    s->n += row->n;
    s->wait_ms += row->wait_ms;
    s->device_ms += row->device_ms;
    s->by_class[class_find(row->class_)] += row->n;
    if (row->reward_bin >= 0 && row->reward_bin < STORE_REWARD_NBINS) {
        s->bins[row->reward_bin] += row->n;
        s->rewarded += row->n;
        s->reward_sum += row->reward_sum;
    }
    json_t *counted = json_object_get(t->classes, row->class_);
    json_object_set_new(t->classes, row->class_, json_integer(json_integer_value(counted) + row->n));
    add_stages(t, row);
}

static json_t *
stretch_json(const struct trend *t, int i)
{
    const struct stretch *s = &t->stretches[i];
    json_t *bins = json_array();

    for (int k = 0; k < STORE_REWARD_NBINS; k++)
        json_array_append_new(bins, json_integer((json_int_t)s->bins[k]));
    return json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:o, s:o}", "start",
                     time_json((t->since_s + (int64_t)i * t->span_s) * 1000), "n", (json_int_t)s->n, "ok",
                     (json_int_t)s->by_class[CLASS_OK], "hack", (json_int_t)s->by_class[CLASS_HACK], "policy",
                     (json_int_t)s->by_class[CLASS_POLICY], "infra", (json_int_t)s->by_class[CLASS_INFRA],
                     "wait_ms", s->n ? json_integer((json_int_t)(s->wait_ms / s->n)) : json_null(),
                     "device_ms", (json_int_t)s->device_ms, "reward",
                     s->rewarded ? json_real(s->reward_sum / (double)s->rewarded) : json_null(), "rewards",
                     bins);
}

static json_t *
trend_json(const struct window *w, const struct trend *t)
{
    json_t *stages = json_object(), *stretches = json_array();
    int64_t n = 0;

    for (int i = 0; i < STAGE_NSTAGES; i++)
        json_object_set_new(stages, stage_name((enum stage)i),
                            json_pack("{s:I, s:I, s:I, s:I}", "entered", (json_int_t)t->entered[i], "pass",
                                      (json_int_t)t->passed[i], "fail", (json_int_t)t->failed[i], "skip",
                                      (json_int_t)t->skipped[i]));
    for (int i = 0; i < t->n; i++) {
        n += t->stretches[i].n;
        json_array_append_new(stretches, stretch_json(t, i));
    }
    return json_pack("{s:s, s:o, s:i, s:I, s:o, s:O, s:o}", "window", w->name, "since",
                     time_json(t->since_s * 1000), "step_s", t->span_s, "n", (json_int_t)n, "stages", stages,
                     "classes", t->classes, "steps", stretches);
}

struct trend_read {
    struct exchange_read call;
    const struct window *window;
    char scope[STORE_SCOPE_SIZE];
    struct trend trend;
};

static int
read_trend(struct exchange_read *call, struct store_reader *r, struct error *err)
{
    struct trend_read *c = (struct trend_read *)call;

    return reader_each_trend(r, c->scope, c->window->span_s, c->trend.since_s, trend_row_cb, &c->trend, err);
}

static void
answer_trend(struct exchange *x, struct exchange_read *call)
{
    struct trend_read *c = (struct trend_read *)call;

    exchange_json(x, 200, trend_json(c->window, &c->trend));
}

void
trend_show(struct exchange *x)
{
    static const struct exchange_read call = { .read = read_trend, .answer = answer_trend, .what = "counts" };
    const struct window *w = window_of(x, "1h", 0);

    if (!w)
        return;
    int64_t since_s = clock_wall_ms() / 1000 - w->length_s;
    struct trend_read *c = exchange_read_new(x, &call, sizeof(*c));
    if (!c)
        return;
    c->trend.classes = c->call.document = json_object();
    c->window = w;
    /* Whole stretches: the one that the window begins in counts. */
    c->trend.since_s = since_s - since_s % w->span_s;
    c->trend.span_s = w->span_s;
    c->trend.n = (int)((clock_wall_ms() / 1000 - c->trend.since_s) / w->span_s) + 1;
    store_scope(exchange_client(x), c->scope);
    exchange_read(x, &c->call);
}

/* --- /v1/failures --- */

/* A list of the sums: the query, and the result. */
struct sums_read {
    struct page_read page;
    const struct window *window;
    const char *client;           /* NULL: all may be seen */
    char id[HASH_TEXT_SIZE + 32]; /* the task, or the cursor */
    const char *run, *class_;     /* NULL: any */
    int64_t step;                 /* of the run; < 0: any */
    int64_t from;                 /* seconds or milliseconds since 1970 */
    json_t *records;
    int64_t all_n, all_rows; /* of failures, also of those beyond the limit */
};

static void
free_sums(struct exchange_read *call)
{
    json_decref(((struct sums_read *)call)->records);
    exchange_read_free(call);
}

/* NULL: the problem is sent. */
static struct sums_read *
sums_read_new(struct exchange *x, const struct exchange_read *call, int limit)
{
    struct sums_read *c = page_read_new(x, call, sizeof(*c), limit);

    if (c)
        c->client = exchange_read_keep(&c->page.call, exchange_client(x));
    return c;
}

static void
failure_row_cb(void *arg, const struct failure_row *row)
{
    struct sums_read *c = arg;

    c->all_n = row->all_n;
    c->all_rows = row->all_rows;
    json_array_append_new(c->page.call.items,
                          json_pack("{s:s, s:s?, s:s?, s:I, s:o, s:o, s:s}", "class", row->class_,
                                    "failed_at", *row->failed_at ? row->failed_at : NULL, "message",
                                    *row->message ? row->message : NULL, "n", (json_int_t)row->n, "first",
                                    time_json(row->first_ms), "last", time_json(row->last_ms), "example",
                                    row->last_id));
}

static int
read_failures(struct exchange_read *call, struct store_reader *r, struct error *err)
{
    struct sums_read *c = (struct sums_read *)call;

    const struct failure_filter f = { .scope = c->page.scope,
                                      .task_id = call->task ? call->task_id : NULL,
                                      .run = c->run,
                                      .class_ = c->class_,
                                      .since_s = c->from,
                                      .limit = c->page.limit };

    return reader_each_failure(r, &f, failure_row_cb, c, err);
}

static void
answer_failures(struct exchange *x, struct exchange_read *call)
{
    struct sums_read *c = (struct sums_read *)call;

    exchange_json(x, 200,
                  json_pack("{s:s, s:o, s:I, s:I, s:O}", "window", c->window->name, "since",
                            time_json(c->from * 1000), "n", (json_int_t)c->all_n, "kinds",
                            (json_int_t)c->all_rows, "items", c->page.call.items));
}

void
failure_list(struct exchange *x)
{
    static const struct exchange_read call = {
        .read = read_failures, .answer = answer_failures, .free = free_sums, .what = "failures"
    };
    const struct window *w = window_of(x, "24h", 86400);
    const char *class_;
    int limit = w ? exchange_limit(x) : 0;

    if (limit == 0 || !exchange_class(x, &class_))
        return;
    struct sums_read *c = sums_read_new(x, &call, limit);
    if (!c)
        return;
    c->run = exchange_read_keep(&c->page.call, target_value(&x->target, "run"));
    c->class_ = exchange_read_keep(&c->page.call, class_);
    int64_t since_s = clock_wall_ms() / 1000 - w->length_s;
    c->window = w;
    c->from = since_s - since_s % STORE_FAILURE_SPAN_S;
    exchange_read_of_task(x, &c->page.call, target_value(&x->target, "task"));
}

/* --- /v1/leaderboard, /v1/tasks/{}/leaders --- */

static json_t *
task_sum_json(const struct task_sum_row *row)
{
    return json_pack("{s:s, s:s?, s:o, s:I, s:I, s:I, s:o, s:o, s:o}", "task", row->id, "task_name",
                     row->name, "level", row->level ? json_integer(row->level) : json_null(), "n",
                     (json_int_t)row->n, "ok", (json_int_t)row->ok, "cheats", (json_int_t)row->cheats,
                     "reward", real_or_null(row->reward), "speedup", real_or_null(row->speedup), "last",
                     time_json(row->last_ms));
}

static void
task_sum_cb(void *arg, const struct task_sum_row *row)
{
    struct page_read *page = arg;

    if (page_is_full(page))
        return;
    json_array_append_new(page->call.items, task_sum_json(row));
    snprintf(page->last, sizeof(page->last), "%lld.%s", (long long)row->last_ms, row->id);
}

static int
read_leaderboard(struct exchange_read *call, struct store_reader *r, struct error *err)
{
    struct sums_read *c = (struct sums_read *)call;

    return reader_each_task_sum(r, c->page.scope, c->from, c->id, c->page.limit + 1, task_sum_cb, c, err);
}

void
leaderboard_list(struct exchange *x)
{
    static const struct exchange_read call = {
        .read = read_leaderboard, .answer = page_answer, .free = free_sums, .what = "tasks"
    };
    const char *before_id;
    int64_t before_ms;
    int limit = exchange_limit(x);

    if (!limit || !exchange_cursor(x, &before_ms, &before_id))
        return;
    if (before_ms != INT64_MAX && !hash_is_valid(before_id)) {
        exchange_bad_parameter(x, "cursor", "is not a cursor of this list");
        return;
    }
    struct sums_read *c = sums_read_new(x, &call, limit);
    if (!c)
        return;
    c->from = before_ms;
    snprintf(c->id, sizeof(c->id), "%s", before_id);
    exchange_read(x, &c->page.call);
}

static void
one_sum_cb(void *arg, const struct task_sum_row *row)
{
    json_decref(*(json_t **)arg);
    *(json_t **)arg = task_sum_json(row);
}

static void
leader_cb(void *arg, const struct leader_row *row)
{
    json_array_append_new(
        arg,
        json_pack("{s:s, s:s?, s:s?, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "id", row->id, "client",
                  row->client, "gpu", row->gpu, "speedup", real_or_null(row->speedup), "speedup_lo",
                  real_or_null(row->speedup_lo), "speedup_hi", real_or_null(row->speedup_hi), "candidate_ms",
                  real_or_null(row->candidate_ms), "reference_ms", real_or_null(row->reference_ms), "reward",
                  real_or_null(row->reward), "finished", time_json(row->finished_ms)));
}

static void
record_cb(void *arg, const struct record_row *row)
{
    json_array_insert_new(arg, 0,
                          json_pack("{s:s, s:o, s:o}", "id", row->id, "speedup", real_or_null(row->speedup),
                                    "finished", time_json(row->finished_ms)));
}

static int
read_leaders(struct exchange_read *call, struct store_reader *r, struct error *err)
{
    struct sums_read *c = (struct sums_read *)call;
    struct task_row task = { 0 };

    snprintf(c->id, sizeof(c->id), "%s", call->task_id);
    int rc = reader_get_task(r, c->id, &task, err);
    if (rc == 0)
        c->page.call.document =
            json_pack("{s:s, s:s?, s:o, s:i, s:i, s:i, s:n, s:n, s:n}", "task", task.id, "task_name",
                      task.name, "level", task.level ? json_integer(task.level) : json_null(), "n", 0, "ok",
                      0, "cheats", 0, "reward", "speedup", "last");
    task_row_release(&task);
    if (rc == 0 && !c->page.call.document)
        rc = error_set(err, ERR_NOMEM, "no memory for the answer");
    if (rc == 0)
        rc = reader_get_task_sum(r, c->page.scope, c->id, one_sum_cb, &c->page.call.document, err);
    if (rc == 0)
        rc = reader_each_leader(r, c->id, c->client, c->page.limit, leader_cb, c->page.call.items, err);
    if (rc == 0)
        rc = reader_each_record(r, c->page.scope, c->id, record_cb, c->records, err);
    return rc;
}

static void
answer_leaders(struct exchange *x, struct exchange_read *call)
{
    struct sums_read *c = (struct sums_read *)call;

    json_object_set(c->page.call.document, "items", c->page.call.items);
    json_object_set(c->page.call.document, "records", c->records);
    exchange_json(x, 200, ptr_take(&c->page.call.document));
}

/* {"task","n",… as in the leaderboard; "items": the best, "records": when the best was beaten, oldest first} */
void
leader_list(struct exchange *x)
{
    static const struct exchange_read call = {
        .read = read_leaders, .answer = answer_leaders, .free = free_sums, .what = "task"
    };
    int limit = exchange_limit(x);
    struct sums_read *c = sums_read_new(x, &call, limit);

    if (!c)
        return;
    c->records = json_array();
    exchange_read_of_task(x, &c->page.call, x->target.segments[2]);
}

/* --- GET /v1/groups --- */

static void
group_sum_cb(void *arg, const struct group_sum_row *row)
{
    struct page_read *page = arg;

    if (page_is_full(page))
        return;
    json_t *states = json_object();
    for (int i = 0; i < SUBMISSION_NSTATES; i++)
        json_object_set_new(states, submission_state_name((enum submission_state)i),
                            json_integer((json_int_t)row->by_state[i]));
    json_array_append_new(page->call.items,
                          json_pack("{s:s, s:s, s:s?, s:s?, s:s?, s:o, s:i, s:o, s:I, s:o, s:o}", "id",
                                    row->id, "task", row->task_id, "task_name", row->task_name, "client",
                                    row->client, "run", row->run, "step",
                                    row->step < 0 ? json_null() : json_integer((json_int_t)row->step), "size",
                                    row->size, "states", states, "ok", (json_int_t)row->ok, "reward",
                                    real_or_null(row->reward), "created", time_json(row->created_ms)));
    snprintf(page->last, sizeof(page->last), "%s", row->id);
}

#define GROUPS_MAX 50

static int
read_groups(struct exchange_read *call, struct store_reader *r, struct error *err)
{
    struct sums_read *c = (struct sums_read *)call;

    const struct groups_filter f = { .client = c->client,
                                     .run = c->run,
                                     .step = c->step,
                                     .before = *c->id ? c->id : NULL,
                                     .limit = c->page.limit + 1 };

    return reader_each_group(r, &f, group_sum_cb, c, err);
}

void
group_list(struct exchange *x)
{
    static const struct exchange_read call = {
        .read = read_groups, .answer = page_answer, .free = free_sums, .what = "groups"
    };
    const char *cursor = target_value(&x->target, "cursor"), *run;
    int limit = exchange_limit(x);
    int64_t step;

    if (limit == 0 || !exchange_run(x, &run, &step))
        return;
    if (limit > GROUPS_MAX) {
        exchange_bad_parameter(x, "limit", "is at most 50 for groups");
        return;
    }
    if (cursor && !id_is_valid(cursor)) {
        exchange_bad_parameter(x, "cursor", "is not a cursor of this list");
        return;
    }
    struct sums_read *c = sums_read_new(x, &call, limit);
    if (!c)
        return;
    snprintf(c->id, sizeof(c->id), "%s", cursor ? cursor : "");
    c->step = step;
    c->run = exchange_read_keep(&c->page.call, run);
    exchange_read(x, &c->page.call);
}
