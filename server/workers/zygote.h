/*
 * zygote.h - a process that has imported what children need, and the children
 * forked from it: each with a private directory, a user id, its output
 * captured, a deadline. Loop thread only.
 */
#ifndef WORKERS_ZYGOTE_H
#define WORKERS_ZYGOTE_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>
#include <uv.h>

#include "common/buffer.h"
#include "common/error.h"
#include "server/config.h"
#include "server/workers/devices.h"
#include "server/workers/cgroup.h"
#include "server/workers/channel.h"
#include "server/workers/process.h"
#include "server/workers/uids.h"

struct zygote;
struct child;

struct zygote_ops {
    void (*ready)(void *arg);
    void (*down)(void *arg, const char *why); /* its children have all ended by then, as lost; may be NULL */
};

/* kind: "static", "compile" or "run". config, uids, cgroups and ops are views that outlive it; strings are copied. Not started yet. */
int zygote_new(uv_loop_t *loop, const struct config *config, struct uids *uids, struct cgroups *cgroups,
               const char *name, const char *kind, const struct device *device, const struct zygote_ops *ops,
               void *arg, struct zygote **out, struct error *err);
struct process *zygote_process(const struct zygote *z); /* view */
void zygote_free(struct zygote *z);                     /* after it has stopped; NULL is fine */
bool zygote_is_ready(const struct zygote *z);
/*
 * At its last start its children would have lacked a layer that sandbox_require lists: it is out of service, and
 * started again with growing delays to check whether they still do. zygote_status() has the layer.
 */
bool zygote_lacks_layers(const struct zygote *z);
const char *zygote_name(const struct zygote *z); /* view */
/* {"name","kind","device","pid","state","starts","children":{ROLE: n},"why"}; given. */
json_t *zygote_status(const struct zygote *z);
json_t *zygote_ready_message(const struct zygote *z); /* view; NULL before it was ready once */

/* --- children --- */

enum child_role {
    CHILD_AST,
    CHILD_COMPILE,
    CHILD_INSPECT,
    CHILD_BUILD,
    CHILD_RUN,
    CHILD_SANITIZE,
    CHILD_NROLES
};
const char *child_role_name(enum child_role role);

/* How a child ended. */
struct child_end {
    bool is_lost;     /* its zygote died, or could not make it: our fault */
    bool is_others;   /* then: the zygote was killed, and not by us: nothing that was on it is to blame */
    bool was_limited; /* its deadline passed and it was killed for that */
    bool was_killed;  /* by us, for any reason */
    bool is_stuck;    /* and it did not end, for which its zygote was killed */
    int code;         /* exit status; -1: none */
    int signal;       /* 0: none */
    int64_t max_rss_kb;
    int64_t stolen_ms; /* of its deadline, that others had the CPU while it was ready to run; -1: not known */
    /* SIGKILL, while the kernel was killing for lack of memory; not for its own use. */
    bool is_victim;
    char over[16];   /* "memory", "disk" or "descriptors": it was killed for holding too much of that; "" */
    char error[512]; /* why it could not be made, or "" */
};

struct child_ops {
    void (*spawned)(void *arg, struct child *c);                    /* may be NULL */
    void (*message)(void *arg, struct child *c, struct message *m); /* stage children only */
    void (*ended)(void *arg,
                  struct child *c); /* once; reaped, output complete. The owner frees it, here or later. */
};

/*
 * Fork a child. Given: child_free() once it has ended, or child_abandon() at
 * any time. ops is a view. ERR_UNAVAILABLE (zygote not ready), ERR_FULL (user ids), ERR_SYS or ERR_NOMEM.
 */
int child_new(struct zygote *z, enum child_role role, const struct child_ops *ops, void *arg,
              struct child **out, struct error *err);
/* To another owner, before it was sent anything: ops and arg instead of those that it was made with. It has not ended. */
void child_hand_over(struct child *c, const struct child_ops *ops, void *arg);
void child_free(struct child *c);    /* NULL is fine */
void child_abandon(struct child *c); /* kill it if it lives; it frees itself. NULL is fine. */
void child_kill(struct child *c);
void child_read(struct child *c); /* reads what it has written so far into its output */
/* From now on it has limit_ms to end. Each call replaces the deadline before; 0: none. */
void child_limit(struct child *c, int64_t limit_ms);
/* To a stage child. As channel_send(). */
int child_send(struct child *c, json_t *body, const struct channel_fd *fds, size_t n_fds, struct error *err);

const char *child_name(const struct child *c);
int64_t child_held_bytes(const struct child *c); /* memory, with all that it started; 0 where it is gone */
int child_pid(const struct child *c);            /* as we see it; 0: not spawned yet, or gone */
const char *child_scratch(const struct child *c);
const struct child_end *child_end(const struct child *c); /* NULL while it lives */
const struct buffer *child_output(const struct child *c); /* view */
int64_t child_output_lost(const struct child *c);         /* bytes beyond the limit, not kept */
void child_forget_output(struct child *c); /* what it writes from now on belongs to another owner */
int child_take_channel(struct child *c);   /* of a device's child: the referee's end, the caller's; once */
int child_take_pidfd(struct child *c);     /* the caller's; -1 before it was spawned */

#endif
