/*
 * pool.h - how many one-shot children a device keeps ready. Pure: rates under a
 * clock that the caller reads, and a figure made of what it was told.
 */
#ifndef WORKERS_POOL_H
#define WORKERS_POOL_H

#include <stdint.h>

/* Events a second, of late: each counts less by half every three and a half seconds (POOL_RATE_S ln 2). */
#define POOL_RATE_S 5.0

struct pool_rate {
    double per_s;
    int64_t at_ns; /* monotonic, of the last event */
};

/* n events at now_ns, which is no earlier than those before. n may be a share of one. */
void pool_rate_note(struct pool_rate *r, int64_t now_ns, double n);
double pool_rate_read(const struct pool_rate *r, int64_t now_ns);

/* One figure of a series, a fifth of the mean's weight; the first is the mean. Neither is negative. */
double pool_mean(double mean, double figure);

/* What is known of one device; rates in submissions (or children) a second, memory in bytes. */
struct pool_need {
    double entering;        /* submissions that begin the CPU stages */
    double passing;         /* share of them that come through to a device, 0 to 1 */
    double arriving;        /* that are through, and wait for a device */
    double taking;          /* children that jobs took */
    double job_s;           /* how long a job has a device; 0: not known */
    double make_s;          /* from the fork of a child until it is ready; 0: not known */
    double idle_s, limit_s; /* since any of these last happened, and from when on that is called idle */
    int64_t child_bytes;    /* of memory that a ready child holds, above 0 */
    int64_t budget_bytes;   /* for ready children; only `least` of them may hold more than it */
    int64_t least, most;    /* 1 <= least <= most */
};

/* Ready children wanted, least to most. */
int64_t pool_wanted(const struct pool_need *n);

#endif
