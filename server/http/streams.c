#include "server/http/streams.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/log.h"
#include "server/submission/seen.h"
#include "server/http/access.h"
#include "server/http/handlers.h"

/*
 * Theory of operation. Event streams (text/event-stream) are responses that
 * continue. An event is recorded once in the ring of events.h, and written for
 * each reader when it is sent, as that reader may see it; a stream is a
 * position in that ring and at most one event in its output buffer, so a
 * reader that stalls costs no more than one that reads. MHD asks read_cb() for
 * bytes whenever the socket took all previous ones; where there are none the
 * connection is suspended until the next event.
 *
 * A stream about one submission or group begins with what is finished already
 * (the snapshot), which is read from the store. Its position in the ring is
 * taken before that read, and events of the ring after it are removed from
 * the snapshot: nothing is sent twice or left out. A submission that this
 * daemon does not judge is looked up in the store at each heartbeat.
 *
 * A stream is closed when its client does not read the available output within
 * body_limit_ms, or when the ring has dropped events after its position.
 */

#define RETRY_MS 1000       /* what a browser's EventSource waits before it connects again */
#define CHECK_TOKEN_MS 1000 /* at most once in this time */
#define NAME_OF_END "end"   /* the id of the last event of a stream that will have no more */
#define OUT_KEPT (4 * 1024) /* bytes of a stream's buffer that outlive an event */

enum subject { SUBJECT_ALL, SUBJECT_SUBMISSION, SUBJECT_GROUP };

struct stream {
    struct stream *prev, *next;
    struct exchange *exchange;
    enum subject subject;
    bool is_brief; /* verdicts as lists show them with view=brief */
    uint64_t at;   /* in the ring */
    struct buffer out;
    size_t out_at;             /* bytes of out that are gone */
    char (*snapshot)[ID_SIZE]; /* owned: submissions to send first; NULL: none */
    size_t snapshot_n, snapshot_at;
    struct stream_read *read; /* in progress; NULL: none */
    bool must_greet, must_open, is_gap, must_beat, must_ask;
    bool is_finished; /* its submission's verdict was sent */
    bool is_suspended, is_over, is_gone;
    const char *why; /* it ends now: the reason; NULL: it goes on */
    int64_t ends_ns; /* monotonic; 0: never */
    int64_t checked_ns;
};

/* --- one event --- */

static void
write_event(struct stream *s, const char *name, const char *kind, const char *data)
{
    if (name)
        buffer_printf(&s->out, "id: %s\n", name);
    buffer_printf(&s->out, "event: %s\ndata: %s\n\n", kind, data);
}

/* document: taken; without memory it is left out, and the stream reports a gap. */
static void
write_document(struct stream *s, const char *name, const char *kind, json_t *document)
{
    AUTO_FREE char *text = document ? json_text(document) : NULL;

    json_decref(document);
    if (text)
        write_event(s, name, kind, text);
    else
        s->is_gap = true;
}

static const char *
kind_name(enum event_kind kind)
{
    static const char *const names[] = {
        [EVENT_STATE] = "state", [EVENT_VERDICT] = "verdict", [EVENT_GROUP] = "group"
    };
    return names[kind];
}

static json_t *
state_json(const struct stream *s, const struct event *event)
{
    bool is_detail = access_sees_detail(s->exchange);

    return json_pack("{s:s, s:s?, s:s?, s:s, s:s?, s:o}", "id", event->submission, "group",
                     *event->group ? event->group : NULL, "client", event->client, "state",
                     event->stage ? "running" : "queued", "stage", is_detail ? event->stage : NULL,
                     "attempts", is_detail ? json_integer(event->attempts) : json_null());
}

/* A stored verdict as this stream shows it. Given; NULL: there is none, or no memory. */
static json_t *
verdict_json(const struct stream *s, const char *text)
{
    json_t *document = json_of(text);

    if (document)
        document = access_view(s->exchange, document);
    return document && s->is_brief ? submission_brief(document) : document;
}

