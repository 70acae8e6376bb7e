#include "client/trainer/options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainer/round.h"
#include "client/trainer/trainer.h"
#include "common/auto.h"
#include "common/reward.h"

double
option_number(struct argp_state *state, const char *name, const char *text, double low, double high)
{
    char *end;
    double x = strtod(text, &end);
    if (end == text || *end || !(x >= low && x <= high))
        argp_error(state, "%s takes a number from %g to %g, not \"%s\"", name, low, high, text);
    return x;
}

int
option_int(struct argp_state *state, const char *name, const char *text, int low, int high)
{
    double x = option_number(state, name, text, low, high);
    if (x != floor(x))
        argp_error(state, "%s takes a whole number, not \"%s\"", name, text);
    return (int)x;
}

int
trainer_failed(const struct error *err)
{
    switch (err->code) {
    case ERR_UNAVAILABLE:
    case ERR_TIMEOUT:
        return trainer_complain(trainer_is_stopping() ? TRAINER_INTERRUPTED : TRAINER_SERVICE, "%s",
                                err->text);
    default:
        return trainer_complain(TRAINER_CONFIG, "%s", err->text);
    }
}

/* --- tasks --- */

static error_t
parse_tasks(int key, char *arg, struct argp_state *state)
{
    struct task_options *o = state->input;
    switch (key) {
    case 't':
        o->path = arg;
        return 0;
    case 'l':
        o->level = option_int(state, "--level", arg, 0, 4);
        return 0;
    case 'm':
        o->most = option_int(state, "--max-tasks", arg, 0, 1000000);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option task_option_table[] = {
    { "tasks", 't', "PATH", 0,
      "The tasks: a KernelBench checkout, a directory of modules, a .py, JSON or JSON Lines", 0 },
    { "level", 'l', "N", 0, "Only tasks of this level; 0: all", 0 },
    { "max-tasks", 'm', "N", 0, "So many at most, drawn by --seed; 0: all", 0 },
    { 0 },
};
const struct argp task_options_argp = { task_option_table, parse_tasks, NULL, NULL, NULL, NULL, NULL };

int
task_options_load(const struct task_options *o, uint64_t seed, struct task_set *set, struct error *err)
{
    if (!o->path)
        return error_set(err, ERR_INPUT, "which tasks? --tasks PATH");
    int rc = tasks_load(o->path, o->level, set, err);
    if (rc == 0 && o->most > 0)
        tasks_draw(set, (size_t)o->most, seed);
    return rc;
}

/* --- a round --- */

enum { OPT_POLICY = 640, OPT_UNTIL, OPT_TURNS };

/* A kind's name, or a specification as JSON. */
static void
read_reward(json_t *into, const char *text, struct argp_state *state)
{
    struct reward_spec spec;
    struct json_fault fault;
    AUTO_JSON json_t *given =
        text[0] == '{' ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : json_pack("{s:s}", "kind", text);

    if (!given)
        argp_error(state, "--reward: \"%s\" is no JSON", text);
    else if (reward_spec_read(given, "", &spec, &fault) != 0)
        argp_error(state, "--reward%s: %s", fault.pointer, fault.text);
    else
        json_object_update(into, given);
}

static error_t
parse_round(int key, char *arg, struct argp_state *state)
{
    struct round_options *o = state->input;
    switch (key) {
    case 'n':
        o->samples = option_int(state, "--samples", arg, 1, 256);
        return 0;
    case OPT_TURNS:
        o->turns = option_int(state, "--turns", arg, 1, 16);
        return 0;
    case OPT_POLICY:
        o->policy = arg;
        return 0;
    case OPT_UNTIL:
        o->until = arg;
        return 0;
    case 'r':
        read_reward(o->reward, arg, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option round_option_table[] = {
    { "samples", 'n', "N", 0, "Answers for each task", 0 },
    { "turns", OPT_TURNS, "T", 0,
      "Give verifierd's feedback back to the model, T - 1 times (default 1: never)", 0 },
    { "policy", OPT_POLICY, "NAME", 0,
      "strict, hybrid or kernelbench (default: strict at level 1, hybrid above)", 0 },
    { "until", OPT_UNTIL, "STAGE", 0, "Stop judging after this stage", 0 },
    { "reward", 'r', "KIND|JSON", 0, "The reward (default staged)", 0 },
    { 0 },
};
const struct argp round_options_argp = { round_option_table, parse_round, NULL, NULL, NULL, NULL, NULL };
