/*
 * reward.h - raw components in, a scalar out. Pure: no clock, no state.
 *
 * A named reward is a row of one table (reward.c): an expression over the
 * components and its own parameters, with its source. `expr` is an expression
 * that the client brings. A component that is not known is NAN. Every kind gives
 * hack_value for class hack or policy, and NAN (null in JSON: mask the sample)
 * for infra and for a cancelled submission. docs/rewards.md is the same for people.
 */
#ifndef COMMON_REWARD_H
#define COMMON_REWARD_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "common/expression.h"
#include "common/json.h"
#include "common/stages.h"

/* 0 or 1 unless a comment says otherwise; the names are those of the JSON answer. */
struct reward_components {
    double extracted, valid, compiled, correct, hack, timed;
    double speedup, speedup_lo, speedup_hi; /* ratio, > 0 */
    double speedup_compile;                 /* torch.compile's time over the candidate's; ratio, > 0 */
    double coverage;                        /* 0..1 */
    double sol;                             /* 0..1 */
    double rank;                            /* 0..1; reward_rank() */
    double peak_mem_ratio;                  /* > 0 */
    double cases_passed;                    /* 0..1 */
    double generality;                      /* 0..1: the share of other sizes, dtypes and arguments */
};

struct reward_input {
    struct reward_components components;
    enum stage passed; /* last stage passed, or STAGE_NONE */
    bool has_failed;   /* a stage failed (as against: skipped, or stopped by until) */
    double partial;    /* 0..1: progress inside the stage that failed */
    bool is_hack;      /* its class is a cheat's */
    bool is_masked;    /* our fault, or cancelled */
};

#define REWARD_PARAMS_MAX 8
#define REWARD_PARTS_MAX 2

struct reward_param {
    char name[24];
    double value;
};

struct reward_spec {
    char kind[16];        /* a name of the table, or "expr" */
    int version;          /* from 1 */
    double hack_value;    /* 0, or the client's value, -1..0 */
    bool is_conservative; /* speeds are speedup_lo */
    size_t n_params;
    struct reward_param params[REWARD_PARAMS_MAX];
    char expr[EXPRESSION_TEXT_MAX + 1]; /* of kind "expr"; empty otherwise */
};

#define REWARD_SPEC_DEFAULT                        \
    {                                              \
        .kind = "staged", .version = 2, .expr = "" \
    }

void reward_components_init(struct reward_components *c); /* every one NAN but extracted.. hack, timed: 0 */

/*
 * Read {"kind", "version", "hack_value", "speed": "point"|"conservative", "params": {name: number}, "expr"}.
 * base as in json_read(). Members that the spec leaves out get the kind's defaults, so out is complete.
 */
int reward_spec_read(json_t *object, const char *base, struct reward_spec *out, struct json_fault *fault);
json_t *reward_spec_json(const struct reward_spec *spec);          /* given */
json_t *reward_components_json(const struct reward_components *c); /* given; NAN becomes null */

/* The other way: a stored object's numbers; an absent or null member becomes NAN. */
void reward_components_read(json_t *object, struct reward_components *c);

/* The scalar, or NAN for "no reward" (masked, or the expression's result is not finite). */
double reward_compute(const struct reward_spec *spec, const struct reward_input *in);

/*
 * The parts of a kind's reward other than the scalar ("tritonrl": plan and code), by name. Returns their number: 0 for
 * most.
 */
size_t reward_parts(const struct reward_spec *spec, const struct reward_input *in,
                    struct reward_param out[REWARD_PARTS_MAX]);

/* This kind needs components.rank, which only a whole group has. */
bool reward_needs_rank(const struct reward_spec *spec);

/*
 * The rank component of every member of a group, by speed against the others and against the reference:
 * a win counts 1 where the intervals are apart, a tie (they overlap, or within REWARD_TIE of each other) a half,
 * rank = wins / (members, the reference counted as one, less oneself). Speeds are winsorized first, at the
 * 5th and 95th percentile from 20 members on, else at median +- 3 * 1.4826 * MAD of their logarithms.
 * (at least REWARD_REACH, since most of a small group may be alike). Those without a credited speed get NAN. Returns how many speeds were clipped.
 */
#define REWARD_TIE 0.02
#define REWARD_REACH 0.5
size_t reward_rank(struct reward_input *members, size_t n);

#endif