/* The document is made when a stream sends the event, so that no document is made without a reader. */
static void
write_recorded(struct stream *s, const struct event *event)
{
    json_t *document = NULL;

    switch (event->kind) {
    case EVENT_STATE:
        document = state_json(s, event);
        break;
    case EVENT_VERDICT:
        document = verdict_json(s, event->verdict);
        break;
    case EVENT_GROUP:
        document = json_pack("{s:s, s:s?}", "id", event->group, "client", event->client);
        break;
    }
    write_document(s, event->name, kind_name(event->kind), document);
}

/* The submitter receives no progress by stage, only that its submission is judged. */
static bool
is_told(const struct stream *s, const struct event *event)
{
    return !event->is_detail || access_sees_detail(s->exchange);
}

static bool
is_about(const struct stream *s, const struct event *event)
{
    const struct exchange *x = s->exchange;

    if (s->subject == SUBJECT_ALL)
        return access_sees_client(x, event->client) && is_told(s, event);
    /* The access to the submission or group was checked when the stream began. */
    return strcmp(s->subject == SUBJECT_GROUP ? event->group : event->submission, x->id) == 0 &&
           is_told(s, event) && event->kind != EVENT_GROUP;
}

/*
 * The name of the last event before s->at that this stream sends. The name of a later event would work as well, but
 * would show a caller who asks twice whether an event hidden from it happened in between.
 */
static const char *
last_name(const struct stream *s)
{
    const struct events *events = s->exchange->http->events;

    for (uint64_t at = s->at; at > events_first(events); at--) {
        const struct event *event = events_at(events, at - 1);
        if (is_about(s, event))
            return event->name;
    }
    return events_origin(events);
}

/* {"id","state","ranking","items":[{"id","state","class","reward"} …]}: what only a finished group knows. group is taken. */
static json_t *
group_end(const struct exchange *x, json_t *group)
{
    static const char *const keys[] = { "id", "state", "class", "reward" };
    json_t *items = json_array();

    for (size_t i = 0; i < json_array_size(json_object_get(group, "items")); i++) {
        AUTO_JSON json_t *item =
            access_view(x, json_incref(json_array_get(json_object_get(group, "items"), i)));
        json_t *told = json_object();
        for (size_t k = 0; k < ARRAY_LEN(keys); k++)
            json_object_set(told, keys[k], json_object_get(item, keys[k]));
        json_array_append_new(items, told);
    }
    json_t *out = json_pack("{s:s, s:s, s:O?, s:O?, s:o}", "reason", "finished", "id", x->id, "state",
                            json_object_get(group, "state"), "ranking", json_object_get(group, "ranking"),
                            "items", items);
    json_decref(group);
    return out;
}

static void
write_end(struct stream *s, const char *why)
{
    s->is_over = true;
    if (why)
        write_document(s, NULL, "end", json_pack("{s:s}", "reason", why));
    else
        write_document(s, NAME_OF_END, "end",
                       json_pack("{s:s, s:s}", "reason", "finished", "id", s->exchange->id));
}

/* --- reads of the store: the stream waits until the answer is there --- */

static void
wake(struct stream *s)
{
    struct exchange *x = s->exchange;

    if (!s->is_suspended)
        return;
    s->is_suspended = false;
    x->http->suspended--;
    connection_unwatch(x->connection);
    connection_arm(x->connection, DEADLINE_ANSWER, x->http->config->body_limit_ms);
    MHD_resume_connection(x->mhd);
    x->http->must_run = true;
}

struct stream_read {
    struct stream *stream; /* NULL: it has ended */
    char id[ID_SIZE];
    struct seen seen;
    int rc;
    struct error err;
};

static struct stream_read *
stream_read_new(struct stream *s, const char *id)
{
    struct stream_read *q = calloc(1, sizeof(*q));

    if (!q) {
        s->is_gap = true;
        return NULL;
    }
    q->stream = s;
    snprintf(q->id, sizeof(q->id), "%.*s", ID_SIZE - 1, id);
    s->read = q;
    return q;
}

/* The stream that asked, which goes on; NULL: it has ended. q is freed. */
static struct stream *
stream_read_end(struct stream_read *q)
{
    struct stream *s = q->stream;

    seen_release(&q->seen);
    free(q);
    if (s)
        s->read = NULL;
    return s;
}

