#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/classes.h"
#include "server/store/store.h"
#include "server/submission/attempt.h"
#include "server/submission/funnel.h"
#include "server/submission/parts.h"
#include "server/submission/pending.h"
#include "server/submission/state.h"
#include "server/submission/submission.h"
#include "server/verdict/disclosure.h"
#include "server/verdict/rewards.h"
#include "server/verdict/verdict.h"

/*
 * What a group's document is made from, so that it can be made beside the loop: rows as the store has them, and what is
 * known of those that are not finished.
 */
struct shown {
    struct submission_row row; /* owned */
    json_t *document;          /* as it is now, of one that is being judged; NULL: made from the row */
    enum state state;
    const char *cache; /* static */
};

struct showing {
    struct group_row row; /* owned */
    char *task_name;      /* owned */
    struct shown *all;
    size_t n, room;
    bool is_finished, is_short;
    /* Where it is made beside the loop: */
    uv_work_t work;
    struct funnel *funnel;
    bool is_whole;
    char *text;
    struct error err;
    funnel_text_cb *cb;
    void *arg;
};

static void
showing_release(struct showing *g)
{
    for (size_t i = 0; i < g->n; i++) {
        submission_row_release(&g->all[i].row);
        json_decref(g->all[i].document);
    }
    free(g->all);
    free(g->task_name);
    group_row_release(&g->row);
}

/* How one stands that has no verdict in the store. */
static void
look_at(struct funnel *f, struct shown *one)
{
    struct submission *s = NULL;

    s = submission_by_id(f, one->row.id);
    one->cache = s ? s->cache : "miss";
    if (s && s->attempt && s->attempt->request && !state_is_final(s->state)) {
        AUTO_JSON json_t *now = verdict_json(s);
        one->document = json_deep_copy(now); /* parts of it change as it is judged */
    }
    bool is_queued = s ? s->state == STATE_QUEUED : one->row.state == SUBMISSION_QUEUED;
    one->state = is_queued ? STATE_QUEUED : STATE_READY;
}

static bool
gather_cb(void *arg, const struct submission_row *row)
{
    struct showing *g = arg;
    struct shown *one = &g->all[g->n];

    if (g->n == g->room)
        return false;
    g->n++;
    if (submission_row_copy(row, &one->row) != 0)
        g->is_short = true;
    else if (!row->verdict)
        look_at(g->funnel, one);
    return !g->is_short;
}

/* Loop thread. 0 or an error of the store; release it in either case. */
static int
gather(struct funnel *f, const char *id, struct showing *g, struct error *err)
{
    struct task_row task = { 0 };

    g->funnel = f;
    int rc = store_get_group(f->store, id, &g->row, err);
    if (rc != 0)
        return rc;
    g->room = (size_t)g->row.size;
    g->all = calloc(g->room + 1, sizeof(*g->all));
    if (!g->all)
        return error_set(err, ERR_NOMEM, "no memory to show %s", id);
    rc = store_each_of_group(f->store, id, gather_cb, g, err);
    if (rc == 0 && g->is_short)
        rc = error_set(err, ERR_NOMEM, "no memory to show %s", id);
    if (rc == 0 && store_get_task(f->store, g->row.task_id, &task, NULL) == 0)
        g->task_name = ptr_take(&task.name);
    task_row_release(&task);
    g->is_finished = funnel_is_finished(f, id);
    return rc;
}

/* Any thread. Given; NULL: it cannot be read. */
static json_t *
item_of(struct shown *one, const char *task_name)
{
    struct submission s = { .state = one->state, .cache = one->cache };
    struct error err = { 0 };

    if (one->row.verdict)
        return json_loads(one->row.verdict, JSON_ALLOW_NUL, NULL);
    if (one->document)
        return json_incref(one->document);
    memcpy(s.id, one->row.id, sizeof(s.id));
    s.priority = one->row.priority;
    s.attempts = one->row.attempts;
    json_t *out = NULL;
    if (submission_make_attempt(&s) && attempt_read_row(s.attempt, &one->row, &err) == 0) {
        s.attempt->task.name = task_name ? strdup(task_name) : NULL;
        out = verdict_json(&s);
    }
    attempt_free(NULL, s.attempt);
    return out;
}

struct ranked {
    size_t index;
    double reward, speedup;
};

static double
number(json_t *value)
{
    return json_is_number(value) ? json_number_value(value) : -INFINITY;
}

static int
compare_ranked(const void *left, const void *right)
{
    const struct ranked *a = left, *b = right;

    if (a->reward != b->reward)
        return a->reward < b->reward ? 1 : -1;
    if (a->speedup != b->speedup)
        return a->speedup < b->speedup ? 1 : -1;
    return a->index < b->index ? -1 : 1;
}

