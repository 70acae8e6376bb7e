/* daemon.h - what the trainer asks of verifierd. One connection for each thread; a daemon that is away or full is waited for. */
#ifndef TRAINER_DAEMON_H
#define TRAINER_DAEMON_H

#include <jansson.h>

#include "client/trainer/tasks.h"
#include "client/trainer/trainer.h"
#include "common/http_client.h"

#define DAEMON_ID_SIZE 80

/* A connection to it, which a signal to stop ends. */
int daemon_open(const struct trainer *t, struct http_client **out, struct error *err);

/* Register a task, or find it: its id. ERR_INPUT: its reference does not run (the reason), or the like. */
int daemon_add_task(struct http_client *c, const struct task *task, char id[DAEMON_ID_SIZE],
                    struct error *err);
/*
 * Post a group ({"task", "candidates", ...}, borrowed): its id. ERR_INPUT: refused. run names the run and what the group
 * is in it: the same run with the same body gets the same group (for a day), however often it posts.
 */
int daemon_add_group(struct http_client *c, const char *run, json_t *body, char id[DAEMON_ID_SIZE],
                     struct error *err);
/* Wait until a group is finished; given. ERR_NOTFOUND: the daemon does not know it (another store). */
int daemon_wait_group(struct http_client *c, const char *id, json_t **out, struct error *err);

#endif
