/* options.h - options that several commands share, and how a bad value ends the program. */
#ifndef TRAINER_OPTIONS_H
#define TRAINER_OPTIONS_H

#include <argp.h>
#include <stdint.h>

#include <jansson.h>

#include "client/trainer/tasks.h"
#include "common/take.h"

/* --tasks, --level, --max-tasks. The command's own defaults are put in first. */
struct task_options {
    const char *path;
    int level, most; /* 0: all */
};
extern const struct argp task_options_argp; /* its input: a struct task_options */
/* Load and draw. ERR_INPUT: no --tasks. */
int task_options_load(const struct task_options *o, uint64_t seed, struct task_set *set, struct error *err);

/*
 * --samples, --turns, --policy, --until, --reward: its input is a struct round_options, whose reward is an object to
 * fill.
 */
extern const struct argp round_options_argp;

/* Values of TAKE_CALL(): each ends the program with 2 before anything is asked of a service. */
take_cb option_policy; /* const char **: as policy_parse() reads it */
take_cb option_until;  /* const char **: a stage */
take_cb option_name;   /* const char **: a run's; a part of a file's name, and so without a slash */
take_cb option_reward; /* json_t *, an object to fill: a kind, or a specification as JSON */
/* Each word of list, between commas, has to be one of all; *(const char **)out is list then. */
void option_some(struct argp_state *state, const char *name, const char *list, const char *all, void *out);

/* Explain an error on stderr: the exit status for it. */
int trainer_failed(const struct error *err);

#endif
