/*
 * process.h - a long-lived worker process (a zygote or a referee): started,
 * spoken to over its channel, started again when it dies, later and later.
 * Loop thread only.
 */
#ifndef WORKERS_PROCESS_H
#define WORKERS_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>
#include <uv.h>

#include "common/error.h"
#include "server/workers/channel.h"

enum process_state {
    PROCESS_STOPPED,
    PROCESS_STARTING,
    PROCESS_READY,
    PROCESS_ENDING,
    PROCESS_WAITING,
    PROCESS_NSTATES
};

struct process;

struct process_ops {
    void (*ready)(void *arg, json_t *message); /* it sent "ready"; message is borrowed */
    void (*message)(void *arg, struct message *m);
    void (*down)(
        void *arg,
        const char
            *why); /* it was started and is gone now, reaped; it will be started again unless stopped */
};

#define PROCESS_ARGS_MAX 16

/* name and args (NULL-terminated, the program first) are copied; ops is a view that must outlive it. Not started yet. */
int process_new(uv_loop_t *loop, const char *name, const char *const *args, int64_t start_limit_ms,
                const struct process_ops *ops, void *arg, struct process **out, struct error *err);
void process_start(struct process *p);
/* SIGKILL; `down` runs later, and it starts again. Fine in every state. */
void process_kill(struct process *p, const char *why);
/*
 * No more starts; hang up on what runs, and kill it after 3 s, or at once while it starts. stopped_cb (may be NULL) once
 * nothing of it is left, perhaps before this returns; or after 10 s more, and then a process that SIGKILL does not end
 * is left behind, which is logged.
 */
void process_stop(struct process *p, void (*stopped_cb)(void *arg), void *arg);
/* After it has stopped. NULL is fine. */
void process_free(struct process *p);

/* ERR_UNAVAILABLE when it is not ready; else as channel_send(), whose failure also ends the process. */
int process_send(struct process *p, json_t *body, const struct channel_fd *fds, size_t n_fds,
                 struct error *err);

enum process_state process_state(const struct process *p);
int process_pid(const struct process *p); /* 0: none */
/* It ended last by a SIGKILL that did not come from here: from the kernel for lack of memory, or from a person. */
bool process_was_killed(const struct process *p);
json_t *process_ready_message(const struct process *p); /* view; NULL before the first */
/* {"name","pid","state","starts","why"}, the last: how it ended last, or null. Given. */
json_t *process_json(const struct process *p);

/* A worker's environment: of the daemon's the variables of a fixed list, and nothing else. Given: free() the list
 * alone; NULL: no memory. */
char **process_environment(void);

#endif
