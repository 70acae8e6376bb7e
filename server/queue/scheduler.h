/*
 * scheduler.h - what runs next: which submission has a CPU slot, and which submission or registration a device. Loop
 * thread only.
 *
 * A job is the scheduler's part of a submission or of a registration, embedded in it. It waits for a CPU slot, has one,
 * waits for a device, has one; a registration does the last two alone. The scheduler decides, and says what it decided
 * through its operations; it knows nothing of what a job is.
 */
#ifndef QUEUE_SCHEDULER_H
#define QUEUE_SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/queue/isolation.h"
#include "server/queue/clients.h"
#include "server/queue/fair.h"
#include "server/workers/device_worker.h"

struct scheduler;

struct scheduler_job {
    /* Set by its owner, and not while it waits. */
    struct client *client;
    int urgency;          /* of enum FAIR_*; scheduler_hurry() changes it while it waits */
    bool is_registration; /* of a task */
    bool is_suspect;      /* it was lost with its worker: nothing else has a CPU slot while it has one */
    char reference
        [REFERENCE_ID_SIZE]; /* of a submission that waits for a device: jobs with the same one share it */
    /* The scheduler's own. All zero at first. */
    struct fair_turn turn;
    bool waits_for_device, has_slot, has_device;
    bool is_rerun; /* it was promised a run without anything concurrent */
    struct isolated_rerun rerun;
    int64_t slot_ns, device_ns;
    int overtaken; /* times that a job behind it had a device first */
};

/* The job of a turn, and the struct that a job is embedded in. */
#define scheduler_owner(job, type, member) ((type *)((char *)(job)-offsetof(type, member)))

enum scheduler_prepared {
    SCHEDULER_BEGIN,  /* it may begin */
    SCHEDULER_LEAVES, /* it waits for no slot any more, unless it is added again */
    SCHEDULER_WAIT,   /* none is placed now; the owner kicks the scheduler again */
};

/* None of them may free the job that it is given before it returns, but by scheduler_remove() and what the owner does. */
struct scheduler_ops {
    bool (*has_cpu)(void *arg); /* whether the workers of the CPU stages are ready */
    enum scheduler_prepared (*prepare)(void *arg, struct scheduler_job *job);
    void (*begin)(void *arg, struct scheduler_job *job); /* it has a CPU slot */
    void (*place)(void *arg, struct scheduler_job *job,
                  struct device_worker *w); /* it has a device, whose worker is idle */
    void (*kicked)(void *arg); /* at the end of each scheduler_kick(): every job that can run runs */
};

/* slots: of the CPU. device_workers is borrowed for the scheduler's life, n of them are there. NULL: no memory. */
struct scheduler *scheduler_new(int64_t slots, struct device_worker *const *device_workers, int n,
                                const struct scheduler_ops *ops, void *arg);
void scheduler_free(struct scheduler *q); /* NULL is fine */
/* While it is paused, tasks are registered and nothing is judged. */
void scheduler_pause(struct scheduler *q, bool is_paused);
/* Assign nothing any more. */
void scheduler_drain(struct scheduler *q);
/* Assign free slots and devices to the next jobs. A call from inside an operation adds one more round. */
void scheduler_kick(struct scheduler *q);

/* --- waiting --- */

/* at_head: before the other jobs of its client, but for registrations that stand there. */
void scheduler_add_for_slot(struct scheduler *q, struct scheduler_job *job, bool at_head);
void scheduler_add_for_device(struct scheduler *q, struct scheduler_job *job, bool at_head);
/* Whether a waiting job may have a slot when one is free. */
bool scheduler_is_open(const struct scheduler *q);
/* A slot is free, and no job that may begin waits for it. */
bool scheduler_has_room(const struct scheduler *q);
bool scheduler_waits(const struct scheduler_job *job);
void scheduler_remove(struct scheduler *q, struct scheduler_job *job); /* it waits */
/* It is as urgent from now on, unless it is already. */
void scheduler_hurry(struct scheduler *q, struct scheduler_job *job, int urgency);

/* --- having --- */

/* Nothing happens where it has no slot. */
void scheduler_release_slot(struct scheduler *q, struct scheduler_job *job);
/* Returns for how many seconds it held the device; 0 where it has none. */
double scheduler_release_device(struct scheduler *q, struct scheduler_job *job);
/* Whether nothing else ran in the CPU stages. */
bool scheduler_is_sole(const struct scheduler *q, const struct scheduler_job *job);

/* --- reruns: judged once more with nothing concurrent --- */

/* False: the share of the time for that is used up. Else its next begin is alone, until scheduler_end_rerun(). */
bool scheduler_promise_rerun(struct scheduler *q, struct scheduler_job *job);
/* It has the machine to itself: nothing else runs, and nothing begins. */
bool scheduler_is_isolated(const struct scheduler *q, const struct scheduler_job *job);
/* Others may begin again. Nothing happens where it neither waits for that nor has it. */
void scheduler_end_rerun(struct scheduler *q, struct scheduler_job *job);

/* --- showing --- */

struct scheduler_counts {
    int64_t queued[FAIR_URGENCIES],
        ready[FAIR_URGENCIES];               /* submissions that wait for a slot, and for a device */
    int64_t slots, cpu_running, gpu_running; /* submissions; registrations are not counted */
    double rerun_held_s;                     /* that others waited for reruns */
};
void scheduler_count(const struct scheduler *q, struct scheduler_counts *out);
int64_t scheduler_waiting(const struct scheduler *q); /* submissions that wait for either */

#endif
