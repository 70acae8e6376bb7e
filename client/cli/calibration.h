/*
 * calibration.h - the programs of a calibration, and the summary of its results. Pure.
 *
 * Three lengths of one product of matrices, each against itself (the speed-up is 1) and against the same product made
 * twice (the reference is twice as fast: a slow-down of 2), and a call that does nothing (too small to be timed).
 *   bias    exp(mean of ln speedup) - 1 over all runs of a reference against itself
 *   spread  their coefficient of variation
 */
#ifndef CLI_CALIBRATION_H
#define CLI_CALIBRATION_H

#include <stddef.h>

#include <jansson.h>

#include "common/buffer.h"

enum calibration_kind { CALIBRATION_SELF, CALIBRATION_TWICE, CALIBRATION_NOTHING, CALIBRATION_NKINDS };

struct calibration_program {
    const char *name;
    enum calibration_kind kind;
    int rows; /* of the matrix; 0: none is multiplied */
};

/* Each program once; only the runs against itself are repeated. */
extern const struct calibration_program calibration_programs[];
extern const size_t calibration_programs_count;

/* Python source, appended: the task's, or the candidate's with bytes (mark) that no other submission has. */
int calibration_reference(const struct calibration_program *p, struct buffer *out);
int calibration_candidate(const struct calibration_program *p, const char *mark, struct buffer *out);

struct calibration_run {
    const struct calibration_program *program;
    char outcome[32]; /* of the timing, or the class where that is not "ok" */
    char id[64];      /* of the submission */
    double speedup, lo, hi, reference_ms, candidate_ms; /* NAN: not known */
};

/* From a verdict; borrowed. */
void calibration_read(const struct calibration_program *p, json_t *verdict, struct calibration_run *out);

struct calibration_summary {
    double bias, spread; /* NAN with fewer than two runs that were measured */
    int measured;        /* runs against itself that were */
    char wrong[512];     /* the deviations, "; " between; "": none */
};

void calibration_summarize(const struct calibration_run *runs, size_t n, struct calibration_summary *out);
/* Given: the body of POST /v1/calibrations. */
json_t *calibration_json(const char *gpu, const struct calibration_run *runs, size_t n,
                         const struct calibration_summary *summary);

#endif
