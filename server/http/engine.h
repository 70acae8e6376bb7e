/*
 * engine.h - what the files of http/ share: the engine, its connections, and
 * the exchange of one request for one answer. Private to http/. Loop thread.
 */
#ifndef HTTP_ENGINE_H
#define HTTP_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>
#include <microhttpd.h>
#include <uthash.h>
#include <uv.h>

#include "common/buffer.h"
#include "common/hash.h"
#include "common/histogram.h"
#include "common/clock.h"
#include "common/ids.h"
#include "server/http/events.h"
#include "server/http/http.h"
#include "server/http/linger.h"
#include "server/http/problem.h"
#include "server/http/target.h"
#include "server/token.h"
#include "server/watchdog.h"

#define HTTP_BODY_MAX (8 * 1024 * 1024) /* bytes */
/*
 * Larger bodies are parsed in libuv's pool: the loop would do nothing else for 12 ns a byte. Those of a usual submission
 * only as long as few are there: what removes directories uses the same pool, and may take its time.
 */
#define HTTP_PARSE_INLINE_MAX (64 * 1024)
#define HTTP_PARSE_SMALL_MAX (2 * 1024)
#define HTTP_PARSE_BESIDE 2
#define HTTP_CONNECTION_MEMORY (16 * 1024) /* MHD's pool for each connection: bounds the header */
#define HTTP_REFUSED_MOST 64               /* connections beyond the limit that are being told so */
#define HTTP_ROUTES_MAX 96
#define HTTP_IDLE_MS 60000                  /* between two requests of a connection */
#define HTTP_WORK_LIMIT_MS (15 * 60 * 1000) /* backstop: the funnel answers long before */

struct http {
    uv_loop_t *loop;
    const struct config *config;
    struct funnel *funnel;
    struct store *store;
    struct keyring *keyring;
    struct retention *retention; /* NULL: none yet */
    struct MHD_Daemon *daemon;
    uv_poll_t poll;       /* on MHD's own epoll descriptor */
    uv_prepare_t prepare; /* before the loop sleeps: pending resumes, MHD's timeout */
    uv_timer_t timer;
    struct watchdog watchdog;
    unsigned handles_open;
    bool must_run;    /* a connection was resumed or closed since the last MHD_run() */
    bool is_draining; /* no more holding */
    void (*stopped_cb)(void *arg);
    void *stopped_arg;
    struct exchange *exchanges;       /* all that are alive */
    struct running_key *running_keys; /* by scope */
    struct leftovers lingers;
    unsigned exchanges_count, suspended, held, connections, exports;
    unsigned parses; /* of bodies, in libuv's pool */
    uint64_t connections_refused;
    struct events *events;
    struct notices *notices; /* NULL: nothing may be posted */
    struct stream *streams;  /* all that are open */
    unsigned streams_count;
    uint64_t streams_dropped;                    /* for reading too slowly */
    uint64_t requests;                           /* answered so far */
    uint64_t answers[600];                       /* of those, by status */
    struct histogram durations[HTTP_ROUTES_MAX]; /* by route_number(), in histogram_seconds */
    int64_t started_ns, stop_ns;                 /* monotonic */
    json_t *process, *disks;                     /* what host.h told at host_ns */
    int64_t host_ns;
    struct kept_status {
        char *text; /* the figures of the funnel and of the host, as JSON */
        size_t size;
        uint64_t generation; /* funnel_generation() before they were made, at */
        int64_t at_ns;       /* monotonic */
    } status;
    char url[96];
};

/* --- connections: connection.c --- */

enum deadline {
    DEADLINE_HEADER, /* of the first request */
    DEADLINE_BODY,
    DEADLINE_HOLD,   /* a long poll */
    DEADLINE_WORK,   /* an answer of the funnel */
    DEADLINE_ANSWER, /* until the client took it; of a stream: took what there is */
    DEADLINE_BEAT,   /* a stream that has nothing to say */
    DEADLINE_IDLE,   /* until the end of the next request's header */
};

/* One socket. Freed when MHD has closed it and both handles are closed. */
struct connection {
    struct http *http;
    int fd; /* MHD's */
    uv_timer_t timer;
    uv_poll_t gone; /* watches for the client's leaving while MHD does not */
    unsigned handles_open;
    enum deadline deadline;
    bool is_counted;           /* false: it was refused */
    bool must_linger;          /* take what the client still sends, so that it can read the answer */
    bool is_dead;              /* shut down by us */
    struct exchange *exchange; /* the request that is under way, or NULL */
};

