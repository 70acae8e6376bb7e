#include "server/http/handlers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/json.h"
#include "server/store/labels.h"
#include "server/http/answers.h"

/* Training runs, from the labels of their submissions: computed from sums, within the caller's scope. */

#define POINTS_MAX 500 /* of a curve */
#define COLUMNS_MAX 50 /* of a table of tasks by step */
#define LINE_SIZE (LABEL_MAX_CHARS * 4 + 1)

struct run_read {
    struct page_read page;
    char run[LINE_SIZE]; /* the run, or where a page goes on */
    int64_t before_ms;
    int64_t first_step, last_step; /* of the run; < 0: none */
    json_t *speedups;              /* rows of it */
    bool is_there;                 /* the run */
    char *text;                    /* the answer, made where it is read: it may be long; NULL: no memory */
};

static void
free_run(struct exchange_read *call)
{
    struct run_read *c = (struct run_read *)call;

    json_decref(c->speedups);
    free(c->text);
    exchange_read_free(call);
}

/* --- results of the counts --- */

static json_t *
step_json(int64_t step)
{
    return step < 0 ? json_null() : json_integer((json_int_t)step);
}

static json_t *
share(int64_t part, int64_t whole)
{
    return whole > 0 ? json_real((double)part / (double)whole) : json_null();
}

/* The share of those that were judged; null where some are correct and none was timed. */
static json_t *
fast(const struct run_counts *c, double above)
{
    int64_t n = 0, timed = 0;

    for (int i = 0; i < STORE_SPEEDUP_NBINS; i++) {
        timed += c->speedups[i];
        n += i > 0 && store_speedup_edges[i - 1] >= above ? c->speedups[i] : 0;
    }
    return timed == 0 && c->ok > 0 ? json_null() : share(n, c->n - c->infra);
}

static void
add_counts(json_t *out, const struct run_counts *c)
{
    const int64_t judged = c->n - c->infra;
    const double reward = c->rewarded > 0 ? c->reward_sum / (double)c->rewarded : NAN;
    AUTO_JSON json_t *counts = json_pack(
        "{s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "n", (json_int_t)c->n, "infra",
        (json_int_t)c->infra, "ok", (json_int_t)c->ok, "cheats", (json_int_t)c->cheats, "reward",
        real_or_null(reward), "correct", share(c->ok, judged), "hack", share(c->cheats, judged), "fast_1",
        fast(c, 1), "fast_1.5", fast(c, 1.5), "fast_2", fast(c, 2), "speedup", real_or_null(c->speedup));

    json_object_update(out, counts);
}

/* How many were how fast: [{"above","to","n"}], of which the first has no "above" and the last no "to". */
static json_t *
speedups_json(const struct run_counts *c)
{
    json_t *out = json_array();

    for (int i = 0; i < STORE_SPEEDUP_NBINS; i++)
        json_array_append_new(
            out, json_pack("{s:o, s:o, s:I}", "above", real_or_null(i > 0 ? store_speedup_edges[i - 1] : NAN),
                           "to", real_or_null(i < STORE_SPEEDUP_NBINS - 1 ? store_speedup_edges[i] : NAN),
                           "n", (json_int_t)c->speedups[i]));
    return out;
}

static json_t *
run_json(const struct run_row *row)
{
    json_t *out = json_pack("{s:s, s:o, s:o, s:o, s:o}", "run", row->run, "first_step",
                            step_json(row->first_step), "last_step", step_json(row->last_step), "first",
                            time_json(row->first_ms), "last", time_json(row->last_ms));
    if (out)
        add_counts(out, &row->counts);
    return out;
}

/* --- GET /v1/runs --- */

static void
run_cb(void *arg, const struct run_row *row)
{
    struct run_read *c = arg;

    if (page_is_full(&c->page))
        return;
    json_array_append_new(c->page.call.items, run_json(row));
    snprintf(c->page.last, sizeof(c->page.last), "%lld.%s", (long long)row->last_ms, row->run);
}

static int
read_runs(struct exchange_read *call, struct store_reader *r, struct error *err)
{
    struct run_read *c = (struct run_read *)call;

    return reader_each_run(r, c->page.scope, c->before_ms, c->run, c->page.limit + 1, run_cb, c, err);
}

/* NULL: the problem is sent. */
static struct run_read *
run_read_new(struct exchange *x, const struct exchange_read *call, const char *run)
{
    struct run_read *c = page_read_new(x, call, sizeof(*c), exchange_limit(x));

    if (c)
        snprintf(c->run, sizeof(c->run), "%s", run);
    return c;
}

void
run_list(struct exchange *x)
{
    static const struct exchange_read call = {
        .read = read_runs, .answer = page_answer, .free = free_run, .what = "runs"
    };
    const char *before;
    int64_t before_ms;

    if (!exchange_cursor(x, &before_ms, &before))
        return;
    if (strlen(before) >= LINE_SIZE) {
        exchange_bad_parameter(x, "cursor", "is not a cursor of this list");
        return;
    }
    struct run_read *c = run_read_new(x, &call, before);
    if (!c)
        return;
    c->before_ms = before_ms;
    exchange_read(x, &c->page.call);
}

