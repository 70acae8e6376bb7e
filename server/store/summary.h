/* summary.h - the few facts of a stored verdict that sums are made of. Pure; any thread. */
#ifndef STORE_SUMMARY_H
#define STORE_SUMMARY_H

#include <stdbool.h>
#include <stddef.h>

#include "common/classes.h"

#define SUMMARY_WORD_SIZE 32
#define SUMMARY_MESSAGE_SIZE 201 /* bytes, with the NUL */
#define SUMMARY_GPU_SIZE 96

struct summary {
    enum verdict_class class_;
    char failed_at[SUMMARY_WORD_SIZE], passed[SUMMARY_WORD_SIZE]; /* "": none */
    double speedup, speedup_lo, speedup_hi;                       /* NAN where no speed is credited */
    double candidate_ms, reference_ms;                            /* medians; NAN likewise */
    double wait_ms;                                               /* in the queues of all stages */
    char gpu[SUMMARY_GPU_SIZE];                                   /* its name, or "" */
    bool is_correct;                                              /* its answers were compared, and right */
    bool
        is_weakened; /* the policy allowed more than the one of its name: it counts only in the sum of failures */
    char message[SUMMARY_MESSAGE_SIZE]; /* its cause, without place and figures; "" for class ok */
};

/* The stretches that verdicts are counted in (store.h), and how long each kind is kept; failures: STORE_FAILURE_SPAN_S. */
#define SUMMARY_NSPANS 3
extern const struct summary_span {
    int span_s, kept_s;
} summary_spans[SUMMARY_NSPANS];
#define SUMMARY_FAILURES_KEPT_S (31 * 86400)
/*
 * Rows that one stretch of a scope (and node) has room for, since candidates choose what they raise. Beyond, a failure
 * without a row counts under run "" and task "": under its message where the stretch has that already, else under "". So
 * there are at most twice as many rows, and one for each class and stage.
 */
#define SUMMARY_FAILURES 512
#define SUMMARY_PRUNE_EVERY_S 60

/* Of the verdict's JSON text. False: it is not a verdict with a class, and is not counted. */
bool summary_read(const char *verdict, struct summary *out);

/*
 * Messages that differ only in numbers become one: a number is '#' (one inside a name, as in float32, stays), white
 * space and control characters become one space, and a text that is too long is cut between two characters.
 *   text  size bytes of UTF-8, NULs allowed
 */
void summary_message(const char *text, size_t size, char out[SUMMARY_MESSAGE_SIZE]);

#endif
