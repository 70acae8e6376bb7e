/*
 * runs.h - KernelBench's layout on disk: a run's directory holds level_L_problem_P_sample_S_kernel.py, and their
 * results in eval_results.json. Read as a round's source of answers; written for KernelBench's own scripts.
 */
#ifndef TRAINER_RUNS_H
#define TRAINER_RUNS_H

#include <stddef.h>

#include <jansson.h>

#include "client/trainer/round.h"

struct runs;

/* Find the kernels. ERR_SYS: it cannot be read; ERR_INPUT: it contains no kernel. */
int runs_open(const char *directory, struct runs **out, struct error *err);
void runs_free(struct runs *r);
/* As round_source.sample; arg: a struct runs. An answer's "sample_id" is the file's. */
int runs_sample(void *arg, const struct task *task, json_t *messages, int n, uint64_t seed, json_t **answers,
                struct error *err);
bool runs_has_level(const struct runs *r, int level);
/* Say on standard error how many kernels are of none of these tasks. */
void runs_tell_unknown(const struct runs *r, const struct task_set *set);
size_t runs_samples(const struct runs *r); /* the most that one problem has */
/* {"runs": the directory, "digest": of all kernels}. Given; NULL: out of memory, or a kernel cannot be read. */
json_t *runs_provenance(const struct runs *r);

/*
 * For each level with numbered problems: DIRECTORY_levelL with the kernels and eval_results.json, where
 * {"<problem>": [{"sample_id", "compiled", "correctness", "metadata", "runtime", "runtime_stats"}]}; runtime is in ms,
 * -1 if it was not timed. Our own values are in metadata. workdir/sub/name is DIRECTORY.
 */
int runs_write(const char *workdir, const char *sub, const char *name, const struct round_result *results,
               size_t n, struct error *err);

#endif
