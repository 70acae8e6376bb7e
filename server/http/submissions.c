#include "server/http/handlers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/json.h"
#include "server/verdict/disclosure.h"
#include "server/store/brief.h"
#include "server/submission/seen.h"
#include "server/http/access.h"
#include "server/http/answers.h"
#include "server/http/idempotency.h"

/* --- one submission --- */

struct look;
typedef int more_fn(struct look *l, struct store_reader *r, struct error *err);
typedef void found_fn(struct exchange *x, struct look *l);

/* What a route reads of the submission in its address. */
struct look {
    struct exchange_read call;
    char id[ID_SIZE];
    struct seen seen;
    struct buffer text; /* its source, or its captured output */
    more_fn *more;
    found_fn *found;
};

static void
free_look(struct exchange_read *call)
{
    struct look *l = (struct look *)call;

    seen_release(&l->seen);
    buffer_release(&l->text);
    exchange_read_free(call);
}

/* For another client's the same words as for one that is not there. */
static int
read_row(struct exchange_read *call, struct store_reader *r, struct error *err)
{
    struct look *l = (struct look *)call;
    int rc = seen_read(r, l->id, &l->seen, err);

    if (rc == 0 && !exchange_read_sees(call, l->seen.rows[0].client))
        rc = error_set(err, ERR_NOTFOUND, "another client's");
    return rc == 0 && l->more ? l->more(l, r, err) : rc;
}

static void
answer_found(struct exchange *x, struct exchange_read *call)
{
    struct look *l = (struct look *)call;

    snprintf(x->id, sizeof(x->id), "%s", l->id);
    l->found(x, l);
}

/* Go on with `found` when the submission called id has been read, and what `more` reads of it (NULL: nothing). */
static void
look(struct exchange *x, const char *id, more_fn *more, found_fn *found)
{
    static const struct exchange_read call = {
        .read = read_row, .answer = answer_found, .free = free_look, .what = "such submission"
    };

    if (!id_is_valid(id)) {
        exchange_problem(x, PROBLEM_NOT_FOUND, "there is no such submission");
        return;
    }
    struct look *l = exchange_read_new(x, &call, sizeof(*l));
    if (!l)
        return;
    snprintf(l->id, sizeof(l->id), "%s", id);
    l->more = more;
    l->found = found;
    exchange_read(x, &l->call);
}

/* The stored verdict as the caller may have it. taken; NULL: no memory. */
static void
set_verdict(struct exchange *x, char *verdict)
{
    if (access_sees_detail(x)) {
        exchange_set_bytes(x, 200, "application/json", verdict, strlen(verdict));
        return;
    }
    json_t *document = json_of(verdict);
    free(verdict);
    exchange_set_json(x, 200, document ? access_view(x, document) : NULL);
}

/* The verdict as it is stored, or the present state with the status given. */
static void
answer_with(struct exchange *x, struct look *l, unsigned status_unfinished)
{
    struct submission_row *row = &l->seen.rows[0];
    struct error err = { 0 };

    if (row->verdict) {
        set_verdict(x, ptr_take(&row->verdict));
    } else {
        json_t *document = funnel_show_submission(x->http->funnel, row, l->seen.task_name, &err);
        if (!document) {
            exchange_error(x, &err, "such submission");
            return;
        }
        exchange_set_json(x, status_unfinished, access_view(x, document));
    }
    exchange_tag(x);
    exchange_accept_headers(x, "/v1/submissions/");
    exchange_send(x);
}

static void
found_show(struct exchange *x, struct look *l)
{
    answer_with(x, l, 200);
}

static void
found_added(struct exchange *x, struct look *l)
{
    answer_with(x, l, 202);
}

static void
answer_show(struct exchange *x)
{
    look(x, x->id, NULL, found_show);
}

static void
answer_added(struct exchange *x)
{
    look(x, x->id, NULL, found_added);
}

/* Held if the request says so; a submission that has ended will not change any more, and is not read a second time. */
static void
found_first(struct exchange *x, struct look *l)
{
    if (l->seen.rows[0].verdict || exchange_hold_s(x) <= 0)
        answer_with(x, l, 200);
    else
        exchange_hold(x, answer_show);
}

void
submission_show(struct exchange *x)
{
    look(x, x->target.segments[2], NULL, found_first);
}

