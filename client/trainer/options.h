/* options.h - options that several commands share, and how a bad value ends the program. */
#ifndef TRAINER_OPTIONS_H
#define TRAINER_OPTIONS_H

#include <argp.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "client/trainer/tasks.h"

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

/* The value of an option, or argp_error(). */
int option_int(struct argp_state *state, const char *name, const char *text, int low, int high);
double option_number(struct argp_state *state, const char *name, const char *text, double low, double high);
/* One of the words of list, which are between commas; ends the program with 2 before anything is asked of a service. */
const char *option_word(struct argp_state *state, const char *name, const char *text, const char *list);
/* A policy, as policy_parse() reads it: text, once it can be read. */
const char *option_policy(struct argp_state *state, const char *name, const char *text);
/* A run's name: a part of a file's name, and so without a slash. */
const char *option_name(struct argp_state *state, const char *name, const char *text);
#define OPTION_POLICIES "strict,hybrid,kernelbench"
#define OPTION_STAGES "ast,compile,tiny,full,timing"
/* A reward's kind, or its specification as JSON: put into `into`. */
void option_reward(struct argp_state *state, const char *name, const char *text, json_t *into);

/* Explain an error on stderr: the exit status for it. */
int trainer_failed(const struct error *err);

#endif