void connection_notify_cb(void *cls, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode code);
struct connection *connection_of(struct MHD_Connection *mhd);
/* One deadline at a time; ms 0 is the next turn of the loop. */
void connection_arm(struct connection *c, enum deadline deadline, int64_t ms);
void connection_disarm(struct connection *c);
void connection_watch(struct connection *c);
void connection_unwatch(struct connection *c);
/* End it; MHD notices. */
void connection_shutdown(struct connection *c);
/* Answer without MHD, which takes no answer in the middle of a body; then end it. */
void connection_refuse(struct connection *c, enum problem problem, const char *detail);

/* --- exchanges: exchange.c --- */

enum exchange_phase {
    EXCHANGE_NEW,      /* the request line is there */
    EXCHANGE_BODY,     /* the header is there, the body is arriving */
    EXCHANGE_WORKING,  /* a handler has it */
    EXCHANGE_HELD,     /* a long poll */
    EXCHANGE_ANSWERED, /* the response is made; MHD will take it */
    EXCHANGE_QUEUED,   /* MHD has it */
};

typedef void exchange_cb(struct exchange *x);
typedef void exchange_answer_cb(struct exchange *x, const struct funnel_answer *answer);

/* What comes back later finds the exchange through this, or finds that it was given up. */
struct pending {
    struct exchange *exchange; /* NULL: given up */
    exchange_answer_cb *then;
    struct running_key *key; /* owned; NULL: none */
};

/*
 * Reads of the store that an exchange waits for: the first member of a struct that has copies of what they need and room
 * for what they come to.
 */
struct exchange_read {
    struct pending pending; /* its then is not used */
    int (*read)(struct exchange_read *c, struct store_reader *r,
                struct error *err);                              /* a thread of the store */
    void (*answer)(struct exchange *x, struct exchange_read *c); /* loop's thread; the reads succeeded */
    void (*free)(struct exchange_read *c);                       /* and the struct */
    const char *what; /* static: what there is none of, when it is not found */
    /* exchange_read()'s own: */
    bool sees_all;                /* of the caller; else only its own */
    char client[TOKEN_NAME_SIZE]; /* the caller's, "": the operator */
    char *task;                   /* the task that is looked for first, by id or name; NULL: none */
    char task_id[HASH_TEXT_SIZE]; /* which that is */
    int rc;
    struct error err;
};

/* Who asks, by the token shown; where there are no tokens, the operator. */
struct caller {
    unsigned scopes;              /* of enum scope */
    char client[TOKEN_NAME_SIZE]; /* "": the operator, who is no client */
    bool has_token;
    unsigned char token_hash[TOKEN_HASH_SIZE];
};

struct exchange {
    struct exchange *prev, *next;
    struct http *http;
    struct MHD_Connection *mhd;
    struct connection *connection;
    enum exchange_phase phase;
    bool is_suspended, is_chunked, must_close;
    char request_id[ID_SIZE];
    int64_t begun_ns;             /* monotonic */
    char *uri;                    /* raw */
    uintptr_t uri_start, uri_end; /* where it stood in MHD's buffer: see check_framing() */
    struct target target;
    const struct route *route;
    struct caller caller;
    bool is_refused; /* an answer is ready; the body is read and dropped */
    bool is_raw;     /* the body is a source, not a document */
    struct buffer body;
    uint64_t body_seen;             /* bytes */
    json_t *document;               /* the body, parsed */
    char key[STORE_KEY_SIZE];       /* Idempotency-Key, "": none */
    char body_hash[HASH_TEXT_SIZE]; /* where there is a key */
    bool is_replay;                 /* answered again, by a key that is known */
    double wait_s;                  /* asked for, or what the route waits; < 0: not */
    bool is_preferred;              /* by Prefer, so Preference-Applied is due */
    struct pending *pending;
    bool is_reading; /* pending is of a read of the store, which ends by itself */
    struct funnel_wait *wait;
    exchange_cb *held_cb;
    struct stream *stream;     /* the answer, where it is one of events; owned */
    struct compat_job *compat; /* of a foreign format; owned */
    char id[80];               /* what the answer is about: a submission, a group or a task */
    unsigned status;
    struct MHD_Response *response;
    const char *bytes; /* of the response, view; NULL: none */
    size_t bytes_size;
};

/* Callbacks of MHD; cls is the http. */
void *exchange_uri_cb(void *cls, const char *uri, struct MHD_Connection *mhd);
enum MHD_Result exchange_access_cb(void *cls, struct MHD_Connection *mhd, const char *url, const char *method,
                                   const char *version, const char *upload, size_t *upload_size,
                                   void **con_cls);
void exchange_completed_cb(void *cls, struct MHD_Connection *mhd, void **con_cls,
                           enum MHD_RequestTerminationCode why);

/* MHD is about to refuse a request that no handler has seen, with this status. */
void exchange_refused_by_mhd(struct http *h, unsigned status);

/*
 * Answering: exchange_set_*() makes the response, exchange_header() adds to
 * it, exchange_send() lets it go. Exactly one send for each exchange.
 */
