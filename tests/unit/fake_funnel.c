#include "server/submission/seen.h"
#include "tests/unit/fake_funnel.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "common/auto.h"
#include "common/clock.h"

struct funnel {
    uv_loop_t *loop;
    struct store *store;
    struct funnel_wait *waits;
    struct work *works;
    void *unanswered; /* argument of the one call that gets no answer, NULL: none */
    bool is_drained, is_full;
    int64_t counted, figures_made;
    uint64_t generation;
    funnel_event_cb *event_cb;
    void *event_arg;
};

struct funnel_wait {
    struct funnel_wait *prev, *next;
    struct funnel *funnel;
    char id[ID_SIZE];
    funnel_wait_cb *cb;
    void *arg;
};

struct work {
    struct work *prev, *next;
    struct funnel *funnel;
    uv_timer_t timer;
    char id[ID_SIZE];
    int64_t ms; /* < 0: never */
    bool is_cancelled;
    funnel_answer_cb *cb;
    void *arg;
};

int
funnel_new(uv_loop_t *loop, const struct config *config, struct store *store, struct funnel **out,
           struct error *err)
{
    (void)config;
    *out = calloc(1, sizeof(**out));
    if (!*out)
        return error_set(err, ERR_NOMEM, "no memory");
    (*out)->loop = loop;
    (*out)->store = store;
    return 0;
}

static void
work_closed_cb(uv_handle_t *handle)
{
    free(handle->data);
}

static void
work_end(struct work *w)
{
    DL_DELETE(w->funnel->works, w);
    uv_close((uv_handle_t *)&w->timer, work_closed_cb);
}

void
funnel_free(struct funnel *f)
{
    if (f)
        free(f->unanswered); /* the pending record, which nobody else knows by now */
    free(f);
}

void
funnel_drain(struct funnel *f, int64_t grace_ms, void (*cb)(void *arg), void *arg)
{
    struct work *w, *next;
    (void)grace_ms;
    if (f->is_drained)
        return;
    f->is_drained = true;
    for (w = f->works; w; w = next) {
        next = w->next;
        work_end(w);
    }
    cb(arg);
}

void
funnel_reload(struct funnel *f)
{
    (void)f;
}

void
funnel_follow(struct funnel *f, funnel_event_cb *cb, void *arg)
{
    f->event_cb = cb;
    f->event_arg = arg;
}

void
fake_funnel_tell(struct funnel *f, const struct funnel_event *event)
{
    if (f->event_cb)
        f->event_cb(f->event_arg, event);
}

bool
funnel_is_here(const struct funnel *f, const char *id)
{
    const struct work *w;

    DL_FOREACH(f->works, w)
    {
        if (strcmp(w->id, id) == 0)
            return true;
    }
    return false;
}

/* Of a submission that the store has. */
static void
tell(struct funnel *f, enum funnel_event_kind kind, const char *id)
{
    struct submission_row row = { 0 };

    if (reader_get_submission(store_reader(f->store), id, &row, NULL) == 0)
        fake_funnel_tell(f, &(struct funnel_event){ kind, id, row.group_id, row.client, NULL, false,
                                                    row.attempts, row.verdict, NULL });
    submission_row_release(&row);
}

static void
finished_cb(void *arg, int code, const struct error *err)
{
    struct work *w = arg;
    struct funnel_wait *wait, *next;
    struct funnel *f = w->funnel;
    char id[ID_SIZE];

    (void)code;
    (void)err;
    memcpy(id, w->id, sizeof(id));
    work_end(w);
    tell(f, FUNNEL_EVENT_VERDICT, id);
    for (wait = f->waits; wait; wait = next) {
        next = wait->next;
        if (strcmp(wait->id, id) != 0)
            continue;
        DL_DELETE(f->waits, wait);
        wait->cb(wait->arg);
        free(wait);
    }
}

