/* selftest.h - what the two kinds of `verifier selftest` share. */
#ifndef CLI_SELFTEST_H
#define CLI_SELFTEST_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "client/cli/cli.h"
#include "client/cli/corpus.h"

/* The daemon under test. */
struct bench {
    struct cli *cli;
    json_t *status; /* its /v1/status */
    bool has_gpu;
    char run[40]; /* names this run; no other has it */
    int nonces;
};

/* Register a task: *id given, free(). CLI_REFUSED: verifierd did not take it, and that was printed. */
int bench_add_task(struct bench *b, json_t *registration, char **id);
/*
 * Submit a candidate with fresh bytes, under the given policy or its own (NULL), through all stages or until one (NULL:
 * all): *id given, free().
 */
int bench_submit(struct bench *b, const struct corpus_candidate *candidate, const char *task_id,
                 const char *policy, const char *until, char **id);
/* Its state now, or after wait_s seconds at most: given. Sets is_finished. */
int bench_look(struct bench *b, const char *id, double wait_s, json_t **out, bool *is_finished);
/* A text that nobody used before in a candidate. */
void bench_nonce(struct bench *b, char *out, size_t size);

/* --quick: a line each. directory: where the corpus lies. Returns an enum cli_exit. */
int selftest_quick(struct bench *b, const struct corpus *corpus, const char *directory);

#endif