/* bytes: taken, from malloc(); type is borrowed. */
void exchange_set_bytes(struct exchange *x, unsigned status, const char *type, char *bytes, size_t size);
/* document: taken; NULL is a failure for want of memory. */
void exchange_set_json(struct exchange *x, unsigned status, json_t *document);
/* bytes live for ever. */
void exchange_set_static(struct exchange *x, unsigned status, const char *type, const void *bytes,
                         size_t size);
/* response: taken; NULL is a failure for want of memory, and the connection ends. */
void exchange_set_response(struct exchange *x, unsigned status, const char *type,
                           struct MHD_Response *response);
void exchange_header(struct exchange *x, const char *name, const char *value);
/*
 * Give the answer that was set its ETag, before other headers. A caller that has these very bytes (If-None-Match) gets
 * 304 instead. For a status of 200; others are left alone.
 */
void exchange_tag(struct exchange *x);
void exchange_send(struct exchange *x);

/* A document as it is sent; any thread. document: taken. Given, free(); NULL: no memory. */
char *exchange_text_of(json_t *document);

/* set_json and send */
void exchange_json(struct exchange *x, unsigned status, json_t *document);
void exchange_problem(struct exchange *x, enum problem problem, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* As a problem of an error of the store or the funnel, looking for the thing called name. */
void exchange_error(struct exchange *x, const struct error *err, const char *name);
/* A problem that says where: member is "pointer" or "parameter". */
void exchange_problem_at(struct exchange *x, enum problem problem, const char *member, const char *where,
                         const char *text);
void exchange_problem_set(struct exchange *x, enum problem problem, const char *detail, json_t *extra);

/*
 * Call the funnel: begin gives the argument for its funnel_answer_cb, which is
 * exchange_pending_cb. NULL: no memory, and the problem is sent. then runs on
 * the funnel's answer unless the exchange was given up. key (taken, or NULL)
 * is under way until then.
 */
struct pending *exchange_begin(struct exchange *x, struct running_key *key, exchange_answer_cb *then);
void exchange_pending_cb(void *arg, const struct funnel_answer *answer);

/* Have c's reads made (taken), and answer when they are; an error is answered by exchange_error(). */
void exchange_read(struct exchange *x, struct exchange_read *c);
/* The same with c->task_id, once the task of that id or name is found; one that is not there is told of. NULL: none. */
void exchange_read_of_task(struct exchange *x, struct exchange_read *c, const char *task);
/* A thread of the store: whether the caller may know of a submission of this client (NULL: of none). */
bool exchange_read_sees(const struct exchange_read *c, const char *client);

/* How long this request may be held, seconds, by its wishes and the limit; 0: not at all. */
double exchange_hold_s(const struct exchange *x);
/* Hold until what x->id names is finished, or the time is over, or the client left, or the daemon stops; then cb. */
void exchange_hold(struct exchange *x, exchange_cb *cb);
/* One line of the log that ties what was accepted (x->id) to its request, and to the caller's trace (traceparent). */
void exchange_accepted(const struct exchange *x, const char *what);
/* The same for what was cancelled: until its processes are gone and that is durable, which takes moments. */
void exchange_hold_cancelled(struct exchange *x, exchange_cb *cb);
void exchange_hold_end(struct exchange *x);
/* Send 503 to whatever still waits for an answer of the funnel. */
void exchange_give_up(struct exchange *x);

/* --- routes: routes.c --- */

struct route {
    const char *method; /* "GET" (HEAD too), "POST", "DELETE" */
    const char *path;   /* "v1/tasks/{}" */
    const char *query;  /* the parameters it knows, separated by spaces */
    unsigned scopes;    /* a caller needs one of them; 0: open to all */
    bool has_body;      /* a JSON document; or, of submission_add, a source */
    bool takes_key;     /* Idempotency-Key */
    exchange_cb *handle;
};

/* From 0 on; the last is of what has no route of its own: the dashboard's files, and requests that were refused before. */
size_t route_number(const struct route *route);
/* [{"method","route","seconds":histogram}] of what was asked for at least once; given. */
json_t *routes_durations(const struct http *h);

/* The row, or NULL with the problem sent (404, 405, 400 for an unknown parameter). */
const struct route *route_find(struct exchange *x, const char *method);

exchange_cb task_add, task_list, task_show, task_rename, task_remove;
exchange_cb submission_add, submission_list, submission_show, submission_cancel, submission_source,
    submission_log, submission_timing, submission_plan;
exchange_cb group_add, group_list, group_show, group_cancel;
exchange_cb trend_show, failure_list, leaderboard_list, leader_list;
exchange_cb node_list;
exchange_cb run_list, run_show, run_tasks;
exchange_cb rescore;
exchange_cb events_all, submission_events, group_events;
exchange_cb export_rows;
exchange_cb retention_show, retention_run, audit_list;
exchange_cb submission_bundle, replay_add;
exchange_cb calibration_add, calibration_list, canary_forget, canary_list;
exchange_cb service_stats, service_status, service_health, service_ready, service_asset, service_metrics;
exchange_cb compat_evaluate, compat_task_status, compat_task_results;

/* --- the formats of others: compat.c --- */

/* Whether the route speaks a format of others, whose clients are refused in its manner. */
bool compat_is(const struct route *route);
/* As exchange_problem_set(). */
void compat_problem_set(struct exchange *x, enum problem problem, const char *detail, json_t *extra);
void compat_release(struct exchange *x);

/* --- event streams: streams.c --- */

struct stream;
void stream_free(struct stream *s); /* NULL is fine */
/* Something to say even if nothing happened; or that it is time to end. */
void stream_beat(struct stream *s);
/* Tell what is there, then why it ends (a constant), and end. */
void stream_end(struct stream *s, const char *why);
/* The client has left. */
void stream_gone(struct stream *s);
/* The client reads too slowly: end the connection. */
void stream_drop(struct stream *s);
/* For funnel_follow(); arg is the http. */
void streams_event_cb(void *arg, const struct funnel_event *event);

/* --- who may do what: access.c --- */

/* Finds out who asks, and whether that caller may have the route; false: the problem (401, 403) is sent. */
bool access_check(struct exchange *x, const struct route *route);
/* Whether the caller may know of a submission of this client (NULL: of none). */
bool access_sees_client(const struct exchange *x, const char *client);
/* Whose submissions the caller sees, view; NULL: everybody's. */
const char *access_client(const struct exchange *x);
/* Whether the caller is told all of a verdict, and not only what disclosure.h leaves of it. */
bool access_sees_detail(const struct exchange *x);
/* A submission's document as the caller may have it: document is taken, the result given. */
json_t *access_view(const struct exchange *x, json_t *document);
/* Keep in the audit trail what the caller does to an object (NULL: none); a trail that cannot be written is logged. */
void access_note(const struct exchange *x, const char *action, const char *object);
/* Write the caller's name over what the body of a new submission or group says of its client. */
void access_stamp(struct exchange *x);

/* --- the same request twice: idempotency.c --- */

#define RUNNING_KEY_SIZE (TOKEN_NAME_SIZE + STORE_KEY_SIZE)

/* A key whose request is under way. */
struct running_key {
    UT_hash_handle hh;
    struct http *http;
    char scope[RUNNING_KEY_SIZE];
    struct key_row row;         /* for the funnel */
    struct compat_item *askers; /* compat.c: those that its answer is for */
};

/* Idempotency-Key of the header as x->key; false: the problem (400) is sent. */
bool idempotency_read(struct exchange *x);
/* k (NULL: there is no key) is for exchange_begin(). */
typedef void idempotency_cb(struct exchange *x, struct running_key *k);
/*
 * Before the funnel is asked: `go` goes on, or the answer is sent, be it 409 or 422, or by replay, for which x->id names
 * what the first request made.
 */
void idempotency_begin(struct exchange *x, exchange_cb *replay, idempotency_cb *go);
void idempotency_end(struct running_key *k); /* NULL is fine */
/* A key of the client's that is under way; NULL: it is not. */
struct running_key *idempotency_find(struct http *h, const char *client, const char *key);
/* From here until idempotency_end() this key is under way. NULL: no memory. */
struct running_key *idempotency_add(struct http *h, const char *client, const char *key,
                                    const char *request_hash);

/* --- shared by handlers --- */

/* The id in the address as x->id, and `found` goes on, when the caller may know of it; else the problem is sent. */
void group_find(struct exchange *x, exchange_cb *found);
/* What a table of submissions shows of a document, which is taken. Given. */
json_t *submission_brief(json_t *whole);
/* A refusal of the funnel as its problem; false when the answer is FUNNEL_OK and nothing was sent. */
bool exchange_refused(struct exchange *x, const struct funnel_answer *answer);
#define LIMIT_MAX 200 /* rows of a page */
/* limit=, 1 to LIMIT_MAX, 50 when absent; 0: the problem is sent. */
int exchange_limit(struct exchange *x);
/*
 * run= and step= of a list: run NULL where it is not asked for (view), step < 0 likewise; a step goes with a run. False:
 * the problem is sent.
 */
bool exchange_run(struct exchange *x, const char **run, int64_t *step);
/* {"items":[…],"next":…} with its Link header; items is taken, next may be NULL (a cursor, borrowed). */
void exchange_page(struct exchange *x, json_t *items, const char *next);
/* The same; items: the text between the brackets, taken and left empty. next is no text that needs escaping. */
void exchange_page_text(struct exchange *x, struct buffer *items, const char *next);

#endif
