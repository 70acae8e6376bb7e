#include "server/http/handlers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "server/http/notices.h"
#include "server/submission/seen.h"
#include "server/http/access.h"
#include "server/http/answers.h"
#include "server/http/idempotency.h"

/* An answer that is being printed. */
struct showing {
    struct pending pending;
    unsigned status_unfinished;
};

static void
printed_cb(void *arg, char *text, size_t size, bool is_finished, const struct error *err)
{
    struct showing *s = arg;
    struct exchange *x = s->pending.exchange;
    unsigned status = is_finished ? 200 : s->status_unfinished;

    free(s);
    if (!x) {
        free(text);
        return;
    }
    x->pending = NULL;
    if (!text) {
        exchange_error(x, err, "such group");
        return;
    }
    exchange_set_bytes(x, status, "application/json", text, size);
    exchange_tag(x);
    exchange_accept_headers(x, "/v1/groups/");
    exchange_send(x);
}

/* Hundreds of documents take longer than the loop may block, so they are made in another thread. */
static void
answer_with(struct exchange *x, unsigned status_unfinished)
{
    struct showing *s = calloc(1, sizeof(*s));

    if (!s) {
        exchange_problem(x, PROBLEM_INTERNAL, "no memory for the group");
        return;
    }
    s->pending.exchange = x;
    s->status_unfinished = status_unfinished;
    x->pending = &s->pending;
    connection_arm(x->connection, DEADLINE_WORK, HTTP_WORK_LOOK_MS);
    funnel_print_group(x->http->funnel, x->id, access_sees_detail(x), printed_cb, s);
}

static void
answer_show(struct exchange *x)
{
    answer_with(x, 200);
}

static void
answer_added(struct exchange *x)
{
    answer_with(x, 202);
}

/* What a route reads of the group in its address, or of one that it has just made. */
struct group_look {
    struct exchange_read call;
    char id[ID_SIZE];
    struct seen seen; /* what has not ended, of a group that is to be cancelled */
    bool is_seen;     /* the caller may know of it */
};

static void
free_look(struct exchange_read *call)
{
    struct group_look *l = (struct group_look *)call;

    seen_release(&l->seen);
    exchange_read_free(call);
}

/* Has call made of the group called id. */
static void
look(struct exchange *x, const char *id, const struct exchange_read *call)
{
    struct group_look *l;

    if (!id_is_valid(id)) {
        exchange_problem(x, PROBLEM_NOT_FOUND, "there is no such group");
    } else if ((l = exchange_read_new(x, call, sizeof(*l)))) {
        l->call.free = free_look;
        l->call.what = "such group";
        snprintf(l->id, sizeof(l->id), "%s", id);
        exchange_read(x, &l->call);
    }
}

static bool
accepted_cb(void *arg, const struct submission_row *row)
{
    json_array_append_new(
        arg, json_pack("{s:s, s:s}", "id", row->id, "state", submission_state_name(SUBMISSION_QUEUED)));
    return true;
}

static int
read_accepted(struct exchange_read *call, struct store_reader *r, struct error *err)
{
    struct group_look *l = (struct group_look *)call;

    return reader_each_of_group(r, l->id, accepted_cb, call->items, err);
}

/* {"id","state","items":[{"id","state"} …],"links"}: as of the moment when it was accepted, as for a submission. */
static void
send_accepted(struct exchange *x, struct exchange_read *call)
{
    const char *queued = submission_state_name(SUBMISSION_QUEUED);

    exchange_set_json(x, 202,
                      json_pack("{s:s, s:s, s:O, s:{s:s+}, s:s*}", "id", x->id, "state", queued, "items",
                                call->items, "links", "self", "/v1/groups/", x->id, "warning", x->warning));
    exchange_accept_headers(x, "/v1/groups/");
    exchange_send(x);
}