static void
verdict_read_cb(void *arg, struct store_reader *r)
{
    struct stream_read *q = arg;

    q->rc = seen_read(r, q->id, &q->seen, &q->err);
}

static void
verdict_done_cb(void *arg)
{
    struct stream_read *q = arg;
    const char *verdict = q->rc == 0 ? q->seen.rows[0].verdict : NULL;

    if (q->stream && verdict) {
        /* It has no place in the ring, and so its event has no id. */
        write_document(q->stream, NULL, "verdict", verdict_json(q->stream, verdict));
        q->stream->is_finished |= q->stream->subject == SUBJECT_SUBMISSION;
    } else if (q->stream && q->rc != 0) {
        q->stream->is_gap = true;
    }
    struct stream *s = stream_read_end(q);
    if (s)
        wake(s);
}

/* Sends the verdict of a submission, where it has one. */
static void
ask_verdict(struct stream *s, const char *id)
{
    struct stream_read *q = stream_read_new(s, id);

    if (q && store_read(s->exchange->http->store, verdict_read_cb, verdict_done_cb, q, &q->err) != 0) {
        stream_read_end(q);
        s->is_gap = true;
    }
}

static void
group_done_cb(void *arg, json_t *document, bool is_finished, const struct error *err)
{
    struct stream *s = stream_read_end(arg);

    if (s && err->code != ERR_NONE)
        s->is_gap = true;
    if (s && document && is_finished) {
        s->is_over = true;
        write_document(s, NAME_OF_END, "end", group_end(s->exchange, ptr_take(&document)));
    }
    json_decref(document);
    if (s)
        wake(s);
}

/* Sends the end of the group, where it has ended. */
static void
ask_group(struct stream *s)
{
    struct stream_read *q = stream_read_new(s, s->exchange->id);

    if (q)
        funnel_show_group(s->exchange->http->funnel, q->id, group_done_cb, q);
}

/* --- what comes next --- */

/* A token that was revoked or has expired sees no more, and calls that now need one have it. */
static bool
is_still_let_in(struct stream *s)
{
    const struct caller *caller = &s->exchange->caller;
    struct keyring *keyring = s->exchange->http->keyring;
    int64_t now_ns = clock_monotonic_ns();

    if (now_ns - s->checked_ns < CHECK_TOKEN_MS * INT64_C(1000000))
        return true;
    s->checked_ns = now_ns;
    keyring_refresh(keyring);
    return !keyring_is_on(keyring) || (caller->has_token && keyring_has(keyring, caller->token_hash));
}

/*
 * Handles ends that the ring does not have: a submission that this daemon does not judge has ended, or may end without
 * an event here. True: the store is asked for it.
 */
static bool
ask_for_end(struct stream *s)
{
    if (!s->must_ask || s->subject == SUBJECT_ALL ||
        funnel_is_here(s->exchange->http->funnel, s->exchange->id))
        return false;
    s->must_ask = false;
    if (s->subject == SUBJECT_GROUP)
        ask_group(s);
    else if (!s->is_finished)
        ask_verdict(s, s->exchange->id);
    return s->read != NULL;
}

/* Puts what comes next into out; false: there is nothing now. */
static bool
write_next(struct stream *s)
{
    struct http *h = s->exchange->http;

    if (s->is_over || s->read)
        return false;
    if (!is_still_let_in(s)) {
        write_end(s, "token");
        return true;
    }
    if (s->must_greet) {
        s->must_greet = false;
        buffer_printf(&s->out, "retry: %d\n\n", RETRY_MS);
        return true;
    }
    if (s->is_gap) {
        s->is_gap = false;
        write_event(s, NULL, "gap", "{\"reason\":\"events were lost: read the present state again\"}");
        return true;
    }
    if (s->snapshot_at < s->snapshot_n) {
        ask_verdict(s, s->snapshot[s->snapshot_at++]);
        return false;
    }
    free(ptr_take(&s->snapshot));
    if (s->must_open) {
        s->must_open = false;
        write_event(s, last_name(s), "open", "{}");
        return true;
    }
    while (s->at < events_end(h->events)) {
        const struct event *event = events_at(h->events, s->at++);
        if (is_about(s, event)) {
            write_recorded(s, event);
            s->is_finished |= s->subject == SUBJECT_SUBMISSION && event->kind == EVENT_VERDICT;
            return true;
        }
    }
    if (ask_for_end(s))
        return s->out.size > 0;
    if (s->is_finished)
        write_end(s, NULL);
    else if (s->why || (s->ends_ns && clock_monotonic_ns() >= s->ends_ns))
        write_end(s, s->why ? s->why : "wait");
    else if (s->must_beat)
        buffer_add(&s->out, ":\n\n");
    s->must_beat = false;
    return s->out.size > 0;
}

