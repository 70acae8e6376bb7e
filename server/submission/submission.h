/* submission.h - one submission that is not finished. Loop thread only. */
#ifndef SUBMISSION_SUBMISSION_H
#define SUBMISSION_SUBMISSION_H

#include <stdbool.h>

#include "common/hash.h"
#include "common/ids.h"
#include "server/queue/scheduler.h"
#include "server/store/store.h"
#include "server/submission/attempt.h"
#include "server/submission/groups.h"
#include "server/submission/pending.h"
#include "server/submission/registry.h"
#include "server/submission/single_flight.h"
#include "server/submission/state.h"

struct funnel;
struct funnel_wait;

/* A failure for which a neighbour may be to blame, so that it does not count: how it went the first time. */
struct rerun {
    enum verdict_class class_; /* CLASS_NONE: there was none */
    enum stage stage;
    char why[ATTRIBUTION_SIZE];
};

enum cancel_reason { CANCEL_ASKED, CANCEL_DEADLINE, CANCEL_DECIDED };

/*
 * Which fields hold in which state:
 *   queued      job waits for a CPU slot, or flight follows a primary; attempt is NULL
 *   ast, compile  job has a slot; attempt is there, and so is attempt->child while a process of it runs
 *   ready       job waits for a device, or member is parked; attempt is there, without a process
 *   tiny, full, timing  job has a device; attempt->device_worker is that device's until it has released it
 *   done, cancelled  the verdict is made and being written; attempt is there, and is not changed any more
 * The others hold in every state.
 */
struct submission {
    struct registry_entry entry;
    struct pending_retry retry; /* of its beginning, or of its verdict */
    struct scheduler_job job;
    double device_s; /* that it held devices, over all attempts */
    struct funnel *funnel;
    struct group *group; /* NULL: none */
    struct attempt *attempt;
    struct funnel_wait *waits;
    char id[ID_SIZE];
    enum state state;
    int priority;    /* as asked for */
    int attempts;    /* times begun, over restarts of the daemon */
    int losses;      /* times its worker went down */
    int sole_losses; /* of those, with no other submission on that worker */
    struct rerun rerun;
    struct store_claim claim; /* its last; number 0: there was none */
    bool is_accepted;         /* here, and counts for the limits of this daemon until it has ended */
    bool is_claiming;  /* the store was asked to claim it, or to hand it on, and has not answered yet */
    bool is_claimed;   /* it was taken from the store, and claim holds for its first beginning here */
    bool is_unread;    /* it is to be claimed again: claim holds in the store, less one attempt */
    bool is_exhausted; /* it has been begun too often: it ends when it is loaded */
    bool is_taken;     /* it is another's, as soon as its processes are gone */
    bool is_cancelled; /* to be, as soon as its processes are gone */
    bool is_returned;  /* the same for the queue, when the daemon drains */

    /* Of its verdict, once that is made. */
    bool is_correct;
    bool is_shared; /* it is that of an identical submission */
    double speedup; /* NAN: it was not timed */
    enum cancel_reason cancel_reason;
    struct group_member member;

    char content[HASH_TEXT_SIZE]; /* equal for identical submissions; "": it is judged separately */
    const char *cache;            /* static: "miss", "hit", "joined" or "rechecked" */
    char recheck_of[ID_SIZE];     /* the submission that is judged again by this; "": none */
    struct flight_member flight;
    bool is_looked_up;
    struct asking *asking; /* its read of the store (reuse.c); it waits for nothing else then */
};

/* The one that is not finished; NULL: it is not in the registry. */
struct submission *submission_by_id(const struct funnel *f, const char *id);
/* NULL: no memory. group_id: NULL or "" is none. It is in the registry, and waits. */
struct submission *submission_new(struct funnel *f, const char *id, const char *group_id, const char *client,
                                  int priority, int attempts);
void submission_move(struct submission *s, enum event event);
/* It waits from now on: for a slot where it is queued, for a device where it is ready. Its next move ends that. */
void submission_waits(struct submission *s);
/* Whether s, right in full, has to wait until its group has chosen. */
bool submission_will_park(const struct submission *s);
/* It was cancelled, or is to go back into the queue, and its processes are to end first. */
bool submission_is_stopped(const struct submission *s);
/* It waits no more: for a slot or a device, for the verdict that it follows, or for its group to choose. */
void submission_leave_queue(struct submission *s);
void submission_stop(struct submission *s); /* that was set: end its processes */
/*
 * Reports to the store whether its present attempt counts if the daemon dies now: while it has a slot or a device
 * (is_running), and not while it waits for a device.
 */
void submission_count_attempt(const struct submission *s, bool is_running);

/* Allocates its memory, so that later steps cannot lack it. False: there is none, and nothing has changed. */
bool submission_make_attempt(struct submission *s);

#endif
