/*
 * norm.h - how long a GPU's canary takes: the norm, learned once and kept, and when it is due. Pure: the caller reads the clocks.
 */
#ifndef WORKERS_NORM_H
#define WORKERS_NORM_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#define NORM_DRIFT 0.05 /* further off than this is drift: that of server/harness/oracle/gpu_state.py */
#define NORM_SAMPLES 9  /* the norm is the median of as many, and then it stands */
#define NORM_NS_MAX 1000000000000

/* All zero is one of which nothing is known. */
struct norm {
    int64_t samples[NORM_SAMPLES];
    int n_samples;
    int64_t since_ms; /* wall clock, of the first sample */
};

enum norm_finding {
    NORM_STEADY,
    NORM_SLOWER, /* than the norm: the GPU is not what it was */
    NORM_FASTER, /* the norm was taken while it was slow, or its clocks were set anew: the norm begins anew */
};

/* 0: not known yet. */
int64_t norm_ns(const struct norm *n);
/* ns over the norm, less 1; NAN where there is no norm. */
double norm_drift(const struct norm *n, int64_t ns);

/*
 * A canary took ns (1 to NORM_NS_MAX) at now_ms of the wall clock. is_well: nothing else was wrong with it; only then
 * the norm learns from it.
 */
enum norm_finding norm_note(struct norm *n, int64_t now_ms, int64_t ns, bool is_well);

/* {"norm_ns","samples","since_ms"}; given. */
json_t *norm_json(const struct norm *n);
/* False: document is not one of norm_json(), and *out has no norm. */
bool norm_read(const json_t *document, struct norm *out);

/*
 * Milliseconds until a canary is due, 0 where it is already. passed_ns: when one passed last; 0: never. Both times are
 * monotonic.
 */
int64_t norm_due_ms(int64_t passed_ns, int64_t interval_s, int64_t now_ns);

#endif
