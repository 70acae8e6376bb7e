/*
 * funnel.h - takes each submission through its stages, cheapest first.
 *
 * This is what HTTP sees of judging: submit, look, wait, cancel, register a
 * task, status. Loop thread only; nothing here blocks.
 */
#ifndef FUNNEL_H
#define FUNNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>
#include <uv.h>

#include "common/buffer.h"
#include "common/error.h"
#include "common/json.h"
#include "server/config.h"
#include "server/store/store.h"

struct funnel;
struct seen;

/* config and store are borrowed for its life. Adopts the unfinished submissions of the store, and starts the workers. */
int funnel_new(uv_loop_t *loop, const struct config *config, struct store *store, struct funnel **out,
               struct error *err);
/* After funnel_drain() has called back. NULL is fine. */
void funnel_free(struct funnel *f);
/* Stop taking and starting work; running stages get grace_ms; the rest goes back to queued. cb once workers are gone. */
void funnel_drain(struct funnel *f, int64_t grace_ms, void (*cb)(void *arg), void *arg);
/* The settings have changed in place, after SIGHUP. */
void funnel_reload(struct funnel *f);

/* --- requests. The JSON documents are those of docs/http.md; they are borrowed. --- */

/* Why a request was refused: fault.pointer is the place for FUNNEL_BAD. */
enum funnel_refusal {
    FUNNEL_OK = 0,
    FUNNEL_BAD,        /* 400: fault */
    FUNNEL_NO_TASK,    /* 404 */
    FUNNEL_TOO_LARGE,  /* 413 */
    FUNNEL_FULL,       /* 429: retry_after_s */
    FUNNEL_QUOTA_RATE, /* 429: of the client, retry_after_s; so the next two */
    FUNNEL_QUOTA_QUEUED,
    FUNNEL_QUOTA_GPU,
    FUNNEL_UNAVAILABLE, /* 503: draining, or the store fails: retry_after_s */
    FUNNEL_NOT_YOURS,   /* 403: of a task, that others registered it */
    FUNNEL_NAME_TAKEN,  /* 409: it is the client's name for another task */
    FUNNEL_IN_USE,      /* 409: submissions of the task are not finished */
    FUNNEL_KEY_TAKEN,   /* another request with this key was stored first */
    FUNNEL_UNRUNNABLE,  /* 422: the reference does not run: fault.text and `detail`, its own traceback */
};
struct funnel_answer {
    enum funnel_refusal refusal;
    struct json_fault fault;
    int retry_after_s;
    bool is_new;         /* tasks: false where it existed already */
    char id[80];         /* submission, group or task id when refusal is FUNNEL_OK */
    const char *warning; /* static: what its maker should know; NULL: nothing */
    char *detail;        /* NULL or text; view, valid during the callback */
};
/* Runs once, on a later turn of the loop or before the call returns. answer is borrowed. */
typedef void funnel_answer_cb(void *arg, const struct funnel_answer *answer);

/*
 * POST /v1/submissions: answered once durable (an inline reference is registered first). key (copied; NULL: none) is
 * stored with it, with the id of what was made.
 */
void funnel_submit(struct funnel *f, json_t *body, const struct key_row *key, funnel_answer_cb *cb,
                   void *arg);
/* POST /v1/groups */
void funnel_submit_group(struct funnel *f, json_t *body, const struct key_row *key, funnel_answer_cb *cb,
                         void *arg);
/* POST /v1/replays: a bundle's candidate again, with its seed; its task is registered first where it is not known. */
void funnel_replay(struct funnel *f, json_t *bundle, funnel_answer_cb *cb, void *arg);
/* Whether a submission could be accepted now; else answer has the refusal that it would get. */
bool funnel_has_room(const struct funnel *f, struct funnel_answer *answer);
/* POST /v1/tasks: answered once the reference ran in a worker and the record is durable. */
void funnel_add_task(struct funnel *f, json_t *body, funnel_answer_cb *cb, void *arg);
/*
 * PATCH /v1/tasks/{id} with {"name"}: the client's name for it (NULL: all clients'). id is copied. Answered once
 * durable.
 */
void funnel_rename_task(struct funnel *f, const char *client, const char *id, json_t *body,
                        funnel_answer_cb *cb, void *arg);
/* DELETE /v1/tasks/{id}: the task is removed with the last client's name for it. */
void funnel_remove_task(struct funnel *f, const char *client, const char *id, funnel_answer_cb *cb,
                        void *arg);

/* POST /v1/calibrations: answered once durable. */
void funnel_calibrate(struct funnel *f, json_t *body, funnel_answer_cb *cb, void *arg);

/* POST /v1/canaries: answered once durable. */
void funnel_forget_canary(struct funnel *f, json_t *body, funnel_answer_cb *cb, void *arg);

/* --- looking. Given documents: json_decref(). --- */

/*
 * The submission of a row that was read (seen.h), as JSON (docs/http.md): with its verdict, or as it stands now. task_name:
 * where it has none, or NULL. NULL with ERR_STORE.
 */
json_t *funnel_show_submission(struct funnel *f, const struct submission_row *row, const char *task_name,
                               struct error *err);
/*
 * GET /v1/submissions/{id}/bundle: what it takes to judge it again, and what came out; out is NULL where it is not done. A
 * thread of the store.
 */
