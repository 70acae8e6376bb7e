#include "server/http/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/classes.h"
#include "server/verdict/disclosure.h"
#include "server/store/brief.h"

/* --- one submission --- */

/* For another client's the same words as for one that is not there. */
static bool
is_found(struct exchange *x, const char *client, struct error *err)
{
    if (err->code == ERR_NONE && access_sees_client(x, client))
        return true;
    if (err->code == ERR_NONE)
        error_set(err, ERR_NOTFOUND, "another client's");
    exchange_error(x, err, "such submission");
    return false;
}

/* The row of the id in the address; false: the problem is sent. */
static bool
get_row(struct exchange *x, const char *id, struct submission_row *row)
{
    struct error err = { 0 };

    if (!id_is_valid(id))
        error_set(&err, ERR_NOTFOUND, "no id");
    else
        store_get_submission(x->http->store, id, row, &err);
    if (is_found(x, row->client, &err))
        return true;
    submission_row_release(row);
    return false;
}

/* Its stored verdict (NULL: not yet; to be freed) and nothing else of it; false: the problem is sent. */
static bool
get_answer(struct exchange *x, const char *id, char **verdict)
{
    AUTO_FREE char *client = NULL;
    struct error err = { 0 };

    *verdict = NULL;
    if (!id_is_valid(id))
        error_set(&err, ERR_NOTFOUND, "no id");
    else
        store_get_answer(x->http->store, id, &client, verdict, &err);
    if (is_found(x, client, &err))
        return true;
    free(ptr_take(verdict));
    return false;
}

/* The stored verdict as the caller may have it. taken; NULL: no memory. */
static void
set_verdict(struct exchange *x, char *verdict)
{
    if (access_sees_detail(x)) {
        exchange_set_bytes(x, 200, "application/json", verdict, strlen(verdict));
        return;
    }
    json_t *document = json_loads(verdict, JSON_ALLOW_NUL, NULL);
    free(verdict);
    exchange_set_json(x, 200, document ? access_view(x, document) : NULL);
}

static void
set_headers(struct exchange *x)
{
    char text[128];

    snprintf(text, sizeof(text), "/v1/submissions/%s", x->id);
    if (x->status == 202)
        exchange_header(x, MHD_HTTP_HEADER_LOCATION, text);
    snprintf(text, sizeof(text), "wait=%.0f", exchange_hold_s(x));
    if (x->is_preferred)
        exchange_header(x, "Preference-Applied", text);
    if (x->is_replay)
        exchange_header(x, "Idempotency-Replayed", "true");
}

/* The verdict as it is stored, or the present state with the status given. */
static void
answer_with(struct exchange *x, unsigned status_unfinished)
{
    struct error err = { 0 };
    char *verdict;

    if (!get_answer(x, x->id, &verdict))
        return;
    if (verdict) {
        set_verdict(x, verdict);
    } else {
        json_t *document = funnel_show_submission(x->http->funnel, x->id, &err);
        if (!document) {
            exchange_error(x, &err, "such submission");
            return;
        }
        exchange_set_json(x, status_unfinished, access_view(x, document));
    }
    exchange_tag(x);
    set_headers(x);
    exchange_send(x);
}

static void
answer_show(struct exchange *x)
{
    answer_with(x, 200);
}

static void
answer_added(struct exchange *x)
{
    answer_with(x, funnel_is_finished(x->http->funnel, x->id) ? 200 : 202);
}

bool
submission_find(struct exchange *x)
{
    AUTO_FREE char *verdict = NULL;

    if (!get_answer(x, x->target.segments[2], &verdict))
        return false;
    snprintf(x->id, sizeof(x->id), "%s", x->target.segments[2]);
    return true;
}

void
submission_show(struct exchange *x)
{
    char *verdict;

    if (!get_answer(x, x->target.segments[2], &verdict))
        return;
    snprintf(x->id, sizeof(x->id), "%s", x->target.segments[2]);
    if (!verdict) {
        exchange_hold(x, answer_show);
        return;
    }
    /* It will not change any more: nothing is read a second time. */
    set_verdict(x, verdict);
    exchange_tag(x);
    set_headers(x);
    exchange_send(x);
}

/* {"id","state","links"}: as of the moment when it was accepted, so that a replay says the same. */
static void
answer_accepted(struct exchange *x)
{
    json_t *links = json_pack("{s:s+, s:s++, s:s++}", "self", "/v1/submissions/", x->id, "source",
                              "/v1/submissions/", x->id, "/source", "log", "/v1/submissions/", x->id, "/log");
    exchange_set_json(x, 202,
                      json_pack("{s:s, s:s, s:o}", "id", x->id, "state",
                                submission_state_name(SUBMISSION_QUEUED), "links", links));
    set_headers(x);
    exchange_send(x);
}