static void
answer_accepted(struct exchange *x)
{
    static const struct exchange_read call = { .read = read_accepted, .answer = send_accepted };

    look(x, x->id, &call);
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
group_added(struct exchange *x, const struct funnel_answer *answer)
{
    exchange_made(x, answer, "group", group_add, answer_known);
}

/* False: the problem is sent. A value that is not a text is refused with the rest of the body. */
static bool
may_notify(struct exchange *x)
{
    const char *url = json_string_value(json_object_get(x->document, "notify_url"));
    struct error err = { 0 };

    if (!url || notices_check(x->http->notices, url, &err) == 0)
        return true;
    exchange_problem_at(x, PROBLEM_BODY, "pointer", "/notify_url", err.text);
    return false;
}

static void
add(struct exchange *x, struct running_key *key)
{
    if (!may_notify(x)) {
        running_key_end(key);
        return;
    }
    struct pending *p = exchange_begin(x, key, group_added);

    access_stamp(x);
    if (p)
        funnel_submit_group(x->http->funnel, x->document, key ? &key->row : NULL, exchange_pending_cb, p);
    json_decref(ptr_take(&x->document)); /* large, and the funnel releases it outside the loop thread */
}

void
group_add(struct exchange *x)
{
    idempotency_begin(x, answer_known, add);
}

/* A group's submissions are all of one client. */
static bool
owner_cb(void *arg, const struct submission_row *row)
{
    struct group_look *l = arg;

    l->is_seen = exchange_read_sees(&l->call, row->client);
    return false;
}

static int
read_owner(struct exchange_read *call, struct store_reader *r, struct error *err)
{
    struct group_look *l = (struct group_look *)call;
    int rc = reader_each_of_group(r, l->id, owner_cb, l, err);

    if (rc == 0 && !l->is_seen)
        rc = error_set(err, ERR_NOTFOUND, "another client's");
    return rc;
}

static void
show_found(struct exchange *x, struct exchange_read *call)
{
    snprintf(x->id, sizeof(x->id), "%s", ((struct group_look *)call)->id);
    exchange_hold(x, answer_show);
}

void
group_show(struct exchange *x)
{
    static const struct exchange_read call = { .read = read_owner, .answer = show_found };

    look(x, x->target.segments[2], &call);
}

static int
read_unfinished(struct exchange_read *call, struct store_reader *r, struct error *err)
{
    struct group_look *l = (struct group_look *)call;
    int rc = read_owner(call, r, err);

    return rc == 0 ? seen_read_group(r, l->id, false, &l->seen, err) : rc;
}

static void
cancel_found(struct exchange *x, struct exchange_read *call)
{
    struct group_look *l = (struct group_look *)call;
    struct error err = { 0 };

    snprintf(x->id, sizeof(x->id), "%s", l->id);
    if (funnel_cancel(x->http->funnel, &l->seen, &err) != 0) {
        exchange_error(x, &err, "such group");
        return;
    }
    if (*x->caller.client && !exchange_client(x))
        access_note(x, "cancel group as admin", x->id);
    exchange_hold_cancelled(x, answer_added);
}

void
group_cancel(struct exchange *x)
{
    static const struct exchange_read call = { .read = read_unfinished, .answer = cancel_found };

    look(x, x->target.segments[2], &call);
}

static void
rescored_cb(void *arg, json_t *document, const struct json_fault *fault, const struct error *err)
{
    struct pending *p = arg;
    struct exchange *x = p->exchange;
    struct funnel_answer answer = { .refusal = FUNNEL_BAD };

    free(p);
    if (!x) {
        json_decref(document);
        return;
    }
    x->pending = NULL;
    if (document) {
        exchange_json(x, 200, document);
    } else if (err->code == ERR_INPUT) {
        answer.fault = *fault;
        exchange_refused(x, &answer);
    } else if (err->code == ERR_NOTFOUND && *fault->text) {
        exchange_problem(x, PROBLEM_NOT_FOUND, "%s", fault->text);
    } else {
        exchange_error(x, err, "such group");
    }
}

void
rescore(struct exchange *x)
{
    struct pending *p = exchange_begin(x, NULL, NULL);

    if (p)
        funnel_rescore(x->http->funnel, x->document, exchange_client(x), rescored_cb, p);
}