/* Indices of the items, best reward first; those without a reward are not ranked. NULL: no memory. */
static json_t *
ranking(json_t *items)
{
    AUTO_FREE struct ranked *ranked = calloc(json_array_size(items) + 1, sizeof(*ranked));
    json_t *out = ranked ? json_array() : NULL, *item;
    size_t i, n = 0;

    if (!out)
        return NULL;
    json_array_foreach(items, i, item)
    {
        json_t *reward = json_object_get(item, "reward");
        const char *class_ = json_string_value(json_object_get(item, "class"));
        /* The speed of one that is not correct counts for nothing, and the order must not tell it. */
        json_t *components = class_find(class_) == CLASS_OK ? json_object_get(item, "components") : NULL;
        if (json_is_number(reward))
            ranked[n++] = (struct ranked){ i, json_number_value(reward),
                                           number(json_object_get(components, "speedup")) };
    }
    if (n > 1)
        qsort(ranked, n, sizeof(*ranked), compare_ranked);
    for (i = 0; i < n; i++)
        json_array_append_new(out, json_integer((json_int_t)ranked[i].index));
    return out;
}

/* Any thread. Given; NULL with err filled. */
static json_t *
items_of(struct showing *g, struct error *err)
{
    AUTO_JSON json_t *items = json_array();

    for (size_t i = 0; i < g->n; i++) {
        json_t *item = item_of(&g->all[i], g->task_name);
        if (!item || json_array_append_new(items, item) != 0) {
            error_set(err, ERR_STORE, "a submission of group %s cannot be read", g->row.id);
            return NULL;
        }
    }
    return ptr_take(&items);
}

static const char *
group_state(json_t *items, bool is_finished)
{
    json_t *item;
    size_t i, queued = 0, cancelled = 0;

    json_array_foreach(items, i, item)
    {
        const char *state = json_string_value(json_object_get(item, "state"));
        queued += state && strcmp(state, "queued") == 0;
        cancelled += state && strcmp(state, "cancelled") == 0;
    }
    size_t n = json_array_size(items);
    if (is_finished)
        return cancelled == n ? "cancelled" : "done";
    return queued == n ? "queued" : "running";
}

/* Any thread. Given; NULL with err filled. */
static json_t *
document_of(struct showing *g, struct error *err)
{
    const struct group_row *row = &g->row;
    json_t *items = items_of(g, err);

    if (!items)
        return NULL;
    if (g->is_finished)
        rescore_group(items);
    AUTO_JSON json_t *request = row->request ? json_loads(row->request, JSON_ALLOW_NUL, NULL) : NULL;
    json_t *out =
        json_pack("{s:s, s:s, s:s, s:i, s:O?, s:O?, s:O?, s:O?, s:o, s:o}", "id", row->id, "state",
                  group_state(items, g->is_finished), "task", row->task_id, "size", row->size, "metadata",
                  json_object_get(request, "metadata"), "time_top_k", json_object_get(request, "time_top_k"),
                  "deadline_s", json_object_get(request, "deadline_s"), "stop",
                  json_object_get(request, "stop"), "ranking", ranking(items), "items", items);
    if (!out)
        error_set(err, ERR_NOMEM, "no memory to show %s", row->id);
    return out;
}

json_t *
funnel_show_group(struct funnel *f, const char *id, struct error *err)
{
    struct showing g = { 0 };

    json_t *out = gather(f, id, &g, err) == 0 ? document_of(&g, err) : NULL;
    showing_release(&g);
    return out;
}

static void
print_work_cb(uv_work_t *work)
{
    struct showing *g = work->data;
    AUTO_JSON json_t *document = document_of(g, &g->err);
    json_t *items = json_object_get(document, "items");

    for (size_t i = 0; !g->is_whole && i < json_array_size(items); i++)
        json_array_set_new(items, i, disclosure_view(json_array_get(items, i)));
    g->text = document ? json_dumps(document, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    if (!g->text && g->err.code == ERR_NONE)
        error_set(&g->err, ERR_NOMEM, "no memory to show %s", g->row.id);
}

static void
printed_cb(uv_work_t *work, int status)
{
    struct showing *g = work->data;
    struct funnel *f = g->funnel;

    (void)status; /* nobody takes it out of the pool */
    g->cb(g->arg, g->text, g->text ? strlen(g->text) : 0, &g->err);
    showing_release(g);
    free(g);
    pending_end_work(f->pending);
}

void
funnel_print_group(struct funnel *f, const char *id, bool is_whole, funnel_text_cb *cb, void *arg)
{
    struct showing *g = calloc(1, sizeof(*g));
    struct error err = { 0 };

    if (!g || gather(f, id, g, &err) != 0) {
        if (!g)
            error_set(&err, ERR_NOMEM, "no memory to show %s", id);
        else
            showing_release(g);
        free(g);
        cb(arg, NULL, 0, &err);
        return;
    }
    g->is_whole = is_whole;
    g->cb = cb;
    g->arg = arg;
    g->work.data = g;
    pending_work(f->pending, &g->work, print_work_cb, printed_cb);
}
