#include "client/trainer/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainer/curriculum.h"
#include "client/trainer/options.h"
#include "client/trainer/output.h"
#include "client/trainer/prompt.h"
#include "common/auto.h"
#include "common/hash.h"

enum { OPT_CURRICULUM = 704, OPT_MIX, OPT_HELD_OUT };

/* "--curriculum adarft": argp does not pass the next word to an option whose argument is optional. */
static void
take_kind(struct argp_state *state, const char *name, char *arg, void *out)
{
    struct plan_options *o = out;
    enum curriculum_kind kind;
    struct error err;

    if (!arg && state->next < state->argc && state->argv[state->next][0] != '-')
        arg = state->argv[state->next++];
    o->kind = arg ? arg : curriculum_name(CURRICULUM_STEPPED);
    if (curriculum_kind_of(o->kind, &kind, &err) != 0)
        argp_error(state, "%s: %s", name, err.text);
}

static void
take_mix(struct argp_state *state, const char *name, char *arg, void *out)
{
    *(int *)out = (int)lround(100 * take_number(state, name, arg, "", 0, 1));
}

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct plan_options *o = state->input;
    const struct take rows[] = {
        TAKE_CALL(OPT_CURRICULUM, take_kind, o),
        TAKE_CALL(OPT_MIX, take_mix, &o->percent),
        TAKE_FLAG(OPT_MIX, &o->has_mix),
        TAKE_TEXT(OPT_HELD_OUT, &o->held_out),
    };

    if (key == ARGP_KEY_END && !o->kind && (o->has_mix || o->held_out))
        argp_error(state, "--%s is a curriculum's: give --curriculum, too", o->has_mix ? "mix" : "held-out");
    return take(rows, ARRAY_LEN(rows), key, arg, state);
}

static const struct argp_option table[] = {
    { "curriculum", OPT_CURRICULUM, "KIND", OPTION_ARG_OPTIONAL,
      "stepped (default), seed, fixed, adarft or frontier draws the tasks, in place of --level", 0 },
    { "mix", OPT_MIX, "P", 0, "Share of level 2 with --curriculum=fixed (default 0.5)", 0 },
    { "held-out", OPT_HELD_OUT, "FILE", 0,
      "An evaluation of the model on tasks that are not trained on: what moves --curriculum=stepped, and "
      "seed",
      0 },
    { 0 },
};
const struct argp plan_options_argp = { table, parse, NULL, NULL, NULL, NULL, NULL };

/* --- the state --- */

struct plan {
    char path[OUTPUT_PATH_MAX];
    struct curriculum curriculum;
    json_t *
        state; /* {"curriculum", "rounds", "round": {"name", "tasks", "is_learned"}, "held_out", "moved_by"} */
};

static void
plan_release(struct plan *p)
{
    curriculum_release(&p->curriculum);
    json_decref(p->state);
}

static int
plan_read(struct plan *p, const struct plan_options *o, const char *workdir, struct error *err)
{
    enum curriculum_kind kind;
    json_error_t why;
    int rc = curriculum_kind_of(o->kind, &kind, err);

    *p = (struct plan){ .state = NULL };
    rc = rc == 0 ? output_path(workdir, "checkpoints", "curriculum.json", p->path, err) : rc;
    if (rc != 0)
        return rc;
    curriculum_init(&p->curriculum, kind, o->percent);
    if (access(p->path, F_OK) != 0) {
        p->state = json_pack("{s:i}", "rounds", 0);
        return p->state ? 0 : error_set(err, ERR_NOMEM, "out of memory");
    }
    p->state = json_load_file(p->path, 0, &why);
    if (!p->state)
        return error_set(err, ERR_INPUT, "%s, line %d: %s", p->path, why.line, why.text);
    rc = curriculum_read(&p->curriculum, json_object_get(p->state, "curriculum"), err);
    if (rc != 0)
        error_prefix(err, "%s", p->path);
    return rc;
}

static int
plan_write(struct plan *p, struct error *err)
{
    json_object_set_new(p->state, "curriculum", curriculum_json(&p->curriculum));
    return output_document(p->path, p->state, err);
}

/* --- measurements on held-out tasks --- */