static void
work_cb(uv_timer_t *timer)
{
    struct work *w = timer->data;
    char verdict[256];
    struct submission_row row = { .state = SUBMISSION_DONE,
                                  .stage = "full",
                                  .class_ = "ok",
                                  .reward = 0.5,
                                  .finished_ms = clock_wall_ms(),
                                  .verdict = verdict };

    snprintf(verdict, sizeof(verdict), FAKE_VERDICT, w->id);
    if (w->is_cancelled) {
        row.state = SUBMISSION_CANCELLED;
        snprintf(verdict, sizeof(verdict), "{\"id\":\"%s\",\"state\":\"cancelled\",\"reward\":null}", w->id);
    }
    memcpy(row.id, w->id, sizeof(row.id));
    store_finish(w->funnel->store, &row, "printed\n", 8, finished_cb, w, NULL);
}

void
fake_funnel_finish(struct funnel *f, const char *id)
{
    struct work *w;

    DL_FOREACH(f->works, w)
    {
        if (strcmp(w->id, id) == 0) {
            uv_timer_stop(&w->timer);
            work_cb(&w->timer);
            return;
        }
    }
}

static void
added_cb(void *arg, int code, const struct error *err)
{
    struct work *w = arg;
    struct funnel_answer answer = { .is_new = true };

    if (code != 0) {
        answer.refusal = code == ERR_CONFLICT ? FUNNEL_KEY_TAKEN : FUNNEL_UNAVAILABLE;
        snprintf(answer.fault.text, sizeof(answer.fault.text), "%.150s", err->text);
    }
    memcpy(answer.id, w->id, sizeof(w->id));
    if (code == 0)
        tell(w->funnel, FUNNEL_EVENT_QUEUED, w->id);
    w->cb(w->arg, &answer);
    if (w->ms >= 0 && !w->funnel->is_drained)
        uv_timer_start(&w->timer, work_cb, (uint64_t)w->ms, 0);
}

static void
rival_cb(void *arg, int code, const struct error *err)
{
    (void)arg, (void)code, (void)err;
}

void
funnel_submit(struct funnel *f, json_t *body, const struct key_row *key, funnel_answer_cb *cb, void *arg)
{
    struct funnel_answer answer = { .retry_after_s = 7, .detail = "Traceback: it broke" };
    const char *candidate = NULL, *task = NULL, *client = "fake";
    json_t *metadata = NULL;
    struct json_field fields[] = { { "candidate", JSON_WANT_STRING, &candidate, true, 0, 1024 * 1024 },
                                   { "task", JSON_WANT_STRING, &task, false, 0, 100 },
                                   { "client", JSON_WANT_STRING, &client, false, 0, 100 },
                                   { "metadata", JSON_WANT_OBJECT, &metadata, false, 0, 0 } };

    if (json_read(body, "", fields, ARRAY_LEN(fields), &answer.fault) != 0)
        answer.refusal = FUNNEL_BAD;
    else
        answer.refusal = (enum funnel_refusal)json_integer_value(json_object_get(metadata, "refuse"));
    if (json_is_true(json_object_get(metadata, "silent"))) {
        f->unanswered = arg;
        return;
    }
    if (answer.refusal != FUNNEL_OK) {
        cb(arg, &answer);
        return;
    }
    struct work *w = calloc(1, sizeof(*w));
    struct submission_row row = { .request = "{}", .reward = NAN, .created_ms = clock_wall_ms() };
    struct store_source source = { .text = candidate, .size = strlen(candidate) };
    json_t *ms = json_object_get(metadata, "ms");
    *w = (struct work){ .funnel = f, .cb = cb, .arg = arg, .ms = ms ? json_integer_value(ms) : -1 };
    uv_timer_init(f->loop, &w->timer);
    w->timer.data = w;
    id_new(w->id);
    memcpy(row.id, w->id, sizeof(row.id));
    row.client = (char *)(uintptr_t)client;
    if (task)
        snprintf(row.task_id, sizeof(row.task_id), "%s", task);
    else
        hash_text("", 0, row.task_id);
    hash_text(candidate, strlen(candidate), row.source_hash);
    DL_APPEND(f->works, w);
    struct key_row kept = key ? *key : (struct key_row){ 0 };
    memcpy(kept.id, w->id, sizeof(kept.id));
    kept.created_ms = row.created_ms;
    if (key &&
        json_is_true(json_object_get(metadata, "rival"))) { /* another daemon stores the same request first */
        struct submission_row other = row;
        struct key_row taken = kept;
        id_new(other.id);
        memcpy(taken.id, other.id, sizeof(taken.id));
        store_add_submissions(f->store, NULL, &taken, &other, &source, 1, rival_cb, NULL, NULL);
    }
    store_add_submissions(f->store, NULL, key ? &kept : NULL, &row, &source, 1, added_cb, w, NULL);
}