int bundle_read(struct store_reader *r, const struct submission_row *row, json_t **out, struct error *err);
/*
 * POST /v1/rescore: {"reward", "group" | "submissions"} to {"reward_spec", "items"}. client: the client whose verdicts
 * may be named, NULL: all clients'. cb runs once, on a later turn or before the call returns: with a document that is
 * given, or NULL with err filled, of ERR_INPUT with fault.
 */
typedef void funnel_rescored_cb(void *arg, json_t *document, const struct json_fault *fault,
                                const struct error *err);
void funnel_rescore(struct funnel *f, json_t *body, const char *client, funnel_rescored_cb *cb, void *arg);
/*
 * {"id","state","task","items":[submission …],"ranking":[index …]}, made outside the loop thread: cb runs once, on a
 * later turn or before the call returns. document is given; NULL with err (borrowed) filled. is_finished: the whole
 * group has ended.
 */
typedef void funnel_document_cb(void *arg, json_t *document, bool is_finished, const struct error *err);
void funnel_show_group(struct funnel *f, const char *id, funnel_document_cb *cb, void *arg);
/* The text of the same, to free(). is_whole: else each item is disclosure_view()'s. */
typedef void funnel_text_cb(void *arg, char *text, size_t size, bool is_finished, const struct error *err);
void funnel_print_group(struct funnel *f, const char *id, bool is_whole, funnel_text_cb *cb, void *arg);
/*
 * Whether it is a submission or group that has not ended as far as this daemon knows, and whose events are reported to
 * the follower. Not one that is only waited for and may have ended before.
 */
bool funnel_is_here(const struct funnel *f, const char *id);
/*
 * /v1/status, in two parts. First the present state, which is cheap and printed: {"state","ready","why","queues":{…}};
 * appended to out, which is incomplete if there is no memory.
 */
void funnel_pulse(struct funnel *f, struct buffer *out);
/* {"version","workers":[…],"gpus":[…],"sandbox":{…},"counts":{…},"store":{…},"env":{…},"node":{…}}: dear, so it is worth keeping. stored: NULL where it is not known. */
json_t *funnel_figures(struct funnel *f, const struct store_counts *stored);
/* This daemon as a node: an item of GET /v1/nodes, given. */
json_t *funnel_node(const struct funnel *f);
const char *funnel_node_name(const struct funnel *f); /* view */
/*
 * Another number once any of the counts in funnel_figures() has changed: what was made before counts what was
 * acknowledged, and each verdict. Workers, devices and the store's times may change without it.
 */
uint64_t funnel_generation(const struct funnel *f);
/* Given: sums since the daemon started (docs/http.md). */
json_t *funnel_stats(const struct funnel *f);
/* {"items":[calibration …]}: the newest of each GPU's name. */
json_t *funnel_calibrations(struct funnel *f);
/* {"items":[…]}: the norm of each GPU's canary, by driver and kind. */
json_t *funnel_canaries(struct funnel *f);
/* True when work can be judged; else why is filled ("starting workers", "draining", …). */
bool funnel_is_ready(struct funnel *f, char *why, size_t size);

/* --- waiting: wait_cb runs once when the submission or group is finished, unless the wait is ended first. --- */
struct funnel_wait;
typedef void funnel_wait_cb(void *arg);
/* An id that is not here may be another node's: the store is asked. NULL: no memory, wait_cb does not run. */
struct funnel_wait *funnel_wait(struct funnel *f, const char *id, funnel_wait_cb *cb, void *arg);
void
funnel_wait_end(struct funnel_wait *w); /* after this wait_cb does not run; NULL is fine. Not after it ran. */

/*
 * The submission was not finished when the store was read: from now on its end is reported here, whichever node has it.
 * So is that of its group ("": none; NULL: neither group nor client is known), if this is called for each unfinished
 * member.
 */
void funnel_watch(struct funnel *f, const char *id, const char *group, const char *client);

/* --- following: events as they happen. A verdict is reported once it is durable, and looks finished by then. --- */
enum funnel_event_kind {
    FUNNEL_EVENT_QUEUED, /* accepted, or back in the queue */
    FUNNEL_EVENT_STAGE,  /* it entered a stage; the results of earlier stages that it shows are not durable */
    FUNNEL_EVENT_VERDICT,
    FUNNEL_EVENT_GROUP, /* the last submission of a group has its verdict */
    FUNNEL_EVENT_PART,  /* the last one here has; other nodes may have more of the group */
};
struct funnel_event {
    enum funnel_event_kind kind;
    const char *submission; /* its id; NULL for a group's */
    const char *group;      /* "": of none */
    const char *client;     /* NULL: of none */
    const char *stage;      /* FUNNEL_EVENT_STAGE, else NULL */
    bool is_begun;          /* FUNNEL_EVENT_STAGE: it was queued before */
    int attempts;
    const char *verdict;    /* FUNNEL_EVENT_VERDICT: the document's text as it is stored, else NULL */
    const char *notify_url; /* FUNNEL_EVENT_GROUP: where its maker wants that to be posted, else NULL */
};
/* All is borrowed. May look at the funnel, and change nothing in it. */
typedef void funnel_event_cb(void *arg, const struct funnel_event *event);
/* Sets the one follower, from now on; cb NULL: none. */
void funnel_follow(struct funnel *f, funnel_event_cb *cb, void *arg);

/* Those of the rows that have not ended by now; seen is of a submission or of a group. 0, or ERR_CONFLICT: all have. */
int funnel_cancel(struct funnel *f, const struct seen *seen, struct error *err);

#endif