static void
answer_known(struct exchange *x)
{
    if (x->wait_s < 0)
        answer_accepted(x);
    else
        exchange_hold(x, answer_added);
}

static void
submission_added(struct exchange *x, const struct funnel_answer *answer)
{
    if (exchange_refused(x, answer))
        return;
    snprintf(x->id, sizeof(x->id), "%s", answer->id);
    exchange_accepted(x, "submission");
    answer_known(x);
}

void
submission_add(struct exchange *x)
{
    struct running_key *key;

    if (!idempotency_begin(x, answer_known, &key))
        return;
    struct pending *p = exchange_begin(x, key, submission_added);
    access_stamp(x);
    if (p)
        funnel_submit(x->http->funnel, x->document, key ? &key->row : NULL, exchange_pending_cb, p);
}

/* A copy of it all, so only for who is told all. */
void
submission_bundle(struct exchange *x)
{
    struct error err = { 0 };

    if (!submission_find(x))
        return;
    json_t *bundle = funnel_bundle(x->http->funnel, x->id, &err);
    if (bundle)
        exchange_json(x, 200, bundle);
    else if (err.code == ERR_CONFLICT)
        exchange_problem(x, PROBLEM_UNFINISHED, "%s", err.text);
    else
        exchange_error(x, &err, "such submission");
}

static void
replay_added(struct exchange *x, const struct funnel_answer *answer)
{
    if (answer->refusal == FUNNEL_OK)
        access_note(x, "replay", answer->id);
    submission_added(x, answer);
}

/* Who chooses the seed knows the inputs: an admin's to do, and no trainer's. */
void
replay_add(struct exchange *x)
{
    struct pending *p = exchange_begin(x, NULL, replay_added);
    access_stamp(x);
    if (p)
        funnel_replay(x->http->funnel, x->document, exchange_pending_cb, p);
}

void
submission_cancel(struct exchange *x)
{
    struct submission_row row = { 0 };
    struct error err = { 0 };

    if (!get_row(x, x->target.segments[2], &row))
        return;
    memcpy(x->id, row.id, sizeof(row.id));
    bool is_own = row.client && strcmp(row.client, x->caller.client) == 0;
    submission_row_release(&row);
    if (funnel_cancel(x->http->funnel, x->id, &err) != 0) {
        exchange_error(x, &err, "such submission");
        return;
    }
    if (*x->caller.client && !is_own)
        access_note(x, "cancel submission of another", x->id);
    exchange_hold_cancelled(x, answer_added);
}

/* Source and log are text for people and programs, never to be run or rendered by a browser. */
static void
answer_text(struct exchange *x, struct buffer *text)
{
    size_t size = text->size;
    char *bytes = buffer_take(text, NULL);

    if (bytes)
        exchange_set_bytes(x, 200, "text/plain; charset=utf-8", bytes, size);
    else
        exchange_set_static(x, 200, "text/plain; charset=utf-8", "", 0);
    exchange_tag(x);
    exchange_header(x, "Content-Security-Policy", "sandbox; default-src 'none'");
    exchange_send(x);
}

void
submission_source(struct exchange *x)
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;
    struct submission_row row = { 0 };
    struct error err = { 0 };

    if (!get_row(x, x->target.segments[2], &row))
        return;
    int rc = store_get_source(x->http->store, row.source_hash, &text, &err);
    submission_row_release(&row);
    if (rc == 0)
        answer_text(x, &text);
    else
        exchange_error(x, &err, "source of it");
}

/* What a refused candidate printed tells how far it got, which is not told. */
static bool
may_have_log(const struct exchange *x, const struct submission_row *row)
{
    if (access_sees_detail(x))
        return true;
    AUTO_JSON json_t *verdict = row->verdict ? json_loads(row->verdict, JSON_ALLOW_NUL, NULL) : NULL;
    return row->state == SUBMISSION_DONE && verdict && !disclosure_is_refused(verdict);
}

void
submission_log(struct exchange *x)
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;
    struct submission_row row = { 0 };
    struct error err = { 0 };

    if (!get_row(x, x->target.segments[2], &row))
        return;
    int rc = may_have_log(x, &row) ? store_get_log(x->http->store, row.id, &text, &err) : 0;
    submission_row_release(&row);
    /* One that printed nothing, or has not ended, has an empty log. */
    if (rc == 0 || rc == ERR_NOTFOUND)
        answer_text(x, &text);
    else
        exchange_error(x, &err, "log of it");
}