bool
funnel_has_room(const struct funnel *f, struct funnel_answer *answer)
{
    *answer = (struct funnel_answer){ .refusal = f->is_full ? FUNNEL_FULL : FUNNEL_OK, .retry_after_s = 5 };
    return !f->is_full;
}

void
fake_funnel_fill(struct funnel *f)
{
    f->is_full = true;
}

void
funnel_submit_group(struct funnel *f, json_t *body, const struct key_row *key, funnel_answer_cb *cb,
                    void *arg)
{
    (void)key;
    struct funnel_answer answer = { .refusal = FUNNEL_FULL, .retry_after_s = 3 };
    (void)f;
    (void)body;
    cb(arg, &answer);
}

void
funnel_replay(struct funnel *f, json_t *bundle, funnel_answer_cb *cb, void *arg)
{
    funnel_submit_group(f, bundle, NULL, cb, arg);
}

struct task_note {
    funnel_answer_cb *cb;
    void *arg;
    struct funnel_answer answer;
};

static void
task_added_cb(void *arg, int code, const struct error *err)
{
    struct task_note *n = arg;
    (void)err;
    n->answer.refusal = code == 0 ? FUNNEL_OK : FUNNEL_UNAVAILABLE;
    n->cb(n->arg, &n->answer);
    free(n);
}

void
funnel_add_task(struct funnel *f, json_t *body, funnel_answer_cb *cb, void *arg)
{
    struct funnel_answer answer = { .refusal = FUNNEL_BAD };
    const char *name = NULL, *reference = NULL;
    struct json_field fields[] = { { "name", JSON_WANT_STRING, &name, true, 0, 100 },
                                   { "reference", JSON_WANT_STRING, &reference, true, 0, 1024 * 1024 } };

    if (json_read(body, "", fields, ARRAY_LEN(fields), &answer.fault) != 0) {
        cb(arg, &answer);
        return;
    }
    struct task_note *n = calloc(1, sizeof(*n));
    struct task_row row = { .entry_point = "Model", .spec = "{\"cases\":[]}", .created_ms = clock_wall_ms() };
    n->cb = cb;
    n->arg = arg;
    n->answer.is_new = true;
    row.name = (char *)(uintptr_t)name;
    row.reference = (char *)(uintptr_t)reference;
    row.reference_size = strlen(reference);
    hash_text(reference, strlen(reference), row.id);
    snprintf(n->answer.id, sizeof(n->answer.id), "%s", row.id);
    store_add_task(f->store, &row, task_added_cb, n, NULL);
}

void
funnel_rename_task(struct funnel *f, const char *client, const char *id, json_t *body, funnel_answer_cb *cb,
                   void *arg)
{
    (void)client;
    (void)id;
    funnel_calibrate(f, body, cb, arg);
}

void
funnel_remove_task(struct funnel *f, const char *client, const char *id, funnel_answer_cb *cb, void *arg)
{
    (void)client;
    (void)id;
    funnel_calibrate(f, NULL, cb, arg);
}

json_t *
funnel_show_submission(struct funnel *f, const struct submission_row *row, const char *task_name,
                       struct error *err)
{
    (void)f, (void)task_name, (void)err;
    return row->verdict ? json_loads(row->verdict, 0, NULL)
                        : json_pack("{s:s, s:s, s:s, s:n}", "id", row->id, "task", row->task_id, "state",
                                    submission_state_name(row->state), "class");
}

