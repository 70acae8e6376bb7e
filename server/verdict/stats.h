/*
 * stats.h - where time went of late: sums over steps of STATS_STEP_S seconds, a day of them. Pure but for its memory.
 * Times are monotonic seconds.
 */
#ifndef VERDICT_STATS_H
#define VERDICT_STATS_H

#include <stdint.h>

#include "server/submission/state.h"

#define STATS_STEP_S 10
#define STATS_WINDOW_MAX_S 86400

enum stats_left { STATS_PASS, STATS_FAIL, STATS_SKIP, STATS_NOUTCOMES };
enum stats_saved { STATS_BY_REJECTION, STATS_BY_CACHE, STATS_NSAVED };

struct stats_stage {
    uint32_t by_outcome[STATS_NOUTCOMES], spared, waited;
    double wait_ms, run_ms, device_s;
    float wait_max_ms, run_max_ms;
};

struct stats_sum {
    struct stats_stage stages[STAGE_NSTAGES];
    uint32_t finished, shared; /* of those that ended: with an identical one's verdict */
    double device_s, saved_s[STATS_NSAVED];
};

struct stats;

struct stats *stats_new(int64_t now_s); /* NULL: no memory */
void stats_free(struct stats *st);      /* NULL is fine */
/* The step that is now, to be added to; view until the next call. */
struct stats_sum *stats_now(struct stats *st, int64_t now_s);
/* The steps of the last window_s seconds, the one under way included; returns how many seconds they cover. */
int64_t stats_read(struct stats *st, int64_t now_s, int64_t window_s, struct stats_sum *out);

#endif