static size_t
copy_out(struct stream *s, char *to, size_t room)
{
    size_t left = s->out.size - s->out_at;
    size_t n = left < room ? left : room;

    if (n > 0)
        memcpy(to, s->out.data + s->out_at, n);
    s->out_at += n;
    if (s->out_at == s->out.size) {
        s->out_at = 0;
        if (s->out.size > OUT_KEPT)
            buffer_release(&s->out);
        else
            buffer_clear(&s->out);
    }
    return n;
}

static void
rest(struct stream *s)
{
    struct exchange *x = s->exchange;
    int64_t ms = x->http->config->heartbeat_ms;

    if (s->ends_ns) {
        int64_t left_ms = (s->ends_ns - clock_monotonic_ns()) / 1000000 + 1;
        ms = left_ms < ms ? left_ms : ms;
    }
    s->is_suspended = true;
    x->http->suspended++;
    connection_watch(x->connection);
    connection_arm(x->connection, DEADLINE_BEAT, ms);
    MHD_suspend_connection(x->mhd);
}

/* MHD calls this when the socket has taken all that went before. */
static ssize_t
read_cb(void *cls, uint64_t position, char *to, size_t room)
{
    struct stream *s = cls;
    struct http *h = s->exchange->http;
    size_t n = 0;

    (void)position;
    if (s->is_gone)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (s->at < events_first(h->events)) {
        stream_drop(s);
        return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    while (n < room && (s->out.size > 0 || write_next(s)))
        n += copy_out(s, to + n, room - n);
    if (n > 0) {
        connection_arm(s->exchange->connection, DEADLINE_ANSWER, h->config->body_limit_ms);
        return (ssize_t)n;
    }
    if (s->is_over)
        return MHD_CONTENT_READER_END_OF_STREAM;
    rest(s);
    return 0;
}

void
stream_beat(struct stream *s)
{
    s->must_beat = s->must_ask = true;
    wake(s);
}

void
stream_end(struct stream *s, const char *why)
{
    s->why = why;
    wake(s);
}

void
stream_gone(struct stream *s)
{
    s->is_gone = true;
    wake(s);
}

void
stream_drop(struct stream *s)
{
    struct exchange *x = s->exchange;

    x->http->streams_dropped++;
    log_debug(x->request_id, "%s: its reader is too slow", x->uri);
    s->is_gone = true;
    connection_shutdown(x->connection);
}

/* --- writing into the ring --- */

/* Those of the group ask the store whether all of it has ended. */
static void
wake_streams_of(struct http *h, const char *group)
{
    struct stream *s;

    DL_FOREACH(h->streams, s)
    {
        if (strcmp(group, s->exchange->id) != 0)
            continue;
        s->must_ask = true;
        wake(s);
    }
}

void
streams_event_cb(void *arg, const struct funnel_event *event)
{
    struct http *h = arg;
    static const enum event_kind kinds[] = { [FUNNEL_EVENT_QUEUED] = EVENT_STATE,
                                             [FUNNEL_EVENT_STAGE] = EVENT_STATE,
                                             [FUNNEL_EVENT_VERDICT] = EVENT_VERDICT,
                                             [FUNNEL_EVENT_GROUP] = EVENT_GROUP };

    if (event->kind == FUNNEL_EVENT_PART) {
        wake_streams_of(h, event->group);
        return;
    }
    struct event out = { .kind = kinds[event->kind],
                         .client = event->client ? strdup(event->client) : NULL,
                         .stage = event->stage,
                         .verdict = event->verdict ? strdup(event->verdict) : NULL,
                         .attempts = event->attempts,
                         .is_detail = event->stage && !event->is_begun };
    uint64_t end = events_end(h->events);
    struct stream *s;

    snprintf(out.submission, sizeof(out.submission), "%s", event->submission ? event->submission : "");
    snprintf(out.group, sizeof(out.group), "%s", event->group);
    bool is_kept = !event->client || out.client;
    if (is_kept)
        events_add(h->events, &out);
    else
        free(out.verdict);
    DL_FOREACH(h->streams, s)
    {
        if (!is_kept)
            s->is_gap = true;
        /* The end of a group is not an event of its stream; it ends the stream. */
        bool is_end = event->kind == FUNNEL_EVENT_GROUP && strcmp(event->group, s->exchange->id) == 0;
        if (!is_kept || is_end || is_about(s, events_at(h->events, end)))
            wake(s);
        else if (s->is_suspended && !s->read)
            s->at = end + 1; /* all earlier events were sent, too */
        if (s->at < events_first(h->events) && !s->is_gone)
            stream_drop(s); /* MHD would ask for more only once its socket took something */
    }
}

/* --- life --- */

/* The first part of a stream about one submission or group. */
struct beginning {
    struct exchange_read call;
    char id[ID_SIZE];
    enum subject subject;
    uint64_t at; /* the end of the ring before the store was asked */
    bool is_seen, is_finished;
    const char *client;
    struct {
        char id[ID_SIZE];
        bool is_finished;
    } all[GROUP_MAX];
    size_t n;
};

static bool
is_told_of_since(const struct events *events, uint64_t at, const char *id)
{
    for (; at < events_end(events); at++) {
        const struct event *event = events_at(events, at);
        if (event->kind == EVENT_VERDICT && strcmp(event->submission, id) == 0)
            return true;
    }
    return false;
}

/*
 * A verdict that the store has and the funnel has not yet reported comes through the ring, as do events since; and so
 * does the end of what had not ended, on whichever node it runs.
 */
static int
take_snapshot(struct stream *s, const struct beginning *b, struct error *err)
{
    struct http *h = s->exchange->http;
    bool is_group = b->subject == SUBJECT_GROUP;

    s->snapshot = b->n > 0 ? calloc(b->n, sizeof(*s->snapshot)) : NULL;
    if (b->n > 0 && !s->snapshot)
        return error_set(err, ERR_NOMEM, "no memory for the stream");
    for (size_t i = 0; i < b->n; i++) {
        const char *id = b->all[i].id;
        if (is_told_of_since(h->events, s->at, id))
            continue;
        if (!b->all[i].is_finished)
            funnel_watch(h->funnel, id, is_group ? b->id : NULL, is_group ? b->client : NULL);
        else if (!funnel_is_here(h->funnel, id))
            memcpy(s->snapshot[s->snapshot_n++], id, ID_SIZE);
    }
    return 0;
}

/* Where it begins: behind the event that the client names, or now. b: NULL for one of all. 0, or err's code. */
static int
place(struct stream *s, const char *last, const struct beginning *b, struct error *err)
{
    struct events *events = s->exchange->http->events;

    if (last && *last && events_find(events, last, &s->at))
        return 0;
    s->is_gap = last && *last;
    s->must_open = true;
    s->at = b ? b->at : events_end(events);
    if (s->at < events_first(events)) {
        s->is_gap = true;
        s->at = events_first(events);
    }
    return b ? take_snapshot(s, b, err) : 0;
}

static void
release(struct exchange *x)
{
    struct stream *s = x->stream;

    if (s->is_suspended)
        s->exchange->http->suspended--;
    DL_DELETE(s->exchange->http->streams, s);
    s->exchange->http->streams_count--;
    buffer_release(&s->out);
    free(s->snapshot);
    if (s->read)
        s->read->stream = NULL;
    free(s);
}

static struct stream *
stream_new(struct exchange *x, enum subject subject, bool is_brief)
{
    struct stream *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->exchange = x;
    s->subject = subject;
    s->is_brief = is_brief;
    s->must_greet = s->must_ask = true;
    if (x->wait_s >= 0)
        s->ends_ns = clock_monotonic_ns() + (int64_t)(x->wait_s * 1e9);
    if (x->http->is_draining)
        s->why = "draining";
    DL_APPEND(x->http->streams, s);
    x->http->streams_count++;
    x->stream = s;
    x->release = release;
    return s;
}

static void
begin(struct exchange *x, enum subject subject, const struct beginning *b)
{
    const char *last = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, "Last-Event-ID");
    const char *view = target_value(&x->target, "view");
    bool is_brief = view ? strcmp(view, "brief") == 0 : subject == SUBJECT_ALL;
    struct error err = { 0 };

    if (last && strcmp(last, NAME_OF_END) == 0 && b && b->is_finished &&
        !funnel_is_here(x->http->funnel, x->id)) {
        exchange_set_static(x, 204, "text/event-stream", "", 0); /* EventSource then asks no more */
        exchange_send(x);
        return;
    }
    struct stream *s = stream_new(x, subject, is_brief);
    if (!s) {
        exchange_problem(x, PROBLEM_INTERNAL, "no memory for the stream");
        return;
    }
    if (place(s, last, b, &err) != 0) {
        exchange_error(x, &err, "such stream");
        return;
    }
    exchange_set_response(x, 200, "text/event-stream",
                          MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, read_cb, s, NULL));
    exchange_header(x, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    exchange_header(x, "X-Accel-Buffering", "no"); /* nginx passes it on at once */
    exchange_send(x);
}