/* {"id","state","links"}: as of its acceptance, so that a replay of the response is the same. */
static void
answer_accepted(struct exchange *x)
{
    json_t *links = json_pack("{s:s+, s:s++, s:s++}", "self", "/v1/submissions/", x->id, "source",
                              "/v1/submissions/", x->id, "/source", "log", "/v1/submissions/", x->id, "/log");
    exchange_set_json(x, 202,
                      json_pack("{s:s, s:s, s:o, s:s*}", "id", x->id, "state",
                                submission_state_name(SUBMISSION_QUEUED), "links", links, "warning",
                                x->warning));
    exchange_accept_headers(x, "/v1/submissions/");
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
    exchange_made(x, answer, "submission", submission_add, answer_known);
}

static void
add(struct exchange *x, struct running_key *key)
{
    struct pending *p = exchange_begin(x, key, submission_added);

    access_stamp(x);
    if (p)
        funnel_submit(x->http->funnel, x->document, key ? &key->row : NULL, exchange_pending_cb, p);
}

void
submission_add(struct exchange *x)
{
    idempotency_begin(x, answer_known, add);
}

static int
read_bundle(struct look *l, struct store_reader *r, struct error *err)
{
    return bundle_read(r, &l->seen.rows[0], &l->call.document, err);
}

static void
found_bundle(struct exchange *x, struct look *l)
{
    if (l->call.document)
        exchange_json(x, 200, ptr_take(&l->call.document));
    else if (l->seen.rows[0].state == SUBMISSION_CANCELLED)
        exchange_problem(x, PROBLEM_NOT_FOUND, "%s is cancelled, and never has a verdict", l->id);
    else
        exchange_problem(x, PROBLEM_UNFINISHED, "%s is %s, and has no verdict", l->id,
                         submission_state_name(l->seen.rows[0].state));
}

/* A copy of the whole submission, so only for callers with access to all of it. */
void
submission_bundle(struct exchange *x)
{
    look(x, x->target.segments[2], read_bundle, found_bundle);
}

static void
replay_added(struct exchange *x, const struct funnel_answer *answer)
{
    if (answer->refusal == FUNNEL_OK)
        access_note(x, "replay", answer->id);
    submission_added(x, answer);
}

/* A caller that chooses the seed knows the inputs: for an admin, and not for a trainer. */
void
replay_add(struct exchange *x)
{
    struct pending *p = exchange_begin(x, NULL, replay_added);
    access_stamp(x);
    if (p)
        funnel_replay(x->http->funnel, x->document, exchange_pending_cb, p);
}

static void
found_cancel(struct exchange *x, struct look *l)
{
    const struct submission_row *row = l->seen.rows;
    bool is_own = row->client && strcmp(row->client, x->caller.client) == 0;
    struct error err = { 0 };

    if (funnel_cancel(x->http->funnel, &l->seen, &err) != 0) {
        exchange_error(x, &err, "such submission");
        return;
    }
    if (*x->caller.client && !is_own)
        access_note(x, "cancel submission of another", x->id);
    exchange_hold_cancelled(x, answer_added);
}

void
submission_cancel(struct exchange *x)
{
    look(x, x->target.segments[2], NULL, found_cancel);
}

/* Source and log are text for people and programs, never to be run or rendered by a browser. */
static void
answer_text(struct exchange *x, struct buffer *text)
{
    exchange_set_text(x, "text/plain; charset=utf-8", text);
    exchange_tag(x);
    exchange_header(x, "Content-Security-Policy", "sandbox; default-src 'none'");
    exchange_send(x);
}

static int
read_source(struct look *l, struct store_reader *r, struct error *err)
{
    return reader_get_source(r, l->seen.rows[0].source_hash, &l->text, err);
}

static int
read_log(struct look *l, struct store_reader *r, struct error *err)
{
    return reader_get_log(r, l->id, &l->text, err);
}

static int
read_answer(struct look *l, struct store_reader *r, struct error *err)
{
    return reader_get_completion(r, l->id, &l->text, err);
}

static void
found_text(struct exchange *x, struct look *l)
{
    answer_text(x, &l->text);
}

void
submission_source(struct exchange *x)
{
    look(x, x->target.segments[2], read_source, found_text);
}

void
submission_answer(struct exchange *x)
{
    look(x, x->target.segments[2], read_answer, found_text);
}

