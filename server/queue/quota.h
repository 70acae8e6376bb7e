/* quota.h - how much a client may use, as the setting `quotas` says. Pure. */
#ifndef QUEUE_QUOTA_H
#define QUEUE_QUOTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

#define QUOTA_CLIENT_SIZE 65 /* as a token's client */

/* 0: no limit. */
struct quota {
    int64_t rate;    /* submissions and registrations a minute; as many may come at once */
    int64_t queued;  /* of both that are accepted and wait */
    int64_t running; /* side by side; more wait */
    int64_t gpu_s;   /* seconds of devices a day (UTC) */
};

struct quotas {
    struct quota_row {
        char client[QUOTA_CLIENT_SIZE]; /* "*": every other */
        struct quota quota;
    } * rows; /* in order of their clients' names */
    size_t n;
};

/* "alice:rate=60,gpu_s=3600 *:queued=500". 0, ERR_INPUT (err says which part) or ERR_NOMEM; out is empty then. */
int quotas_parse(const char *text, struct quotas *out, struct error *err);
void quotas_release(struct quotas *q);
/* View; a quota without limits where nothing is said of the client, or for NULL and "": the operator. */
const struct quota *quotas_find(const struct quotas *q, const char *client);

/* A client's use of its quota. All zero at first. */
struct usage {
    double rate_left; /* submissions; below 0 after a large group */
    int64_t rate_ns;  /* monotonic, when that was so; 0: never */
    int64_t recent;   /* submissions of the last minute on all nodes; 0: not known */
    int64_t waiting, running;
    double gpu_s; /* of that day */
    int64_t day;  /* since 1970 */
};

enum quota_limit { QUOTA_OK, QUOTA_RATE, QUOTA_QUEUED, QUOTA_GPU };
/*
 * Whether n more submissions are within it; they count against the rate then, with the registrations that precede
 * them, and against nothing else. Where not, retry_s is when it may be otherwise; 0: when some of what waits is done.
 * now_ns is monotonic, now_ms the wall clock.
 */
enum quota_limit quota_admit(const struct quota *q, struct usage *u, size_t n, size_t registrations,
                             int64_t now_ns, int64_t now_ms, int *retry_s);
/* A device was held so long by the client's submission or registration. */
void usage_add_gpu(struct usage *u, double seconds, int64_t now_ms);
/* It used devices on this day, which its record has to remember. */
bool usage_is_of_today(const struct usage *u, int64_t now_ms);

#endif
