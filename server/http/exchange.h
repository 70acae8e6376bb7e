/* exchange.h - the exchange of one request for one answer. Private to http/. Loop thread. */
#ifndef HTTP_EXCHANGE_H
#define HTTP_EXCHANGE_H

#include "common/buffer.h"
#include "common/hash.h"
#include "common/ids.h"
#include "server/http/connection.h"
#include "server/http/target.h"

enum exchange_phase {
    EXCHANGE_NEW,      /* the request line is there */
    EXCHANGE_BODY,     /* the header is there, the body is arriving */
    EXCHANGE_WORKING,  /* a handler has it */
    EXCHANGE_HELD,     /* a long poll */
    EXCHANGE_ANSWERED, /* the response is made; MHD will take it */
    EXCHANGE_QUEUED,   /* MHD has it */
};

struct running_key;

typedef void exchange_cb(struct exchange *x);
typedef void exchange_answer_cb(struct exchange *x, const struct funnel_answer *answer);

/* A later callback finds the exchange through this, or finds that it was given up. */
struct pending {
    struct exchange *exchange; /* NULL: given up */
    exchange_answer_cb *then;
    struct running_key *key; /* owned; NULL: none */
};

/*
 * Reads of the store that an exchange waits for: the first member of a struct that has copies of their input and room
 * for their results.
 */
struct exchange_read {
    struct pending pending; /* its then is not used */
    int (*read)(struct exchange_read *c, struct store_reader *r,
                struct error *err);                              /* a thread of the store */
    void (*answer)(struct exchange *x, struct exchange_read *c); /* loop's thread; the reads succeeded */
    void (*free)(struct exchange_read *c);                       /* NULL: exchange_read_free() */
    const char *what; /* static: what there is none of, when it is not found */
    json_t *items;    /* a list, empty at first; owned, as the next */
    json_t *document; /* NULL at first */
    /* exchange_read()'s own: */
    bool sees_all;                /* of the caller; else only its own */
    char client[TOKEN_NAME_SIZE]; /* the caller's, "": the operator */
    const char *task;             /* the task that is looked for first, by id or name; NULL: none */
    char task_id[HASH_TEXT_SIZE]; /* which that is */
    char *kept[8];
    bool is_short; /* there was no memory or no room for one more */
    int rc;
    struct error err;
};

/* The caller, by the token shown; where there are no tokens, the operator. */
struct caller {
    unsigned scopes;              /* of enum scope */
    char client[TOKEN_NAME_SIZE]; /* "": the operator, which is not a client */
    bool has_token;
    unsigned char token_hash[TOKEN_HASH_SIZE];
};

struct route {
    const char *method; /* "GET" (HEAD too), "POST", "PATCH", "DELETE" */
    const char *path;   /* "v1/tasks/{}" */
    const char *query;  /* the parameters it knows, separated by spaces */
    unsigned scopes;    /* a caller needs one of them; 0: open to all */
    bool has_body;      /* a JSON document; or, of submission_add, a source */
    bool takes_key;     /* Idempotency-Key */
    exchange_cb *handle;
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
    size_t route_number; /* of all, from 0 on */
    void (*refuse)(
        struct exchange *x, enum problem problem, const char *detail,
        json_t *extra); /* exchange_problem_set() in the manner of a foreign format; NULL: of our own */
    struct caller caller;
    bool is_refused; /* an answer is ready; the body is read and dropped */
    bool is_raw;     /* the body is a source, not a document */
    struct buffer body;
    uint64_t body_seen;             /* bytes */
    json_t *document;               /* the body, parsed */
    char key[STORE_KEY_SIZE];       /* Idempotency-Key, "": none */
    char body_hash[HASH_TEXT_SIZE]; /* where there is a key */
    const char *warning;            /* static: of what was accepted; NULL: none */
    bool is_replay;                 /* answered again, by a key that is known */
    double wait_s;                  /* requested, or the route's default; < 0: none */
    bool is_preferred;              /* by Prefer, so Preference-Applied is due */
    struct pending *pending;
    bool is_reading; /* pending is of a read of the store, which ends by itself */
    struct funnel_wait *wait;
    exchange_cb *held_cb;
    struct stream *stream;     /* the answer, where it is one of events; owned, as the next */
    struct compat_job *compat; /* of a foreign format */
    exchange_cb *release;      /* frees either; NULL: there is neither */
    char id[80];               /* the subject of the answer: a submission, a group or a task */
    unsigned status;
    struct MHD_Response *response;
    const char *bytes; /* of the response, view; NULL: none */
    size_t bytes_size;
};