static bool
beginning_row_cb(void *arg, const struct submission_row *row)
{
    struct beginning *b = arg;

    b->is_seen = exchange_read_sees(&b->call, row->client);
    if (b->n == 0 && row->client)
        b->client = exchange_read_keep(&b->call, row->client);
    memcpy(b->all[b->n].id, row->id, ID_SIZE);
    b->all[b->n++].is_finished = !row_is_unfinished(row);
    b->is_finished &= !row_is_unfinished(row);
    return b->is_seen && b->n < GROUP_MAX;
}

static int
read_beginning(struct exchange_read *call, struct store_reader *r, struct error *err)
{
    struct beginning *b = (struct beginning *)call;
    struct submission_row row = { 0 };
    int rc;

    if (b->subject == SUBJECT_GROUP) {
        rc = reader_each_of_group(r, b->id, beginning_row_cb, b, err);
    } else {
        rc = reader_get_submission(r, b->id, &row, err);
        if (rc == 0)
            beginning_row_cb(b, &row);
        submission_row_release(&row);
    }
    if (rc == 0 && !b->is_seen)
        rc = error_set(err, ERR_NOTFOUND, "another client's");
    return rc;
}

static void
answer_beginning(struct exchange *x, struct exchange_read *call)
{
    struct beginning *b = (struct beginning *)call;

    snprintf(x->id, sizeof(x->id), "%s", b->id);
    begin(x, b->subject, b);
}

