/*
 * attempt.h - one attempt at a submission: all that is known of it while it is judged. A queued submission has none. Loop
 * thread only, but for attempt_read_row() and what its caller does with it.
 */
#ifndef SUBMISSION_ATTEMPT_H
#define SUBMISSION_ATTEMPT_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "common/buffer.h"
#include "common/classes.h"
#include "common/policy.h"
#include "common/reward.h"
#include "common/stages.h"
#include "server/store/store.h"
#include "server/submission/stage_end.h"
#include "server/submission/state.h"
#include "server/workers/scratch.h"

struct child;
struct funnel;
struct device_worker;
struct submission;

#define RULE_SIZE 64
#define ATTRIBUTION_SIZE 200

struct stage_record {
    enum outcome outcome;
    enum verdict_class class_; /* why it failed; CLASS_NONE otherwise */
    double wait_ms, run_ms;
    int done, of;    /* progress inside the stage */
    const char *why; /* of a skip; static text or NULL */
};

/* All that is known of a submission while it is judged; a queued one has none. */
struct attempt {
    struct submission_row row;
    struct task_row task;
    struct buffer source;
    json_t *request, *policy_json;
    const char *entry; /* view into request */
    struct policy policy;
    struct reward_spec reward;
    int until; /* a stage, or -1 */
    uint64_t seed;

    struct stage_record stages[STAGE_NSTAGES];
    int stage; /* the one it is in or was in last; -1: none yet */
    int64_t started_ns;
    int passed;                /* last stage passed before anything failed; -1: none */
    int failed_stage;          /* of the first failure; -1: none. STAGE_EXTRACT: before the first stage */
    enum verdict_class class_; /* of the first failure; CLASS_NONE: none */
    char rule[RULE_SIZE];      /* the rule of ours that the first failure broke; "": none */
    json_t *error;             /* {"type","text","line"} of the first failure, or NULL */
    char text[1600];           /* of the first failure, in plain English */
    char neighbour[ATTRIBUTION_SIZE]; /* the part of it that a neighbour may have caused; "": none is known */

    json_t *flags;    /* array of strings */
    json_t *kernels;  /* names of the jitted functions, from the syntax tree */
    json_t *compiled; /* the findings of `inspect` or `build` */
    json_t *report;   /* of the compile child */
    char *generality;
    json_t *tiny, *full, *timing; /* the referee's details */
    json_t *env;                  /* versions and GPU of the workers that judged it */
    json_t *baseline;             /* of torch.compile, as it is reported; NULL: none was made */
    json_t *sanitize;             /* the report of compute-sanitizer; NULL: it was not run */

    stage_ended_cb *ended; /* the driver: receives the end of a stage */
    enum { STEP_AST, STEP_COMPILE, STEP_PUBLISH, STEP_INSPECT, STEP_BUILD } step;
    int built, to_build; /* kernels, as the build child last said; 0 of 0: it has not */
    struct child *child;
    json_t *result;                /* of the child */
    bool is_short;                 /* the machine was short of memory when that came */
    char cache[SCRATCH_PATH_SIZE]; /* "" none; ours to remove */
    int plan_fd;                   /* memfd: what the candidate's trace wrote down, a claim; -1: none */
    int images_fd;                 /* memfd: the same, checked, with its kernels' images; -1: none */
    bool is_traced;   /* the compile child was asked for a plan: otherwise one that it sends is ignored */
    bool is_live;     /* no plan could be made of it: no speed is credited but by `credit_untraced` */
    json_t *untraced; /* then: {"type","text","line"} of why, or NULL */
    json_t *plan;     /* else: its summary, for the verdict; NULL: there is none */
    bool is_carried;  /* the stages without a device were passed on another node, in these milliseconds */
    double carried_ms[STAGE_COMPILE + 1];
    int carried_done, carried_of; /* progress in `compile` */
    struct device_worker *device_worker;
    bool is_finishing; /* the verdict is clear, the device worker still has to release it */
    bool is_parking;   /* the same, and it will wait for its group */
    bool is_sanitized; /* its own verdict is clear, and the device worker was asked for `sanitize` */
    bool is_comparing; /* its own verdict is clear, and the device worker times the compiled reference */
    bool is_reference_lost;
    char reference_error[512]; /* the reference's message when it was lost */
    struct buffer log;
    int64_t log_lost;
};

/* An attempt of which nothing is known yet. NULL: no memory. */
struct attempt *attempt_alloc(void);
/* Begins with its row (taken, also on failure). 0, ERR_STORE: its request cannot be read, and the attempt is as whole as any other. */
int attempt_read_row(struct attempt *j, struct submission_row *row, struct error *err);
void attempt_free(struct funnel *f, struct attempt *j);
void attempt_release_documents(struct attempt *j); /* its verdict is made: what that was made from goes */
/*
 * The first failure counts, and later ones leave it; but a hack replaces any other of the candidate's. error may be
 * NULL; text is printf-style.
 */
void attempt_fail(struct attempt *j, int stage, enum verdict_class class_, json_t *error, const char *format,
                  ...) __attribute__((format(printf, 5, 6)));

/* It has no plan, or one that is no graph, and the policy credits no speed then. */
bool attempt_is_uncredited(const struct attempt *j);
/* Its plan was timed by the live clock, since its calls could not be recorded as a graph: that one asks for less. */
bool attempt_is_not_captured(const struct attempt *j);
/* Whether the policy lets the next stage follow on the one that was just decided. */
bool attempt_goes_on(const struct attempt *j);
/* Notes the environment of the judging. versions: borrowed, an object or NULL. */
void attempt_note_env(struct attempt *j, json_t *versions);
/* Adds the flags that it does not have. flags: borrowed, an array of strings or NULL. */
void attempt_add_flags(struct attempt *j, json_t *flags);
void attempt_add_flag(struct attempt *j, const char *name);
/* Adds what one of its processes printed to its log, of which limit bytes are kept; lost: bytes not in output. */
void attempt_take_output(struct attempt *j, const struct buffer *output, int64_t lost, int64_t limit);

#endif