/* The client to whose submissions the caller is limited, view; NULL: it sees all. */
const char *exchange_client(const struct exchange *x);

/* Callbacks of MHD; cls is the http. */
void *exchange_uri_cb(void *cls, const char *uri, struct MHD_Connection *mhd);
void exchange_completed_cb(void *cls, struct MHD_Connection *mhd, void **con_cls,
                           enum MHD_RequestTerminationCode why);

/*
 * Answering: exchange_set_*() makes the response, exchange_header() adds to
 * it, exchange_send() lets it go. Exactly one send for each exchange.
 */
/* bytes: taken, from malloc(); type is borrowed. */
void exchange_set_bytes(struct exchange *x, unsigned status, const char *type, char *bytes, size_t size);
/* The same with status 200, of a buffer, which is left empty; NULL is a failure for want of memory. */
void exchange_set_text(struct exchange *x, const char *type, struct buffer *text);
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
/* A problem with the place of the fault: member is "pointer" or "parameter". */
void exchange_problem_at(struct exchange *x, enum problem problem, const char *member, const char *where,
                         const char *text);
/* A parameter of the address; returns false, so that a caller can return it: nothing more is sent. */
bool exchange_bad_parameter(struct exchange *x, const char *name, const char *text);
void exchange_problem_set(struct exchange *x, enum problem problem, const char *detail, json_t *extra);

/*
 * Call the funnel: begin gives the argument for its funnel_answer_cb, which is
 * exchange_pending_cb. NULL: no memory, and the problem is sent. then runs on
 * the funnel's answer unless the exchange was given up. key (taken, or NULL)
 * is under way until then.
 */
struct pending *exchange_begin(struct exchange *x, struct running_key *key, exchange_answer_cb *then);
void exchange_pending_cb(void *arg, const struct funnel_answer *answer);

/* A header of the request: how often it came, and its last value, NULL if there is none. View. */
struct header_found {
    const char *name, *value;
    unsigned n;
};
struct header_found exchange_find_header(const struct exchange *x, const char *name);

/* size: of the struct that begins with *call, which is copied; zeroed beyond. NULL: no memory, and that is answered. */
void *exchange_read_new(struct exchange *x, const struct exchange_read *call, size_t size);
/* Frees what struct exchange_read owns, and the struct that begins with it: the last step of another `free`. */
void exchange_read_free(struct exchange_read *c);
/* A copy, as the reading may outlive the exchange; NULL: of NULL, or there was no memory, which exchange_read() answers. View. */
const char *exchange_read_keep(struct exchange_read *c, const char *text);
/* Have c's reads made (taken), and answer when they are; an error is answered by exchange_error(). */
void exchange_read(struct exchange *x, struct exchange_read *c);
/* The same with c->task_id, once the task of that id or name is found; a missing one is reported. NULL: none. */
void exchange_read_of_task(struct exchange *x, struct exchange_read *c, const char *task);
/* A thread of the store: whether the caller may know of a submission of this client (NULL: of none). */
bool exchange_read_sees(const struct exchange_read *c, const char *client);

/* How long this request may be held, seconds, by its wishes and the limit; 0: not at all. */
double exchange_hold_s(const struct exchange *x);
/* Hold until what x->id names is finished, or the time is over, or the client left, or the daemon stops; then cb. */
void exchange_hold(struct exchange *x, exchange_cb *cb);
/* The same for what was cancelled: until its processes are gone and that is durable, which takes moments. */
void exchange_hold_cancelled(struct exchange *x, exchange_cb *cb);
void exchange_hold_end(struct exchange *x);
/* Send 503 to the client, if it still waits for an answer of the funnel. */
void exchange_give_up(struct exchange *x);
/* The same if the store is in trouble or too slow, or HTTP_WORK_LIMIT_MS are over; else it is checked again later. */
void exchange_overdue(struct exchange *x);

#endif
