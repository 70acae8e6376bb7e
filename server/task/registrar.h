/*
 * registrar.h - the known tasks, and the registration of new ones. Loop thread only.
 *
 * A task is run once in a worker before it is accepted, so that no client waits for verdicts on a reference that does
 * not run. The requests of docs/http.md for tasks are in funnel.h.
 */
#ifndef TASK_REGISTRAR_H
#define TASK_REGISTRAR_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "common/hash.h"
#include "common/json.h"
#include "server/submission/funnel.h"

struct funnel;
struct device_worker;
struct scheduler_job;
struct task_request;
struct registrar;

struct registrar *registrar_new(void);    /* NULL: no memory */
void registrar_free(struct registrar *r); /* no registration is in progress; NULL is fine */

/*
 * Registers the task, which was looked for and is not there, in the client's turn and at its expense. client: NULL is the operator.
 * cb as for funnel_add_task().
 */
void task_ensure(struct funnel *f, const struct task_request *r, const char *client, int priority,
                 funnel_answer_cb *cb, void *arg);
/* As if its shapes were dynamic: the other sizes that were found for it judge. ERR_INPUT: none were looked for; ERR_NOMEM. */
int task_let_sizes_judge(struct task_row *task, struct error *err);

/* A look-up: the task of a name, and whether the task that a request describes exists. Owned by the caller. */
struct task_look {
    /* Set before it is asked, all else zero; borrowed until cb has run. */
    struct funnel *funnel;
    const char *client; /* NULL: the operator */
    const char *name; /* an id, or the name that client has for it: reader_find_task(); NULL: not looked up */
    struct task_request *request; /* the same; its id may become that of a task that is the same */
    void (*cb)(void *arg);
    void *arg;
    /* The answer: rc is 0, or why there is none. */
    int rc;
    struct error err;
    char id[HASH_TEXT_SIZE]; /* of the task with that name, if is_found */
    bool is_found, is_own;   /* is_own: it is the client's own name; not set for an id */
    bool is_known;           /* the one of the request */
    bool is_by_id, is_twin;  /* the registrar's own, like what follows */
    int64_t removed;
};
/* A task in memory is answered at once, another once a thread of the store has read it. */
void task_look(struct task_look *l);
/* The result for the name: FUNNEL_OK, FUNNEL_NO_TASK or FUNNEL_UNAVAILABLE. */
enum funnel_refusal task_found(const struct task_look *l, struct json_fault *fault);

/* Gives an idle device worker to the registration that owns this job. */
void task_give_device_worker(struct device_worker *w, struct scheduler_job *job);
int64_t registrar_registering(const struct registrar *r); /* registrations in progress */
int64_t registrar_known(const struct registrar *r);       /* tasks whose ids are in memory */
void task_refuse_all(struct funnel *f);                   /* the daemon drains: those that wait are refused */

#endif
