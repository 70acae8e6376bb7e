/*
 * request.h - what clients send, read strictly into what judging needs. Pure:
 * nothing here asks the store.
 */
#ifndef SUBMISSION_REQUEST_H
#define SUBMISSION_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "common/buffer.h"
#include "common/hash.h"
#include "common/json.h"
#include "server/submission/funnel.h"

#define REQUEST_SOURCE_MAX (1024 * 1024) /* bytes of one source, after decoding */
#define REQUEST_ANSWER_MAX (1024 * 1024) /* bytes of an answer that are kept */

#define BUNDLE_FORMAT "verifierd bundle"
#define BUNDLE_VERSION 1

enum priority { PRIORITY_INTERACTIVE, PRIORITY_BATCH, PRIORITY_N };

/* A task to be registered. Text views belong to the request's body unless owned says otherwise. */
struct task_request {
    const char *name;   /* NULL: none given */
    const char *client; /* of POST /v1/tasks; NULL: none given */
    const char *entry;  /* NULL: to be found */
    json_t *reference;  /* the source, a string; view */
    json_t *cases;      /* array, or NULL; view */
    json_t *metadata;   /* object, or NULL; view */
    int64_t level;
    bool dynamic_shapes;
    char id[HASH_TEXT_SIZE];
    /*
     * The id that the same task may have instead: where no entry point but "Model" is named, of those that were
     * registered with that name spelled out before it made no difference; else with none named.
     */
    char twin[HASH_TEXT_SIZE];
};

/*
 * The id of a task, which does not depend on its name. entry NULL: the same as "Model". cases: array or NULL.
 * 0 or ERR_NOMEM.
 */
int task_identity(const char *entry, const char *reference, size_t size, bool dynamic_shapes, json_t *cases,
                  char out[HASH_TEXT_SIZE]);

/* One candidate. */
struct candidate_request {
    struct buffer source; /* owned; empty when nothing could be extracted */
    const char *
        answer; /* of a model, in which it was looked for: its first REQUEST_ANSWER_MAX bytes; a view. NULL: none */
    size_t answer_size;
    json_t *request; /* owned: what the store keeps as the submission's request */
    char *document;  /* owned: its text */
};

struct submit_request {
    const char *task; /* id or name; NULL: inline */
    bool is_inline;
    struct task_request reference;
    int priority;
    const char *client; /* NULL: none */
    struct candidate_request *candidates;
    size_t n;
    char *document;      /* the group's; NULL for a single submission */
    const char *gpu;     /* view of the body: a part of the name of the GPU that is to judge it; NULL: any */
    bool keeps_together; /* it is a group that chooses among its submissions */
};

/*
 * Read POST /v1/tasks, /v1/submissions, /v1/groups. The body must outlive out.
 * FUNNEL_OK, FUNNEL_BAD or FUNNEL_TOO_LARGE (fault has the place); release out in every case.
 */
enum funnel_refusal task_request_read(json_t *body, struct task_request *out, struct json_fault *fault);
/* PATCH /v1/tasks/{id}; name is a view. */
enum funnel_refusal task_name_read(json_t *body, const char **name, struct json_fault *fault);
enum funnel_refusal submit_request_read(json_t *body, struct submit_request *out, struct json_fault *fault);
enum funnel_refusal group_request_read(json_t *body, struct submit_request *out, struct json_fault *fault);
/* POST /v1/replays: a bundle (docs/http.md). One candidate, judged with the bundle's seed. */
enum funnel_refusal replay_request_read(json_t *body, struct submit_request *out, struct json_fault *fault);
void submit_request_release(struct submit_request *r);

#endif