static bool
is_in(const struct task_set *set, const char *name)
{
    for (size_t i = 0; name && i < set->n; i++)
        if (strcmp(set->tasks[i].name, name) == 0)
            return true;
    return false;
}

static int
count_held_out(struct plan *p, const char *path, const struct task_set *set, struct error *err)
{
    char digest[HASH_TEXT_SIZE], prompt[HASH_TEXT_SIZE], with_sizes[HASH_TEXT_SIZE];
    json_error_t why;
    json_t *row;
    size_t i;
    AUTO_JSON json_t *report = json_load_file(path, 0, &why);

    if (!report)
        return error_set(err, ERR_INPUT, "%s: %s", path, why.text);
    AUTO_FREE char *text = json_dumps(report, JSON_SORT_KEYS);
    hash_text(text ? text : "", text ? strlen(text) : 0, digest);
    const char *before = json_string_value(json_object_get(p->state, "held_out"));
    if (before && strcmp(before, digest) == 0)
        return error_set(err, ERR_INPUT,
                         "%s was counted in the round before: evaluate the model that there is now", path);
    prompt_digest(NULL, prompt);
    prompt_digest("shapes=require", with_sizes);
    const char *with = json_string_value(json_object_get(report, "prompt"));
    if (with && strcmp(with, prompt) != 0 && strcmp(with, with_sizes) != 0)
        return error_set(err, ERR_INPUT, "%.120s was made with another prompt (%.19s, not %.19s)", path, with,
                         prompt);
    json_t *level = json_object_get(json_object_get(report, "levels"), "1");
    json_t *correct = json_object_get(level, "correct_rate");
    if (!json_is_number(correct))
        return error_set(err, ERR_INPUT, "%s has no rate of correct answers at level 1", path);
    json_array_foreach(json_object_get(report, "detailed_results"), i, row)
    {
        const char *task = json_string_value(json_object_get(row, "id"));
        if (is_in(set, task))
            return error_set(err, ERR_INPUT, "the task %.80s of %.120s is trained on: that is not held out",
                             task, path);
    }
    curriculum_held_out(&p->curriculum, json_number_value(correct) / 100);
    json_object_set_new(p->state, "held_out", json_string(digest));
    return 0;
}

/* --- the draw --- */

static int
draw_again(json_t *names, struct task_set *set, bool *is_drawn, struct error *err)
{
    json_t *name;
    size_t i;
    json_array_foreach(names, i, name)
    {
        bool has = false;
        for (size_t k = 0; k < set->n; k++) {
            bool is_it = json_is_string(name) && strcmp(set->tasks[k].name, json_string_value(name)) == 0;
            is_drawn[k] = is_drawn[k] || is_it;
            has = has || is_it;
        }
        if (!has)
            return error_set(err, ERR_INPUT,
                             "the round was begun with the task %.100s, which is not there now",
                             json_is_string(name) ? json_string_value(name) : "?");
    }
    return 0;
}

static int
draw_new(struct plan *p, const char *name, size_t n, uint64_t seed, struct task_set *set, bool *is_drawn,
         struct error *err)
{
    const struct curriculum *c = &p->curriculum;
    json_int_t rounds = json_integer_value(json_object_get(p->state, "rounds"));
    json_t *names = json_array();

    for (size_t i = 0; c->kind == CURRICULUM_ADARFT && i < set->n; i++)
        if (set->tasks[i].level == 0)
            return error_set(err, ERR_INPUT, "the task %.100s has no level, which adarft goes by",
                             set->tasks[i].name);
    size_t drawn = curriculum_draw(c, set, n, seed + 1000003u * (uint64_t)rounds, is_drawn);
    if (drawn == 0)
        return error_set(err, ERR_INPUT, "no task is of level 1 or 2");
    if (drawn < n)
        fprintf(stderr, "trainer: %zu tasks are drawn, not %zu: a level has no more\n", drawn, n);
    for (size_t i = 0; i < set->n; i++)
        if (is_drawn[i])
            json_array_append_new(names, json_string(set->tasks[i].name));
    json_object_set_new(p->state, "rounds", json_integer(rounds + 1));
    json_object_set_new(p->state, "round",
                        json_pack("{s:s, s:o, s:b}", "name", name, "tasks", names, "is_learned", 0));
    return plan_write(p, err);
}

