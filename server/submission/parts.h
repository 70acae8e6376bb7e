/*
 * parts.h - the parts that judging is made of, each behind its own header. lifetime.c makes them and wires them together.
 */
#ifndef SUBMISSION_PARTS_H
#define SUBMISSION_PARTS_H

#include <stdbool.h>

#include <uv.h>

#include "server/config.h"
#include "server/submission/funnel.h"
#include "server/workers/devices.h"
#include "server/workers/zygote.h"

struct submission;

/* A list: constant for all but lifetime.c, which fills it once. What changes is behind the header of a part. */
struct funnel {
    uv_loop_t *const loop;
    const struct config *const config;
    struct store *const store;
    struct uids *const uids;
    struct cgroups *const cgroups;
    struct zygote *const zygote;                       /* compile */
    struct zygote *const static_zygote;                /* ast, inspect */
    struct prefork_pool *const stage_pools[CHILD_RUN]; /* by role: of the CPU stages */
    struct device_worker *const device_workers[DEVICES_MAX];
    const int n_device_workers;

    struct registry *const registry;
    struct node *const node;
    struct elsewhere *const elsewhere; /* submissions of other nodes that a client here waits for */
    struct groups *const groups;
    struct registrar *const registrar;

    struct calibrations *const calibrations;
    struct norms *const norms; /* of the canaries of all GPUs */
    struct baselines *const baselines;

    struct reuse *const reuse;
    struct single_flight *const flight;
    struct reuse_keys *const reuse_keys;

    struct clients *const clients;
    struct scheduler *const scheduler;
    struct counters *const counters;
    struct pending *const pending;
    struct lifetime *const lifetime; /* lifetime.c's own */
    struct follower *const follower; /* parts.c's own */

    void (*const begin)(struct submission *s);                  /* it has a slot: driver.c */
    void (*const ended)(struct submission *s, bool is_durable); /* ended.c */
    void (*const taken)(struct submission *s);                  /* by another node: others.c */
};

struct follower *follower_new(void); /* given: free() */
/* Reports an event to the follower of submissions (funnel_follow()). */
void funnel_tell(struct funnel *f, const struct funnel_event *event);
/* The zygote whose children serve a stage without a device. View. */
struct zygote *funnel_zygote_of(const struct funnel *f, enum child_role role);
bool zygotes_are_ready(const struct funnel *f); /* both that the CPU stages need */

#endif
