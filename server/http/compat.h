/*
 * compat.h - the wire formats of existing trainers, under /compat.
 * Private to http/. Loop thread.
 *
 * A format (compat_formats.c) reads its request into submissions as
 * POST /v1/submissions has them, and writes their results. Everything
 * between is common (compat.c). docs/trainers.md has the tables for people.
 */
#ifndef HTTP_COMPAT_H
#define HTTP_COMPAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/http/exchange.h"

/* Where a sample of the request stands. */
enum compat_state {
    COMPAT_REFUSED,    /* it never became a submission: answer */
    COMPAT_UNFINISHED, /* still queued or running when the time was over */
    COMPAT_JUDGED,     /* verdict */
};

struct compat_item {
    json_t *body;              /* the submission; owned */
    json_t *aside;             /* what the format needs again when it writes, or NULL; owned */
    char hash[HASH_TEXT_SIZE]; /* of all that decides its verdict */
    char id[ID_SIZE];
    int tries; /* verdicts that were sent back before */
    struct compat_job *job;
    struct compat_item *next;    /* of those that wait for the same answer of the funnel */
    struct funnel_answer answer; /* of a refusal */
    bool must_renew;             /* judge it anew though it was judged before */
    bool replaces;               /* its key stood for another sample */
    enum compat_state state;
    json_t *verdict; /* as disclosed to a submitter; owned */
    bool is_filled;  /* it has no reward, and no try is left: reward is the filler */
    double reward;
};

struct compat_job {
    struct http *http;
    const struct compat_format *format;
    char client[TOKEN_NAME_SIZE], request_id[ID_SIZE]; /* of the exchange */
    struct pending *pending;                           /* while answers of the funnel are awaited */
    size_t awaited, n, at;
    int64_t deadline_ns;
    double fill;   /* stands for a reward that is null */
    bool is_asked; /* reply=object */
    bool is_batch; /* by the address */
    json_t *policy, *reward, *run;
    json_t *request;           /* the body; a reference */
    struct compat_item *items; /* owned */
};

/* A format's own name for a key of a submission. */
struct compat_name {
    const char *ours, *theirs; /* beginnings of JSON pointers */
};

struct compat_format {
    const char *prefix; /* of the route's path */
    const char *name;   /* metadata and client of its submissions */
    int hold_s;         /* the client waits a little longer than that */
    unsigned again;     /* the status that its client tries again for */
    bool has_names;     /* an item's aside is the client's name for it, to be asked by later */
    bool
        takes_progress; /* what is not finished has an answer of its own, and so has a bad one among others */
    struct compat_name names[6];
    /* Reads job->request by compat_add(). 0, or ERR_INPUT with fault (pointer in the format's own names). */
    int (*read)(struct compat_job *job, struct json_fault *fault);
    json_t *(*write)(const struct compat_job *job); /* the answer's document; given */
    /* The document of a refusal; status may be changed. pointer and detail are never NULL. Given. */
    json_t *(*refuse)(enum problem problem, const char *pointer, const char *detail, unsigned *status);
};

extern const struct compat_format compat_formats[];
extern const size_t compat_formats_count;

/*
 * One more sample. body (without policy, reward and client, if those are to be the address's and the caller's) and aside
 * are taken; body may be filled on. NULL, with fault filled: too many, or no memory.
 */
struct compat_item *compat_add(struct compat_job *job, json_t *body, json_t *aside, struct json_fault *fault);
/* Whole numbers and reals of a verdict; NAN where it has none. */
double compat_component(const struct compat_item *item, const char *name);
/* The speed that counts: 0 unless it is correct and timed. */
double compat_speedup(const struct compat_item *item);

/*
 * `found` receives the sample that this caller gave that name to, and its state: queued, running, … where it is not
 * judged. item is borrowed. Otherwise the refusal is sent.
 */
typedef void compat_found_cb(struct exchange *x, const struct compat_item *item, const char *state);
void compat_look_up(struct exchange *x, const char *name, compat_found_cb *found);

/* Whether the route serves a foreign format, in which its refusals are written, too. */
bool compat_is(const struct route *route);
/* As exchange_problem_set(). */
void compat_problem_set(struct exchange *x, enum problem problem, const char *detail, json_t *extra);

#endif