int
plan_draw(const struct plan_options *o, const char *workdir, const char *name, size_t n, uint64_t seed,
          struct task_set *set, struct error *err)
{
    struct plan p;
    AUTO_FREE bool *is_drawn = calloc(set->n + 1, sizeof(*is_drawn));
    if (!is_drawn)
        return error_set(err, ERR_NOMEM, "out of memory");
    int rc = plan_read(&p, o, workdir, err);
    json_t *round = rc == 0 ? json_object_get(p.state, "round") : NULL;
    const char *last = json_string_value(json_object_get(round, "name"));
    if (rc == 0 && last && strcmp(last, name) == 0) {
        rc = draw_again(json_object_get(round, "tasks"), set, is_drawn, err);
    } else if (rc == 0) {
        rc = o->held_out ? count_held_out(&p, o->held_out, set, err) : 0;
        if (!o->held_out && p.curriculum.kind == CURRICULUM_STEPPED)
            fprintf(stderr, "trainer: no --held-out: the share of level 2 stays at %d %%\n",
                    p.curriculum.percent);
        rc = rc == 0 ? draw_new(&p, name, n, seed, set, is_drawn, err) : rc;
    }
    if (rc == 0)
        tasks_keep(set, is_drawn);
    plan_release(&p);
    return rc;
}

/* The share of a round's judged answers to tasks of level 1 that are correct; NAN: there are none. */
static double
level_one_correct(const struct round_result *results, size_t n)
{
    double judged = 0, correct = 0;
    for (size_t i = 0; i < n; i++) {
        size_t k;
        json_t *answer;
        json_array_foreach(results[i].answers, k, answer)
        {
            if (results[i].task->level != 1 || isnan(answer_reward(answer)))
                continue;
            judged++;
            correct += answer_is_correct(answer);
        }
    }
    return judged > 0 ? correct / judged : NAN;
}

/*
 * "seed" uses the round's own answers if nothing held out was evaluated before it, and reports which of both it used.
 */
static void
learn_level_one(struct plan *p, const struct plan_options *o, const struct round_result *results, size_t n)
{
    const double correct = level_one_correct(results, n);
    if (p->curriculum.kind != CURRICULUM_SEED)
        return;
    if (!o->held_out && isfinite(correct))
        curriculum_trained(&p->curriculum, correct);
    json_object_set_new(p->state, "moved_by", json_string(o->held_out ? "held_out" : "training"));
    if (o->held_out)
        fprintf(stderr, "trainer: curriculum seed: by --held-out the share of level 2 is %d %%\n",
                p->curriculum.percent);
    else if (isfinite(correct))
        fprintf(stderr,
                "trainer: curriculum seed: no --held-out; by the round's own answers, %.0f %% of those at "
                "level 1 "
                "correct, the share of level 2 is %d %%\n",
                100 * correct, p->curriculum.percent);
    else
        fprintf(stderr,
                "trainer: curriculum seed: no --held-out, and no answer at level 1 was judged: the share of "
                "level 2 "
                "stays at %d %%\n",
                p->curriculum.percent);
}

int
plan_learn(const struct plan_options *o, const char *workdir, const struct round_result *results, size_t n,
           struct error *err)
{
    struct plan p;
    double sum = 0;
    int rewarded = 0, rc = plan_read(&p, o, workdir, err);
    json_t *round = rc == 0 ? json_object_get(p.state, "round") : NULL;

    if (rc != 0 || json_is_true(json_object_get(round, "is_learned"))) {
        plan_release(&p);
        return rc;
    }
    for (size_t i = 0; i < n; i++) {
        int tries = 0, passes = 0;
        size_t k;
        json_t *answer;
        json_array_foreach(results[i].answers, k, answer)
        {
            if (isnan(answer_reward(answer))) /* not the model's fault, and not its merit */
                continue;
            sum += answer_reward(answer);
            rewarded++;
            tries++;
            passes += answer_is_correct(answer);
        }
        if (tries > 0)
            curriculum_tried(&p.curriculum, results[i].task->name, tries, passes);
    }
    learn_level_one(&p, o, results, n);
    curriculum_rewarded(&p.curriculum, rewarded ? sum / rewarded : NAN);
    json_object_set_new(round, "is_learned", json_true());
    rc = plan_write(&p, err);
    plan_release(&p);
    return rc;
}
