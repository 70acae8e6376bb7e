#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/classes.h"
#include "common/json.h"
#include "server/store/store.h"
#include "server/submission/attempt.h"
#include "server/submission/funnel.h"
#include "server/submission/parts.h"
#include "server/submission/groups.h"
#include "server/submission/pending.h"
#include "server/submission/seen.h"
#include "server/submission/state.h"
#include "server/submission/submission.h"
#include "server/verdict/disclosure.h"
#include "server/verdict/rewards.h"
#include "server/verdict/verdict.h"

/*
 * Submissions and groups as documents. The store is read on a thread of its own; memory, which may have a newer state
 * of what has not ended, is read on the loop; and the many documents of a group are made in libuv's pool.
 */

/* The state of a submission that has no verdict in the store. */
struct shown {
    json_t *document; /* as it is now, of one that is being judged; NULL: made from the row */
    enum state state;
    const char *cache; /* static */
};

struct showing {
    char id[ID_SIZE];
    struct seen seen;
    struct shown *all; /* one for each row */
    bool is_finished, is_whole;
    struct funnel *funnel;
    struct pending_work work;
    json_t *document;
    char *text;
    int rc;
    struct error err;
    funnel_document_cb *document_cb; /* or */
    funnel_text_cb *text_cb;
    void *arg;
};

static struct shown
look_at(struct funnel *f, const struct submission_row *row)
{
    struct submission *s = submission_by_id(f, row->id);
    struct shown out = { .cache = s ? s->cache : "miss" };

    if (s && s->attempt && s->attempt->request && !state_is_final(s->state))
        out.document = verdict_json(s);
    /* A verdict that is not durable yet is not shown: the state is that of the store, and it still runs. */
    bool is_queued = s ? s->state == STATE_QUEUED : row->state == SUBMISSION_QUEUED;
    out.state = is_queued ? STATE_QUEUED : STATE_READY;
    return out;
}

/* Any thread; row is taken. Given; NULL: it cannot be read. */
static json_t *
document_of_row(struct submission_row *row, const struct shown *how, const char *task_name)
{
    struct submission s = { .state = how->state, .cache = how->cache };
    struct error err = { 0 };

    memcpy(s.id, row->id, sizeof(s.id));
    s.priority = row->priority;
    s.attempts = row->attempts;
    json_t *out = NULL;
    if (submission_make_attempt(&s) && attempt_read_row(s.attempt, row, &err) == 0) {
        s.attempt->task.name = task_name ? strdup(task_name) : NULL;
        out = verdict_json(&s);
    }
    attempt_free(NULL, s.attempt);
    return out;
}

json_t *
funnel_show_submission(struct funnel *f, const struct submission_row *row, const char *task_name,
                       struct error *err)
{
    struct shown how = look_at(f, row);
    struct submission_row copy = { 0 };
    json_t *out = how.document;

    if (!out && row->verdict)
        out = json_of(row->verdict);
    else if (!out && submission_row_copy(row, &copy) == 0)
        out = document_of_row(&copy, &how, task_name);
    submission_row_release(&copy);
    if (!out)
        error_set(err, ERR_STORE, "submission %s cannot be read", row->id);
    return out;
}

/* --- groups --- */

static void
showing_free(struct showing *g)
{
    for (size_t i = 0; g->all && i < g->seen.n; i++)
        json_decref(g->all[i].document);
    free(g->all);
    seen_release(&g->seen);
    free(g);
}

/* Any thread. Given; NULL: it cannot be read. */
static json_t *
item_of(struct showing *g, size_t i)
{
    struct submission_row *row = &g->seen.rows[i];

    if (row->verdict)
        return json_of(row->verdict);
    if (g->all[i].document)
        return json_incref(g->all[i].document);
    return document_of_row(row, &g->all[i], g->seen.task_name);
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
        /* The speed of an incorrect one counts for nothing, and the order must not disclose it. */
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

    for (size_t i = 0; i < g->seen.n; i++) {
        json_t *item = item_of(g, i);
        if (!item || json_array_append_new(items, item) != 0) {
            error_set(err, ERR_STORE, "a submission of group %s cannot be read", g->id);
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
        queued += text_is(item, "state", "queued");
        cancelled += text_is(item, "state", "cancelled");
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
    const struct group_row *row = &g->seen.group;
    json_t *items = items_of(g, err);

    if (!items)
        return NULL;
    if (g->is_finished)
        rescore_group(items);
    AUTO_JSON json_t *request = json_of(row->request);
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

static void
make_document(void *arg)
{
    struct showing *g = arg;
    json_t *items;

    g->document = document_of(g, &g->err);
    if (!g->text_cb)
        return;
    items = json_object_get(g->document, "items");
    for (size_t i = 0; !g->is_whole && i < json_array_size(items); i++)
        json_array_set_new(items, i, disclosure_view(json_array_get(items, i)));
    g->text = g->document ? json_dumps(g->document, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(ptr_take(&g->document));
    if (!g->text && g->err.code == ERR_NONE)
        error_set(&g->err, ERR_NOMEM, "no memory to show %s", g->id);
}

static void
tell(struct showing *g)
{
    if (g->text_cb)
        g->text_cb(g->arg, g->text, g->text ? strlen(g->text) : 0, g->is_finished, &g->err);
    else
        g->document_cb(g->arg, g->document, g->is_finished, &g->err);
}

static void
end(void *arg)
{
    struct showing *g = arg;

    tell(g);
    showing_free(g);
}

static void
read_cb(void *arg, struct store_reader *r)
{
    struct showing *g = arg;

    g->rc = seen_read_group(r, g->id, true, &g->seen, &g->err);
}

static void
read_done_cb(void *arg)
{
    struct showing *g = arg;
    struct funnel *f = g->funnel;
    size_t n = g->seen.n;

    g->all = calloc(n + 1, sizeof(*g->all));
    if (g->rc == 0 && !g->all)
        g->rc = error_set(&g->err, ERR_NOMEM, "no memory to show %s", g->id);
    g->is_finished = !groups_find(f->groups, g->id);
    for (size_t i = 0; i < n && g->rc == 0; i++) {
        const struct submission_row *row = &g->seen.rows[i];
        g->is_finished &= !row_is_unfinished(row);
        if (row->verdict)
            continue;
        g->all[i] = look_at(f, row);
        json_t *now = g->all[i].document;
        g->all[i].document = now ? json_deep_copy(now) : NULL; /* parts of it change as it is judged */
        json_decref(now);
    }
    if (g->rc == 0)
        pending_work(f->pending, &g->work, make_document, end, g);
    else
        end(g);
    pending_end_write(f->pending);
}

static void
begin(struct showing *asked, const char *id)
{
    struct showing *g = malloc(sizeof(*g));

    if (!g) {
        error_set(&asked->err, ERR_NOMEM, "no memory to show %s", id);
        tell(asked);
        return;
    }
    *g = *asked;
    snprintf(g->id, sizeof(g->id), "%s", id);
    pending_begin_write(g->funnel->pending);
    if (store_read(g->funnel->store, read_cb, read_done_cb, g, &g->err) != 0) {
        g->rc = g->err.code;
        read_done_cb(g);
    }
}

void
funnel_show_group(struct funnel *f, const char *id, funnel_document_cb *cb, void *arg)
{
    begin(&(struct showing){ .funnel = f, .document_cb = cb, .arg = arg }, id);
}

void
funnel_print_group(struct funnel *f, const char *id, bool is_whole, funnel_text_cb *cb, void *arg)
{
    begin(&(struct showing){ .funnel = f, .text_cb = cb, .is_whole = is_whole, .arg = arg }, id);
}