/* --- GET /v1/runs/{}, /v1/runs/{}/tasks --- */

static void
one_run_cb(void *arg, const struct run_row *row)
{
    struct run_read *c = arg;

    c->is_there = true;
    c->page.call.document = run_json(row);
    c->speedups = speedups_json(&row->counts);
    c->first_step = row->first_step;
    c->last_step = row->last_step;
}

/* Steps that one point stands for, so that there are at most most of them. */
static int64_t
width_of(const struct run_read *c, int most)
{
    return (c->last_step - c->first_step) / most + 1;
}

static void
point_cb(void *arg, const struct run_step_row *row)
{
    struct run_read *c = arg;
    json_t *point = json_pack("{s:o}", "step", step_json(row->step));

    if (point)
        add_counts(point, &row->counts);
    json_array_append_new(c->page.call.items, point);
}

/* The run, or NULL; 0 or a code. */
static int
read_run(struct run_read *c, struct store_reader *r, struct error *err)
{
    c->first_step = c->last_step = LABEL_STEP_NONE;
    return reader_get_run(r, c->page.scope, c->run, one_run_cb, c, err);
}

static int
read_curve(struct exchange_read *call, struct store_reader *r, struct error *err)
{
    struct run_read *c = (struct run_read *)call;
    int rc = read_run(c, r, err);

    if (rc == 0 && c->last_step >= 0)
        rc = reader_each_run_step(r, c->page.scope, c->run, c->first_step, width_of(c, POINTS_MAX), point_cb,
                                  c, err);
    if (rc < 0 || !c->is_there)
        return rc;
    json_object_set(c->page.call.document, "speedups", c->speedups);
    json_object_set_new(c->page.call.document, "step_width",
                        json_integer((json_int_t)width_of(c, POINTS_MAX)));
    json_object_set(c->page.call.document, "steps", c->page.call.items);
    c->text = exchange_text_of(ptr_take(&c->page.call.document));
    return 0;
}

static void
answer_run(struct exchange *x, struct exchange_read *call)
{
    struct run_read *c = (struct run_read *)call;

    if (!c->is_there) {
        exchange_problem(x, PROBLEM_NOT_FOUND, "there is no run \"%.100s\" with a verdict", c->run);
    } else if (!c->text) {
        exchange_json(x, 200, NULL); /* responds that there was no memory */
    } else {
        size_t size = strlen(c->text);
        exchange_set_bytes(x, 200, "application/json", ptr_take(&c->text), size);
        exchange_send(x);
    }
}

static void
task_step_cb(void *arg, const struct run_step_row *row)
{
    struct run_read *c = arg;
    json_t *last = json_array_get(c->page.call.items, json_array_size(c->page.call.items) - 1);
    const char *id = json_string_value(json_object_get(last, "task"));

    if (!id || strcmp(id, row->task_id) != 0) {
        last = json_pack("{s:s, s:s?, s:[]}", "task", row->task_id, "task_name", row->task_name, "steps");
        json_array_append_new(c->page.call.items, last);
    }
    json_t *point = json_pack("{s:o}", "step", step_json(row->step));
    if (point)
        add_counts(point, &row->counts);
    json_array_append_new(json_object_get(last, "steps"), point);
}

static int
read_tasks(struct exchange_read *call, struct store_reader *r, struct error *err)
{
    struct run_read *c = (struct run_read *)call;
    int rc = read_run(c, r, err);

    if (rc == 0 && c->last_step >= 0)
        rc = reader_each_run_task(r, c->page.scope, c->run, c->first_step, width_of(c, COLUMNS_MAX),
                                  c->page.limit, task_step_cb, c, err);
    if (rc < 0 || !c->is_there)
        return rc;
    c->text = exchange_text_of(json_pack("{s:s, s:o, s:o, s:I, s:O}", "run", c->run, "first_step",
                                         step_json(c->first_step), "last_step", step_json(c->last_step),
                                         "step_width", (json_int_t)width_of(c, COLUMNS_MAX), "items",
                                         c->page.call.items));
    return 0;
}

static void
ask_run(struct exchange *x, const struct exchange_read *call)
{
    struct run_read *c = run_read_new(x, call, x->target.segments[2]);

    if (c)
        exchange_read(x, &c->page.call);
}

/* {"run","n",… as in the list; "speedups": how many were how fast, "steps": a curve's points} */
void
run_show(struct exchange *x)
{
    static const struct exchange_read call = {
        .read = read_curve, .answer = answer_run, .free = free_run, .what = "run"
    };

    ask_run(x, &call);
}

/* Its tasks with most verdicts, each with its steps. */
void
run_tasks(struct exchange *x)
{
    static const struct exchange_read call = {
        .read = read_tasks, .answer = answer_run, .free = free_run, .what = "run"
    };

    ask_run(x, &call);
}
