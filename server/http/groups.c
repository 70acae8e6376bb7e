#include "server/http/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"

static void
set_headers(struct exchange *x)
{
    char text[128];

    snprintf(text, sizeof(text), "/v1/groups/%s", x->id);
    if (x->status == 202)
        exchange_header(x, MHD_HTTP_HEADER_LOCATION, text);
    snprintf(text, sizeof(text), "wait=%.0f", exchange_hold_s(x));
    if (x->is_preferred)
        exchange_header(x, "Preference-Applied", text);
    if (x->is_replay)
        exchange_header(x, "Idempotency-Replayed", "true");
}

json_t *
group_view(const struct exchange *x, struct error *err)
{
    json_t *document = funnel_show_group(x->http->funnel, x->id, err);
    json_t *items = json_object_get(document, "items");

    for (size_t i = 0; i < json_array_size(items); i++)
        json_array_set_new(items, i, access_view(x, json_incref(json_array_get(items, i))));
    return document;
}

/* An answer that is being printed. */
struct showing {
    struct pending pending;
    unsigned status;
};

static void
printed_cb(void *arg, char *text, size_t size, const struct error *err)
{
    struct showing *s = arg;
    struct exchange *x = s->pending.exchange;
    unsigned status = s->status;

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
    set_headers(x);
    exchange_send(x);
}

/* Hundreds of documents take longer than the loop may be away, so they are made beside it. */
static void
answer_with(struct exchange *x, unsigned status)
{
    struct showing *s = calloc(1, sizeof(*s));

    if (!s) {
        exchange_problem(x, PROBLEM_INTERNAL, "no memory for the group");
        return;
    }
    s->pending.exchange = x;
    s->status = status;
    x->pending = &s->pending;
    connection_arm(x->connection, DEADLINE_WORK, HTTP_WORK_LIMIT_MS);
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
    answer_with(x, funnel_is_finished(x->http->funnel, x->id) ? 200 : 202);
}

static bool
accepted_cb(void *arg, const struct submission_row *row)
{
    json_array_append_new(
        arg, json_pack("{s:s, s:s}", "id", row->id, "state", submission_state_name(SUBMISSION_QUEUED)));
    return true;
}

/* {"id","state","items":[{"id","state"} …],"links"}: as of the moment when it was accepted, as for a submission. */
static void
answer_accepted(struct exchange *x)
{
    const char *queued = submission_state_name(SUBMISSION_QUEUED);
    struct error err = { 0 };
    json_t *items = json_array();

    if (store_each_of_group(x->http->store, x->id, accepted_cb, items, &err) != 0) {
        json_decref(items);
        exchange_error(x, &err, "such group");
        return;
    }
    exchange_set_json(x, 202,
                      json_pack("{s:s, s:s, s:o, s:{s:s+}}", "id", x->id, "state", queued, "items", items,
                                "links", "self", "/v1/groups/", x->id));
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
group_added(struct exchange *x, const struct funnel_answer *answer)
{
    if (exchange_refused(x, answer))
        return;
    snprintf(x->id, sizeof(x->id), "%s", answer->id);
    exchange_accepted(x, "group");
    answer_known(x);
}

void
group_add(struct exchange *x)
{
    struct running_key *key;

    if (!idempotency_begin(x, answer_known, &key))
        return;
    struct pending *p = exchange_begin(x, key, group_added);
    access_stamp(x);
    if (p)
        funnel_submit_group(x->http->funnel, x->document, key ? &key->row : NULL, exchange_pending_cb, p);
    json_decref(ptr_take(&x->document)); /* large, and the funnel lets go of it beside the loop */
}

struct owner {
    struct exchange *exchange;
    bool is_seen;
};

/* A group's submissions are all of one client. */
static bool
owner_cb(void *arg, const struct submission_row *row)
{
    struct owner *o = arg;
    o->is_seen = access_sees_client(o->exchange, row->client);
    return false;
}

bool
group_find(struct exchange *x)
{
    const char *id = x->target.segments[2];
    struct owner owner = { .exchange = x };
    struct group_row row = { 0 };
    struct error err = { 0 };

    if (!id_is_valid(id))
        error_set(&err, ERR_NOTFOUND, "no id");
    else if (store_get_group(x->http->store, id, &row, &err) == 0 &&
             store_each_of_group(x->http->store, id, owner_cb, &owner, &err) == 0) {
        if (owner.is_seen)
            snprintf(x->id, sizeof(x->id), "%s", row.id);
        else
            error_set(&err, ERR_NOTFOUND, "another client's");
    }
    group_row_release(&row);
    if (err.code == ERR_NONE)
        return true;
    exchange_error(x, &err, "such group");
    return false;
}

void
group_show(struct exchange *x)
{
    if (group_find(x))
        exchange_hold(x, answer_show);
}

void
group_cancel(struct exchange *x)
{
    struct error err = { 0 };

    if (!group_find(x))
        return;
    if (funnel_cancel(x->http->funnel, x->id, &err) != 0)
        exchange_error(x, &err, "such group");
    else {
        if (*x->caller.client && !access_client(x))
            access_note(x, "cancel group as admin", x->id);
        exchange_hold_cancelled(x, answer_added);
    }
}

void
rescore(struct exchange *x)
{
    json_t *document;
    struct funnel_answer answer = { .refusal = FUNNEL_BAD };
    struct error err = { 0 };

    int rc = funnel_rescore(x->http->funnel, x->document, access_client(x), &document, &answer.fault, &err);
    if (rc == 0)
        exchange_json(x, 200, document);
    else if (rc == ERR_INPUT)
        exchange_refused(x, &answer);
    else
        exchange_error(x, &err, "such submission or group");
}