/* {"id","task","task_name","state","class","env"} and one part more: of the verdict, or of what is known by now. */
static void
show_part(struct exchange *x, const char *part)
{
    const char *const keys[] = { "id", "task", "task_name", "state", "class", "env", part };
    struct submission_row row = { 0 };
    struct error err = { 0 };

    if (!get_row(x, x->target.segments[2], &row))
        return;
    AUTO_JSON json_t *whole = row.verdict ? json_loads(row.verdict, JSON_ALLOW_NUL, NULL)
                                          : funnel_show_submission(x->http->funnel, row.id, &err);
    submission_row_release(&row);
    if (!whole) {
        exchange_error(x, &err, part);
        return;
    }
    whole = access_view(x, whole);
    json_t *out = json_object();
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        json_t *value = json_object_get(whole, keys[i]);
        json_object_set_new(out, keys[i], value ? json_incref(value) : json_null());
    }
    exchange_set_json(x, 200, out);
    exchange_tag(x);
    exchange_send(x);
}

void
submission_timing(struct exchange *x)
{
    show_part(x, "timing");
}

void
submission_plan(struct exchange *x)
{
    show_part(x, "plan");
}

/* --- lists --- */

struct submission_page {
    json_t *items; /* documents, and ids of what is not finished */
    char last[ID_SIZE];
};

json_t *
submission_brief(json_t *whole)
{
    json_t *out = brief_of(whole);

    json_decref(whole);
    return out;
}

static bool
submission_row_cb(void *arg, const struct submission_row *row)
{
    struct submission_page *page = arg;

    json_t *item = row->verdict ? json_loads(row->verdict, JSON_ALLOW_NUL, NULL) : NULL;
    json_array_append_new(page->items, item ? item : json_string(row->id));
    memcpy(page->last, row->id, sizeof(page->last));
    return true;
}

/* What a caller sees of one that has not finished, taken up after the reading. */
static json_t *
present(const struct exchange *x, const char *id)
{
    struct error err = { 0 };
    json_t *whole = funnel_show_submission(x->http->funnel, id, &err);

    return whole ? access_view(x, whole) : NULL;
}

/* The funnel is asked after the reading, not in its middle. */
static json_t *
finish_items(struct exchange *x, json_t *items, bool is_brief)
{
    json_t *out = json_array();
    json_t *item;
    size_t i;

    json_array_foreach(items, i, item)
    {
        json_t *whole =
            json_is_string(item) ? present(x, json_string_value(item)) : access_view(x, json_incref(item));
        if (whole)
            json_array_append_new(out, is_brief ? submission_brief(whole) : whole);
    }
    return out;
}

static bool
bad_parameter(struct exchange *x, const char *name, const char *text)
{
    exchange_problem_at(x, PROBLEM_PARAMETER, "parameter", name, text);
    return false;
}

/* task_id must outlive the filter. False: the problem is sent. */
static bool
read_filter(struct exchange *x, struct submission_filter *f, char task_id[HASH_TEXT_SIZE])
{
    const char *state = target_value(&x->target, "state");
    const char *task = target_value(&x->target, "task");
    const char *view = target_value(&x->target, "view");

    *f = (struct submission_filter){
        .state = state ? submission_state_find(state) : -1,
        .class_ = target_value(&x->target, "class"),
        .client = target_value(&x->target, "client"),
        .group_id = target_value(&x->target, "group"),
        .before = target_value(&x->target, "cursor"),
        .limit = exchange_limit(x),
    };
    if (f->limit == 0)
        return false;
    if (state && f->state < 0)
        return bad_parameter(x, "state", "is one of queued, running, done, cancelled");
    if (f->class_ && class_find(f->class_) == CLASS_NONE)
        return bad_parameter(x, "class", "is not a class of verdicts");
    if (f->group_id && !id_is_valid(f->group_id))
        return bad_parameter(x, "group", "is not an id");
    if (f->before && !id_is_valid(f->before))
        return bad_parameter(x, "cursor", "is not a cursor of this list");
    if (view && strcmp(view, "brief") != 0 && strcmp(view, "full") != 0)
        return bad_parameter(x, "view", "is one of full, brief");
    if (task && !exchange_task_id(x, task, task_id))
        return false;
    f->task_id = task ? task_id : NULL;
    return true;
}

static bool
one_more_cb(void *arg, const char *id, const char *brief, const char *verdict)
{
    (void)id, (void)brief, (void)verdict;
    *(bool *)arg = true;
    return false;
}

