/*
 * registrar.h - which tasks there are, and the registration of new ones. Loop thread only.
 *
 * A task is run once in a worker before it is taken up, so that nobody waits for verdicts on a reference that does not
 * run. The requests of docs/http.md for tasks are in funnel.h.
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
 * Registers the task unless it is there, in the client's turn and at its expense. client: NULL is the operator.
 * cb as for funnel_add_task().
 */
void task_ensure(struct funnel *f, const struct task_request *r, const char *client, int priority,
                 funnel_answer_cb *cb, void *arg);
/* Whether there is the task; its id may become that of one that is the same. */
bool task_is_known(struct funnel *f, struct task_request *r);
/* As if its shapes were dynamic: the other sizes that were found for it judge. ERR_INPUT: none were looked for; ERR_NOMEM. */
int task_let_sizes_judge(struct task_row *task, struct error *err);
/* By id, or by a name: reader_find_task(). FUNNEL_OK, FUNNEL_NO_TASK or FUNNEL_UNAVAILABLE. */
enum funnel_refusal task_find(struct funnel *f, const char *client, const char *name, char id[HASH_TEXT_SIZE],
                              struct json_fault *fault);
/* Gives an idle device worker to the registration whose job this is. */
void task_give_device_worker(struct device_worker *l, struct scheduler_job *job);
int64_t registrar_registering(const struct registrar *r); /* registrations in progress */
int64_t registrar_known(const struct registrar *r);       /* tasks whose ids are in memory */
void task_refuse_all(struct funnel *f);                   /* the daemon drains: those that wait are refused */

#endif
