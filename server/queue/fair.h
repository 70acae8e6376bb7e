/*
 * fair.h - which turn is next for a resource: interactive before batch without starving it, and equal shares of the
 * resource's time for the clients that wait. Pure: it reads no clock, and owns no memory.
 */
#ifndef QUEUE_FAIR_H
#define QUEUE_FAIR_H

#include <stdbool.h>
#include <stdint.h>

enum { FAIR_INTERACTIVE, FAIR_BATCH, FAIR_URGENCIES };

#define FAIR_BATCH_EVERY 8 /* while both wait, one of batch follows this number of interactive ones */

/* A waiting request for the resource; embedded in its owner. */
struct fair_turn {
    struct fair_turn *prev, *next;
    struct fair_share *share; /* NULL: it does not wait */
    int urgency;
    bool is_registration; /* of a task, for which others of its client may wait */
    double charged;       /* seconds: what it was expected to take */
};

/* One client's account with one resource. All zero at first; it must outlive its turns. */
struct fair_share {
    struct fair_share *prev, *next;
    double served; /* virtual seconds */
    int64_t waiting;
    struct fair_turn *flows[FAIR_URGENCIES];
};

/* One resource. All zero at first. */
struct fair {
    struct fair_share *waiting; /* shares that have turns */
    double now;                 /* virtual time: where the share stood that was served last */
    double expected;            /* seconds a turn takes, smoothed */
    int since_batch;
    int64_t n[FAIR_URGENCIES];
};

/* Last among its client's turns of that urgency, or first, but for registrations that stand there. */
void fair_add(struct fair *f, struct fair_share *share, struct fair_turn *t, int urgency, bool at_head);
void fair_remove(struct fair *f, struct fair_turn *t);
int64_t fair_waiting(const struct fair *f);

/* Whether a client may have a turn now; NULL: each may. */
typedef bool fair_may(void *arg, const struct fair_share *share);
/*
 * The turn that is next, view; NULL: none. allowed: bits of urgencies. Within one urgency the least served client is
 * next; time that a client left unused before a pause is not credited.
 */
struct fair_turn *fair_next(const struct fair *f, unsigned allowed, fair_may *may, void *arg);
/* It has its turn: charged with what is expected until fair_done(). */
void fair_take(struct fair *f, struct fair_turn *t);
/* It took `seconds`. share: the account charged. */
void fair_done(struct fair *f, struct fair_share *share, const struct fair_turn *t, double seconds);

#endif
