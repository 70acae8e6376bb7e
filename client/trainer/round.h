/*
 * round.h - one round: for each task sample answers, have them judged as a group, keep both in the journal.
 *
 * Tasks run side by side, `concurrency` at a time; a task's steps follow each other. Each step is in the journal
 * before the next begins, so that a run that was killed goes on where it was: no answer is sampled twice, no verdict lost.
 */
#ifndef TRAINER_ROUND_H
#define TRAINER_ROUND_H

#include <jansson.h>

#include "client/trainer/tasks.h"
#include "client/trainer/trainer.h"
#include "common/buffer.h"

/* Where answers come from in place of the endpoint: a directory, a model of one's own, a round before. */
struct round_source {
    /*
     * As endpoint_sample(); any thread. An answer with "code" is source text and not a model's answer; there may be fewer than n
     * of them. ERR_INPUT: there is none for this task, which counts as failed.
     */
    int (*sample)(void *arg, const struct task *task, json_t *messages, int n, uint64_t seed,
                  json_t **answers, struct error *err);
    void *arg;
    json_t *provenance; /* part of the journal's records; borrowed */
};

struct round_options {
    int samples;      /* answers for each task */
    int turns;        /* 1: no feedback is answered */
    int stop_correct; /* once so many of a turn are correct, its rest is cancelled and the task ends; 0: never */
    const char *policy;   /* NULL: strict below level 2, hybrid from there on */
    json_t *policy_parts; /* keys that differ from the policy's own; NULL: none. Borrowed */
    const char *until;    /* NULL: through timing */
    json_t *reward;       /* a reward's specification, or NULL; borrowed */
    int step; /* of the run that the working directory is, as the dashboard draws it; 0: it is a run of its own */
    const char *journal;
    const struct round_source *source; /* NULL: the endpoint */
};

/* The result of one task. */
struct round_result {
    const struct task *task;
    json_t *
        answers; /* array; each {"text", …, "turn", "sample", "verdict": the submission without raw samples}; NULL: failed */
    char *failure; /* why there are none; NULL otherwise */
};

struct round_totals {
    size_t sampled, judged, duplicates, failed,
        resumed;                           /* resumed: tasks that the journal had finished already */
    double seconds, sampling_s, judging_s; /* wall; the two parts summed over tasks */
};

/*
 * Run it. results: one for each task, in order; round_free() frees them. Progress goes to stderr. 0 also when tasks
 * failed (results has them); ERR_UNAVAILABLE when interrupted (the journal has the completed part); ERR_INPUT when the
 * journal is of another run (other prompt, model, tasks' references or numbers); else the error of the journal's file.
 */
int round_run(const struct trainer *t, const struct round_options *options, const struct task_set *set,
              struct round_result **results, struct round_totals *totals, struct error *err);
void round_free(struct round_result *results, size_t n);

/*
 * Report on stderr how many of them failed, and why the first did. TRAINER_FAILED if all did: results computed from
 * them are meaningless. Otherwise TRAINER_OK.
 */
enum trainer_exit round_tell_failures(const struct round_result *results, size_t n);

/* Is this answer's verdict correct ("full" passed, nothing failed)? */
bool answer_is_correct(json_t *answer);
/* Append the code in it, nothing where there is none. 0 or ERR_NOMEM. */
int answer_code(json_t *answer, const struct task *task, struct buffer *out);
/* Was it cancelled before it had a verdict? */
bool answer_is_cancelled(json_t *answer);
/* Is it of its task's last turn? An earlier one was answered with feedback, and is not a sample of its own. */
bool answer_is_last(json_t *answers, json_t *answer);
/* Its reward, or NAN. */
double answer_reward(json_t *answer);

#endif
