/*
 * clients.h - the record of each client: its accounts with the CPU slots and with the devices, and what it has used of
 * its quota. Requests without a client share one record, the operator's, which has no quota. Loop thread only.
 */
#ifndef QUEUE_CLIENTS_H
#define QUEUE_CLIENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "server/queue/fair.h"
#include "server/queue/quota.h"

struct store;
struct store_usage;
struct clients;
struct client; /* it lives at least for as long as anything of it is unfinished */

/* Without quotas until clients_configure(). NULL: no memory. */
struct clients *clients_new(void);
void clients_free(struct clients *cs); /* NULL is fine */
/* quotas: the text of the setting, read before. Without memory for it the quotas stay as they are. */
void clients_configure(struct clients *cs, const char *quotas);
/* Read the store's usage of today that counts against quotas. 0 or an error of the store. */
int clients_restore(struct clients *cs, struct store *store, struct error *err);

/* The record of that name, made where it is missing; name NULL or "": the operator's. NULL: no memory. */
struct client *clients_get(struct clients *cs, const char *name);
const char *client_name(const struct client *c); /* view; NULL: the operator's */
/* View, until the next clients_configure(): `running` of all clients, as store_wants.limits; NULL: no limit. */
const char *clients_limits(const struct clients *cs);
/* View: see quotas_find(). */
const struct quota *clients_quota(const struct clients *cs, const char *name);
/* Of a client with a quota, what all nodes know (struct store_usage): seconds of devices, and for the next call the rest. */
void clients_note(struct clients *cs, const char *name, const struct store_usage *on_all_nodes);
/* Whether n more submissions or registrations are within the client's quota; and those before them: quota_admit(). */
enum quota_limit clients_admit(struct clients *cs, const char *name, size_t n, size_t registrations,
                               int *retry_s);

/* A submission, or a registration that the client asked for, is accepted; it is over. */
void client_add_submission(struct client *c);
void client_drop_submission(struct client *c);
void client_add_registration(struct client *c);
void client_drop_registration(struct client *c);
int64_t client_registrations(const struct client *c); /* that it asked for and that are not over */

/* n submissions that were admitted are on their way to the store; n < 0: they have come, or will not. */
void client_expect(struct client *c, int64_t n);
int64_t clients_coming(const struct clients *cs); /* of all clients */

/* One of them has a CPU slot or a device from now on, and until the other call. */
void client_begin_run(struct client *c);
void client_end_run(struct client *c);
void client_used_device(struct client *c, double seconds);
/* All nodes together run its limit: it may start nothing for a moment, as if its quota were used up. */
void client_hold(struct client *c);
/* Whether its quota lets one more run. */
bool client_may_run(const struct client *c);

/* Its accounts; they belong to the client. */
struct fair_share *client_cpu(struct client *c);
struct fair_share *client_device(struct client *c);
/* client_may_run() of the client with this account, for fair_next(); arg is not used. */
bool client_may_have_slot(void *arg, const struct fair_share *cpu);
bool client_may_have_device(void *arg, const struct fair_share *device);

#endif