/* The output of a refused candidate would show how far it got, which is not disclosed. */
static bool
may_have_log(const struct exchange *x, const struct submission_row *row)
{
    if (access_sees_detail(x))
        return true;
    AUTO_JSON json_t *verdict = json_of(row->verdict);
    return row->state == SUBMISSION_DONE && verdict && !disclosure_is_refused(verdict);
}

/* One that printed nothing, or has not ended, has an empty log. */
static void
found_log(struct exchange *x, struct look *l)
{
    if (!may_have_log(x, &l->seen.rows[0]))
        buffer_release(&l->text);
    answer_text(x, &l->text);
}

void
submission_log(struct exchange *x)
{
    look(x, x->target.segments[2], read_log, found_log);
}

/* The verdict, or the state so far, as the caller may have it. Given; NULL, with err filled: it cannot be read. */
static json_t *
present(const struct exchange *x, const struct seen *seen, struct error *err)
{
    const struct submission_row *row = &seen->rows[0];
    json_t *whole = row->verdict ? json_of(row->verdict)
                                 : funnel_show_submission(x->http->funnel, row, seen->task_name, err);

    return whole ? access_view(x, whole) : NULL;
}

/* {"id","task","task_name","state","class","env"} and the part that is the last word of the address. */
static void
found_part(struct exchange *x, struct look *l)
{
    const char *part = x->target.segments[3];
    const char *const keys[] = { "id", "task", "task_name", "state", "class", "env", part };
    struct error err = { 0 };

    AUTO_JSON json_t *whole = present(x, &l->seen, &err);
    if (!whole) {
        exchange_error(x, &err, part);
        return;
    }
    json_t *out = json_object();
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        json_object_set_new(out, keys[i], get_or_null(whole, keys[i]));
    exchange_set_json(x, 200, out);
    exchange_tag(x);
    exchange_send(x);
}

/* Its timing, or its plan. */
void
submission_part(struct exchange *x)
{
    look(x, x->target.segments[2], NULL, found_part);
}

/* --- lists --- */

json_t *
submission_brief(json_t *whole)
{
    json_t *out = brief_of(whole);

    json_decref(whole);
    return out;
}

/*
 * A page. With view=brief, the text stored with a verdict is sent unchanged to a caller who may see all of it (texts);
 * else verdicts are documents. Submissions that have not ended are looked up when all rows are read.
 */
struct list_item {
    struct seen seen; /* of one that has not ended */
    json_t *document; /* of one that has */
    size_t size;      /* of its part of texts */
    char id[ID_SIZE];
};

struct list_read {
    struct exchange_read call;
    struct submission_filter filter; /* for one row more than the page has */
    bool is_brief, is_text;
    struct buffer texts; /* one behind the other */
    struct list_item items[LIMIT_MAX];
    size_t n;
    bool is_short, has_more;
};

static void
free_list(struct exchange_read *call)
{
    struct list_read *l = (struct list_read *)call;

    for (size_t i = 0; i < l->n; i++) {
        seen_release(&l->items[i].seen);
        json_decref(l->items[i].document);
    }
    buffer_release(&l->texts);
    exchange_read_free(call);
}

/* The next item; NULL: the page is full, and there is more. */
static struct list_item *
next_item(struct list_read *l)
{
    l->has_more = l->n + 1 == (size_t)l->filter.limit;
    return l->has_more ? NULL : &l->items[l->n++];
}

static bool
list_brief_cb(void *arg, const char *id, const char *brief)
{
    struct list_read *l = arg;
    struct list_item *item = next_item(l);

    if (!item)
        return false;
    snprintf(item->id, sizeof(item->id), "%s", id);
    item->size = brief ? strlen(brief) : 0;
    l->is_short = item->size > 0 && buffer_append(&l->texts, brief, item->size) != 0;
    return !l->is_short;
}

static bool
list_row_cb(void *arg, const struct submission_row *row)
{
    struct list_read *l = arg;
    struct list_item *item = next_item(l);

    if (!item)
        return false;
    memcpy(item->id, row->id, sizeof(item->id));
    item->document = json_of(row->verdict);
    return true;
}

static int
read_list(struct exchange_read *call, struct store_reader *r, struct error *err)
{
    struct list_read *l = (struct list_read *)call;

    if (call->task)
        l->filter.task_id = call->task_id;
    int rc = l->is_text ? reader_list_briefs(r, &l->filter, list_brief_cb, l, err)
                        : reader_list_submissions(r, &l->filter, list_row_cb, l, err);
    if (rc == 0 && l->is_short)
        rc = error_set(err, ERR_NOMEM, "no memory for the list");
    for (size_t i = 0; i < l->n && rc == 0; i++) {
        struct list_item *item = &l->items[i];
        if (item->size == 0 && !item->document)
            rc = seen_read(r, item->id, &item->seen, err);
    }
    return rc;
}

