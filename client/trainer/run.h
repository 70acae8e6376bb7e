/*
 * run.h - one run of `trainer run`: what its file says, where it works, its steps, and which of them are finished.
 * run.c is the command. A run is planned (run_plan), and then checked (run_check), estimated (run_estimate), or gone through step
 * by step (run_step) with the copies and the watch beside it (run_along); run_files and run_state say what is there already.
 */
#ifndef TRAINER_RUN_H
#define TRAINER_RUN_H

#include <limits.h>
#include <stdbool.h>

#include <jansson.h>

#include "client/trainer/output.h"
#include "client/trainer/serving.h"
#include "client/trainer/trainer.h"

struct run {
    struct trainer *trainer;
    const char *file, *stage; /* the configuration's absolute path; "all", or the only stage wanted */
    int max_samples;          /* -1: as the file says */
    bool is_dry, is_estimate, is_check;
    json_t *conf;           /* runconf_read()'s */
    json_t *steps, *state;  /* run_plan()'s; what run.json holds */
    char workdir[PATH_MAX]; /* absolute, once there is one */
    char state_path[OUTPUT_PATH_MAX], log_path[PATH_MAX + 32], serving_log[OUTPUT_PATH_MAX];
    char program[PATH_MAX]; /* this one's path */
    struct serving serving;
    struct run_along *along; /* what is beside the steps; NULL: nothing yet */
};

/* A line on stderr and, unless nothing is run, in training.log. */
void run_say(const struct run *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A text of the configuration; borrowed. */
const char *run_text(const struct run *r, const char *section, const char *key);
/* The interpreter that has the package `finetune`'s libraries: the file's, else TRAINER_PYTHON's, else python3; borrowed. */
const char *run_python(const struct run *r);
/* Run it with argv, whose first place is free, and wait: its exit status. */
int run_python_wait(const struct run *r, const char **argv);

#endif