/* Whether there is more behind a full page, which ends with last. */
static int
look_further(struct exchange *x, struct submission_filter filter, const char *last, bool *out,
             struct error *err)
{
    filter.before = last;
    filter.limit = 1;
    return store_list_briefs(x->http->store, &filter, one_more_cb, out, err);
}

/* A page as text: what is stored with a verdict is sent as it is. */
struct brief_page {
    struct buffer texts; /* of those that have one, one behind the other */
    struct brief_row {
        char id[ID_SIZE];
        size_t size; /* of its text; 0: it has not finished */
    } rows[LIMIT_MAX];
    size_t n;
    bool is_short; /* no memory for a row */
};

static bool
brief_row_cb(void *arg, const char *id, const char *brief, const char *verdict)
{
    struct brief_page *page = arg;
    struct brief_row *row = &page->rows[page->n++];
    AUTO_JSON json_t *whole = verdict ? json_loads(verdict, JSON_ALLOW_NUL, NULL) : NULL;
    AUTO_FREE char *made = whole ? brief_text(whole) : NULL;
    const char *text = brief ? brief : made;

    snprintf(row->id, sizeof(row->id), "%s", id);
    row->size = text ? strlen(text) : 0;
    page->is_short = row->size > 0 && buffer_append(&page->texts, text, row->size) != 0;
    return !page->is_short;
}

static int
write_briefs(const struct exchange *x, const struct brief_page *page, struct buffer *out)
{
    int rc = 0;

    for (size_t i = 0, at = 0; i < page->n && rc == 0; at += page->rows[i++].size) {
        const struct brief_row *row = &page->rows[i];
        AUTO_JSON json_t *now = row->size > 0 ? NULL : present(x, row->id);
        AUTO_FREE char *made = now ? brief_text(now) : NULL;
        if (row->size == 0 && !made)
            continue; /* removed meanwhile */
        if (out->size > 0)
            rc = buffer_add(out, ",");
        if (rc == 0)
            rc = row->size > 0 ? buffer_append(out, page->texts.data + at, row->size) : buffer_add(out, made);
    }
    return rc;
}

/* For who may see all of a verdict. */
static void
list_briefs(struct exchange *x, const struct submission_filter *filter)
{
    AUTO_FREE struct brief_page *page = calloc(1, sizeof(*page));
    AUTO_BUFFER struct buffer items = BUFFER_INIT;
    struct error err = { 0 };
    bool has_more = false;
    int rc = page ? store_list_briefs(x->http->store, filter, brief_row_cb, page, &err) : ERR_NOMEM;

    if (rc == 0 && page->n > 0 && page->n == (size_t)filter->limit)
        rc = look_further(x, *filter, page->rows[page->n - 1].id, &has_more, &err);
    if (rc == 0 && (page->is_short || write_briefs(x, page, &items) != 0))
        rc = ERR_NOMEM;
    if (rc == ERR_NOMEM)
        error_set(&err, ERR_NOMEM, "no memory for the list");
    if (rc == 0)
        exchange_page_text(x, &items, has_more ? page->rows[page->n - 1].id : NULL);
    else
        exchange_error(x, &err, "submission");
    if (page)
        buffer_release(&page->texts);
}

void
submission_list(struct exchange *x)
{
    const char *view = target_value(&x->target, "view");
    char task_id[HASH_TEXT_SIZE];
    struct submission_page page = { 0 };
    struct submission_filter filter;
    struct error err = { 0 };
    bool has_more = false;

    if (!read_filter(x, &filter, task_id))
        return;
    const char *own = access_client(x);
    if (own && filter.client && strcmp(filter.client, own) != 0) {
        exchange_page(x, json_array(), NULL);
        return;
    }
    if (own)
        filter.client = own;
    bool is_brief = view && strcmp(view, "brief") == 0;
    if (is_brief && access_sees_detail(x)) {
        list_briefs(x, &filter);
        return;
    }
    AUTO_JSON json_t *items = page.items = json_array();
    int rc = items ? store_list_submissions(x->http->store, &filter, submission_row_cb, &page, &err)
                   : error_set(&err, ERR_NOMEM, "no memory for the list");
    if (rc == 0 && (int)json_array_size(items) == filter.limit)
        rc = look_further(x, filter, page.last, &has_more, &err);
    if (rc == 0)
        exchange_page(x, finish_items(x, items, is_brief), has_more ? page.last : NULL);
    else
        exchange_error(x, &err, "submission");
}