void
funnel_show_group(struct funnel *f, const char *id, funnel_document_cb *cb, void *arg)
{
    struct error err = { 0 };

    (void)f;
    error_set(&err, ERR_NOTFOUND, "no %s", id);
    cb(arg, NULL, false, &err);
}

void
funnel_print_group(struct funnel *f, const char *id, bool is_whole, funnel_text_cb *cb, void *arg)
{
    struct error err = { 0 };

    (void)f, (void)is_whole;
    error_set(&err, ERR_NOTFOUND, "no %s", id);
    cb(arg, NULL, 0, false, &err);
}

void
funnel_calibrate(struct funnel *f, json_t *body, funnel_answer_cb *cb, void *arg)
{
    struct funnel_answer answer = { .refusal = FUNNEL_UNAVAILABLE, .retry_after_s = 1 };
    (void)f;
    (void)body;
    cb(arg, &answer);
}

json_t *
funnel_calibrations(struct funnel *f)
{
    (void)f;
    return json_pack("{s:[]}", "items");
}

void
funnel_forget_canary(struct funnel *f, json_t *body, funnel_answer_cb *cb, void *arg)
{
    funnel_calibrate(f, body, cb, arg);
}

json_t *
funnel_canaries(struct funnel *f)
{
    return funnel_calibrations(f);
}

json_t *
funnel_stats(const struct funnel *f)
{
    (void)f;
    return json_pack("{s:i}", "covered_s", 1);
}

void
fake_funnel_count(struct funnel *f, bool is_told)
{
    f->counted++;
    f->generation += is_told;
}

int64_t
fake_funnel_figures_made(const struct funnel *f)
{
    return f->figures_made;
}

void
funnel_pulse(struct funnel *f, struct buffer *out)
{
    (void)f;
    buffer_add(out, "{\"state\":\"ready\"}");
}

uint64_t
funnel_generation(const struct funnel *f)
{
    return f->generation;
}

json_t *
funnel_figures(struct funnel *f, const struct store_counts *stored)
{
    (void)stored;
    f->figures_made++;
    return json_pack("{s:{s:I}}", "counts", "figures", (json_int_t)f->counted);
}

json_t *
funnel_node(const struct funnel *f)
{
    (void)f;
    return json_object();
}

const char *
funnel_node_name(const struct funnel *f)
{
    (void)f;
    return "this";
}

bool
funnel_is_ready(struct funnel *f, char *why, size_t size)
{
    (void)f;
    snprintf(why, size, "starting workers");
    return false;
}

void
funnel_watch(struct funnel *f, const char *id, const char *group, const char *client)
{
    (void)f, (void)id, (void)group, (void)client; /* no other node has anything */
}

struct funnel_wait *
funnel_wait(struct funnel *f, const char *id, funnel_wait_cb *cb, void *arg)
{
    struct funnel_wait *w = funnel_is_here(f, id) ? calloc(1, sizeof(*w)) : NULL;
    if (!w)
        return NULL;
    w->funnel = f;
    w->cb = cb;
    w->arg = arg;
    snprintf(w->id, sizeof(w->id), "%s", id);
    DL_APPEND(f->waits, w);
    return w;
}

void
funnel_wait_end(struct funnel_wait *w)
{
    if (!w)
        return;
    DL_DELETE(w->funnel->waits, w);
    free(w);
}

int
funnel_cancel(struct funnel *f, const struct seen *seen, struct error *err)
{
    const char *id = seen->rows[0].id;
    struct work *w;

    DL_FOREACH(f->works, w)
    {
        if (strcmp(w->id, id) == 0 && !w->is_cancelled) {
            w->is_cancelled = true;
            work_cb(&w->timer);
            return 0;
        }
    }
    return error_set(err, ERR_CONFLICT, "UNIQUE constraint failed: submission.id %s", id);
}
