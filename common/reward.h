/*
 * reward.h - raw components in, a scalar out. Pure: no clock, no state.
 *
 * A component that is not known is NAN. Every kind gives hack_value for class
 * hack or policy, and NAN (null in JSON: mask the sample) for infra and for a
 * cancelled submission.
 */
#ifndef COMMON_REWARD_H
#define COMMON_REWARD_H

#include <stdbool.h>

#include <jansson.h>

#include "common/json.h"

/* 0 or 1 unless a comment says otherwise; the names are those of the JSON answer. */
struct reward_components {
    double extracted, valid, compiled, correct, hack, timed;
    double speedup, speedup_lo, speedup_hi; /* ratio, > 0 */
    double coverage;                        /* 0..1 */
    double sol;                             /* 0..1 */
    double rank;                            /* 0..1 */
    double peak_mem_ratio;                  /* > 0 */
    double cases_passed;                    /* 0..1 */
};

/* The last stage passed, for `staged`. */
enum reward_stage { REWARD_NOTHING, REWARD_AST, REWARD_COMPILE, REWARD_TINY, REWARD_FULL, REWARD_TIMING };

struct reward_input {
    struct reward_components components;
    enum reward_stage passed; /* last stage passed */
    bool has_failed;          /* a stage failed (as against: skipped, or stopped by until) */
    double partial;           /* 0..1: progress inside the stage that failed */
    bool is_hack;             /* class hack or policy */
    bool is_masked;           /* class infra, or cancelled */
};

struct reward_spec {
    char kind[16];        /* "staged" */
    int version;          /* 1 or 2 for staged */
    double hack_value;    /* 0, or what the client asked for, -1..0 */
    bool is_conservative; /* the speed term uses speedup_lo */
};

#define REWARD_SPEC_DEFAULT     \
    {                           \
        "staged", 2, 0.0, false \
    }

void reward_components_init(struct reward_components *c); /* every one NAN but extracted.. hack, timed: 0 */

/* Read {"kind", "version", "hack_value", "speed": "point"|"conservative"}. base as in json_read(). */
int reward_spec_read(json_t *object, const char *base, struct reward_spec *out, struct json_fault *fault);
json_t *reward_spec_json(const struct reward_spec *spec);          /* given */
json_t *reward_components_json(const struct reward_components *c); /* given; NAN becomes null */

/* The scalar, or NAN for "no reward". */
double reward_compute(const struct reward_spec *spec, const struct reward_input *in);

#endif