static bool
is_view(struct exchange *x)
{
    const char *view = target_value(&x->target, "view");

    if (!view || strcmp(view, "brief") == 0 || strcmp(view, "full") == 0)
        return true;
    return exchange_bad_parameter(x, "view", "is one of full, brief");
}

static void
begin_about(struct exchange *x, enum subject subject, const char *what)
{
    const char *id = x->target.segments[2];

    if (!is_view(x))
        return;
    if (!id_is_valid(id)) {
        exchange_problem(x, PROBLEM_NOT_FOUND, "there is no %s", what);
        return;
    }
    const struct exchange_read call = { .read = read_beginning, .answer = answer_beginning, .what = what };
    struct beginning *b = exchange_read_new(x, &call, sizeof(*b));
    if (!b)
        return;
    snprintf(b->id, sizeof(b->id), "%s", id);
    b->subject = subject;
    b->is_finished = true;
    b->at = events_end(x->http->events);
    exchange_read(x, &b->call);
}

void
events_all(struct exchange *x)
{
    if (is_view(x))
        begin(x, SUBJECT_ALL, NULL);
}

void
submission_events(struct exchange *x)
{
    begin_about(x, SUBJECT_SUBMISSION, "such submission");
}

void
group_events(struct exchange *x)
{
    begin_about(x, SUBJECT_GROUP, "such group");
}
