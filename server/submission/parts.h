/*
 * parts.h - the parts that judging is made of, each behind its own header. lifetime.c makes them and wires them together.
 */
#ifndef SUBMISSION_PARTS_H
#define SUBMISSION_PARTS_H

#include <stdbool.h>

#include <uv.h>

#include "server/config.h"
#include "server/queue/fair.h"
#include "server/submission/funnel.h"
#include "server/workers/devices.h"
#include "server/workers/zygote.h"

struct baselines;
struct calibrations;
struct cgroups;
struct clients;
struct counters;
struct drain;
struct elsewhere;
struct follower;
struct groups;
struct node;
struct norms;
struct pending;
struct registrar;
struct retries;
struct reuse;
struct reuse_keys;
struct scheduler;
struct prefork_pool;
struct store;
struct submission;
struct uids;

struct funnel {
    uv_loop_t *loop;
    const struct config *config;
    struct store *store;
    struct uids *uids;
    struct cgroups *cgroups;
    int scratch_lock;                            /* keeps other daemons out of the scratch directory */
    struct zygote *zygote;                       /* compile */
    struct zygote *static_zygote;                /* ast, inspect */
    struct prefork_pool *stage_pools[CHILD_RUN]; /* by role: of the CPU stages */
    struct device_worker *device_workers[DEVICES_MAX];
    int n_device_workers;

    struct registry *registry;
    struct node *node;
    struct elsewhere *elsewhere; /* submissions of other nodes that a client here waits for */
    struct groups *groups;
    struct registrar *registrar;

    struct calibrations *calibrations;
    struct norms *norms; /* of the canaries of all GPUs */
    struct baselines *baselines;

    struct reuse *reuse;
    struct single_flight *flight;
    struct reuse_keys *reuse_keys;
    struct retries *retries;

    struct clients *clients;
    struct scheduler *scheduler;

    void (*begin)(struct submission *s);                  /* it has a slot: driver.c */
    void (*ended)(struct submission *s, bool is_durable); /* ended.c */
    void (*taken)(struct submission *s);                  /* by another node: others.c */
    struct pending *pending;
    struct drain *drain;       /* lifetime.c's own */
    struct follower *follower; /* parts.c's own */

    struct counters *counters;
};

struct follower *follower_new(void); /* given: free() */
/* Reports an event to the follower of submissions (funnel_follow()). */
void funnel_tell(struct funnel *f, const struct funnel_event *event);
/* The zygote whose children serve a stage without a device. View. */
struct zygote *funnel_zygote_of(const struct funnel *f, enum child_role role);
bool zygotes_are_ready(const struct funnel *f); /* both that the CPU stages need */

#endif