static json_t *
write_documents(struct exchange *x, struct list_read *l)
{
    json_t *out = json_array();
    struct error err = { 0 };

    for (size_t i = 0; i < l->n; i++) {
        struct list_item *item = &l->items[i];
        json_t *whole =
            item->document ? access_view(x, ptr_take(&item->document)) : present(x, &item->seen, &err);
        if (whole)
            json_array_append_new(out, l->is_brief ? submission_brief(whole) : whole);
    }
    return out;
}

static void
write_texts(const struct exchange *x, const struct list_read *l, struct buffer *out)
{
    struct error err = { 0 };

    for (size_t i = 0, at = 0; i < l->n; at += l->items[i++].size) {
        const struct list_item *item = &l->items[i];
        AUTO_JSON json_t *now = item->size > 0 ? NULL : present(x, &item->seen, &err);
        AUTO_FREE char *made = now ? brief_text(now) : NULL;
        if (item->size == 0 && !made)
            continue;
        buffer_add(out, out->size > 0 ? "," : "");
        if (item->size > 0)
            buffer_append(out, l->texts.data + at, item->size);
        else
            buffer_add(out, made);
    }
}

static void
answer_list(struct exchange *x, struct exchange_read *call)
{
    struct list_read *l = (struct list_read *)call;
    const char *next = l->has_more ? l->items[l->n - 1].id : NULL;
    AUTO_BUFFER struct buffer texts = BUFFER_INIT;

    if (l->is_text) {
        write_texts(x, l, &texts);
        exchange_page_text(x, &texts, next);
    } else {
        exchange_page(x, write_documents(x, l), next);
    }
}

/* False: the problem is sent. */
static bool
read_filter(struct exchange *x, struct submission_filter *f)
{
    const char *state = target_value(&x->target, "state");
    const char *view = target_value(&x->target, "view");

    *f = (struct submission_filter){
        .state = state ? submission_state_find(state) : -1,
        .client = target_value(&x->target, "client"),
        .group_id = target_value(&x->target, "group"),
        .before = target_value(&x->target, "cursor"),
        .limit = exchange_limit(x),
    };
    if (f->limit == 0 || !exchange_run(x, &f->run, &f->step) ||
        !exchange_policy_version(x, &f->policy_version) || !exchange_class(x, &f->class_))
        return false;
    if (state && f->state < 0)
        return exchange_bad_parameter(x, "state", "is one of queued, running, done, cancelled");
    if (f->group_id && !id_is_valid(f->group_id))
        return exchange_bad_parameter(x, "group", "is not an id");
    if (f->before && !id_is_valid(f->before))
        return exchange_bad_parameter(x, "cursor", "is not a cursor of this list");
    if (view && strcmp(view, "brief") != 0 && strcmp(view, "full") != 0)
        return exchange_bad_parameter(x, "view", "is one of full, brief");
    return true;
}

void
submission_list(struct exchange *x)
{
    static const struct exchange_read call = {
        .read = read_list, .answer = answer_list, .free = free_list, .what = "submission"
    };
    const char *view = target_value(&x->target, "view");
    const char *own = exchange_client(x);
    struct submission_filter filter;

    if (!read_filter(x, &filter))
        return;
    if (own && filter.client && strcmp(filter.client, own) != 0) {
        exchange_page(x, json_array(), NULL);
        return;
    }
    if (own)
        filter.client = own;
    struct list_read *l = exchange_read_new(x, &call, sizeof(*l));
    if (!l)
        return;
    l->filter = filter;
    l->filter.limit++;
    const char **const texts[] = { &l->filter.class_, &l->filter.client,         &l->filter.group_id,
                                   &l->filter.run,    &l->filter.policy_version, &l->filter.before };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        *texts[i] = exchange_read_keep(&l->call, *texts[i]);
    l->is_brief = view && strcmp(view, "brief") == 0;
    l->is_text = l->is_brief && access_sees_detail(x);
    exchange_read_of_task(x, &l->call, target_value(&x->target, "task"));
}
