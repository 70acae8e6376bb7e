/*
 * pending.h - the work other than processes: writes to the store and work in libuv's pool, which a stop of the daemon
 * waits for, and what is tried again; and how far that stop has come. Loop thread only.
 */
#ifndef SUBMISSION_PENDING_H
#define SUBMISSION_PENDING_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

struct pending;

/* changed_cb runs at the end of each write and each work, and when pending_check() is called. NULL: no memory. */
struct pending *pending_new(uv_loop_t *loop, void (*changed_cb)(void *arg), void *arg);
void pending_free(struct pending *p); /* NULL is fine */

/* How far the stop has come: it does not go back. */
enum pending_phase {
    PENDING_OPEN,
    PENDING_DRAINING, /* nothing new is accepted */
    PENDING_STOPPING, /* the workers are ended: what comes back now is left as it is in the store */
    PENDING_STOPPED,  /* all has ended: work is done before pending_work() returns */
};
void pending_enter(struct pending *p, enum pending_phase phase);
bool pending_is(const struct pending *p, enum pending_phase phase); /* or further */
bool pending_is_draining(const struct pending *p);

void pending_begin_write(struct pending *p);
void pending_end_write(struct pending *p);
/* Work for the pool, which is a write as well: something is stored, or answered. */
struct pending_work {
    uv_work_t work;
    struct pending *pending;
    void (*work_cb)(void *arg); /* in the pool */
    void (*done_cb)(void *arg); /* then on the loop; it may free the work */
    void *arg;
};
void pending_work(struct pending *p, struct pending_work *w, void (*work_cb)(void *arg),
                  void (*done_cb)(void *arg), void *arg);
/* What lacked memory or the store, and is tried again in a second: a stop does not wait for it. All zero at first. */
struct pending_retry {
    struct pending_retry *prev, *next; /* NULL: it does not wait */
    void (*cb)(void *arg);
    void *arg;
};
/* cb runs then, unless it waits already. */
void pending_retry(struct pending *p, struct pending_retry *r, void (*cb)(void *arg), void *arg);
/* Something else has changed that a stop waits for. */
void pending_check(struct pending *p);

int64_t pending_writes(const struct pending *p);
int64_t pending_in_pool(const struct pending *p);

#endif
