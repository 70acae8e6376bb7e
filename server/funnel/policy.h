/* policy.h - the rules a submission is judged by, read from a request and told in its verdict. Pure. */
#ifndef FUNNEL_POLICY_H
#define FUNNEL_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "common/json.h"

#define POLICY_VERSION 1

/* Each part is one key that can be turned off or down. */
struct policy {
    char name[16];
    bool staged;                 /* stop at the first stage that fails */
    bool skip_timing_on_failure; /* time nothing that was found wrong */
    bool tiny_first;             /* the smallest case before the task's own */
    char precision[8];           /* "tf32" or "ieee" */
    char foreign[12];            /* what others' kernels may do: "movement", "library" or "any" */
    struct {
        int64_t count; /* 1 .. 16 */
        bool value, shape, dtype;
    } variations;
    struct {
        int64_t warmup, trials; /* 0 .. 100, 1 .. 50 */
        bool fixed;             /* exactly `trials`, no early stop */
        bool events;            /* CUDA events beside the referee's clock */
        bool cold;              /* the L2 cache is flushed before each bell */
        char estimator[8];      /* "paired" or "trimmed": the speedup that is rewarded */
        bool compile_baseline;  /* the reference under torch.compile is timed as well */
        bool variations;        /* the other shapes that `full` ran are timed as well */
        bool batched;           /* what is too short for the clock is timed as many calls at once as well */
    } timing;
};

/* By name: strict, hybrid or kernelbench. 0 or ERR_NOTFOUND. */
int policy_find(const char *name, struct policy *out);
/* value: a name, or an object whose "name" says what its other keys change; NULL: strict. 0 or ERR_INPUT. */
int policy_read(json_t *value, const char *base, struct policy *out, struct json_fault *fault);
/* Given: every part with its value, and the name and version. policy_read() takes it back. */
json_t *policy_json(const struct policy *p);
/* Its name as it is shown: "strict*" where a part lets through what the policy of that name does not. */
#define POLICY_SHOWN_SIZE 20
void policy_shown(const struct policy *p, char out[POLICY_SHOWN_SIZE]);
/* Given: the same without name and version, for "policy_on". */
json_t *policy_parts_json(const struct policy *p);

#endif
