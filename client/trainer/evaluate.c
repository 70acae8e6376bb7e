/*
 * trainer evaluate: the results of a model on a set of tasks.
 *
 * Answers come from an endpoint or from a directory in KernelBench's layout. Each further judging of the same answers
 * (another policy, one input instead of five) is a separate round, whose source is the first one's answers.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainer/checkpoint.h"
#include "client/trainer/endpoint.h"
#include "client/trainer/metrics.h"
#include "client/trainer/options.h"
#include "client/trainer/output.h"
#include "client/trainer/prompt.h"
#include "client/trainer/runs.h"
#include "common/auto.h"
#include "common/buffer.h"
#include "common/clock.h"
#include "common/json.h"
#include "common/program.h"

struct evaluate {
    struct trainer *trainer;
    struct task_options tasks;
    struct round_options round;
    const char *name, *runs_path, *model_path, *python, *columns;
    bool ablates;
    /* state of the evaluation */
    struct checkpoint *checkpoint;
    struct runs *runs;
    struct round_source source;
    struct task_set set;
    struct round_result *results;
    struct round_totals totals;
};

enum { OPT_NAME = 512, OPT_RUNS, OPT_COLUMNS, OPT_ABLATE, OPT_MODEL_PATH, OPT_PYTHON };
static const char all_policies[] = "strict,hybrid,kernelbench";

static const struct argp_option options[] = {
    { "name", OPT_NAME, "NAME", 0,
      "Of the evaluation: outputs/eval_NAME.json in the working directory (default: the model's)", 0 },
    { "model-path", OPT_MODEL_PATH, "DIR", 0,
      "Evaluate the checkpoint in this directory: an adapter, whose base its configuration or --model names, "
      "or a whole "
      "model. It is loaded by --python, and no endpoint is asked",
      0 },
    { "python", OPT_PYTHON, "PROGRAM", 0,
      "The interpreter that has torch, transformers and peft (or TRAINER_PYTHON; default python3)", 0 },
    { "runs", OPT_RUNS, "DIR", 0,
      "Judge the kernels of this directory, level_L_problem_P_sample_S_kernel.py as KernelBench names them; "
      "no "
      "endpoint is asked, and all tasks of its levels count unless --level and --max-tasks say otherwise",
      0 },
    { "columns", OPT_COLUMNS, "LIST", OPTION_ARG_OPTIONAL,
      "Judge the same answers under each of these policies, too (default strict,hybrid,kernelbench)", 0 },
    { "ablate", OPT_ABLATE, NULL, 0,
      "Judge the same answers on one input and on five, with the funnel on and off, and with timing on and "
      "off; print how many "
      "each accepts, what they earn and how long it takes, and which of them five inputs refuse",
      0 },
    { 0 },
};

static void
take_columns(struct argp_state *state, const char *name, char *arg, void *out)
{
    option_some(state, name, arg ? arg : all_policies, all_policies, out);
}

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct evaluate *e = state->input;
    const struct take rows[] = {
        TAKE_INPUT(e->trainer),
        TAKE_INPUT(&e->tasks),
        TAKE_INPUT(&e->round),
        TAKE_CALL(OPT_NAME, option_name, &e->name),
        TAKE_TEXT(OPT_RUNS, &e->runs_path),
        TAKE_TEXT(OPT_MODEL_PATH, &e->model_path),
        TAKE_TEXT(OPT_PYTHON, &e->python),
        TAKE_CALL(OPT_COLUMNS, take_columns, &e->columns),
        TAKE_FLAG(OPT_ABLATE, &e->ablates),
    };

    if (key == ARGP_KEY_END && e->model_path && e->runs_path)
        argp_error(state, "--model-path and --runs are two sources of answers: give one");
    return take(rows, ARRAY_LEN(rows), key, arg, state);
}

static const struct argp_child children[] = {
    { &trainer_sampling_argp, 0, NULL, -1 },
    { &task_options_argp, 0, NULL, -2 },
    { &round_options_argp, 0, NULL, -2 },
    { 0 },
};
static const struct argp argp = { options,  parse, NULL, "Evaluate a model on a set of tasks.",
                                  children, NULL,  NULL };

/* One row for each sample. */
static json_t *
details_json(const struct round_result *results, size_t n)
{
    static const char *const copied[] = { "stage",     "class",      "reward", "passed_stage",
                                          "failed_at", "components", "policy", "id" };
    json_t *out = json_array();
    for (size_t i = 0; i < n; i++) {
        size_t a;
        json_t *answer;
        if (results[i].failure)
            json_array_append_new(out, json_pack("{s:s, s:i, s:s}", "id", results[i].task->name, "level",
                                                 results[i].task->level, "failure", results[i].failure));
        json_array_foreach(results[i].answers, a, answer)
        {
            json_t *verdict = json_object_get(answer, "verdict");
            json_t *row =
                json_pack("{s:s, s:i, s:i, s:O, s:O, s:O*}", "id", results[i].task->name, "level",
                          results[i].task->level, "problem_id", results[i].task->problem, "sample",
                          json_object_get(answer, "sample"), "turn", json_object_get(answer, "turn"),
                          "finish_reason", json_object_get(answer, "finish_reason"));
            for (size_t c = 0; c < ARRAY_LEN(copied) - 1; c++)
                json_object_set(row, copied[c], json_object_get(verdict, copied[c]));
            json_object_set(row, "submission", json_object_get(verdict, "id"));
            json_array_append_new(out, row);
        }
    }
    return out;
}

/* Was code found in any of the answers that could be judged? True where none could: that is another fault. */
static bool
has_extracted(const struct evaluate *e)
{
    size_t judged = 0, k;
    json_t *answer;
    for (size_t i = 0; i < e->set.n; i++)
        json_array_foreach(e->results[i].answers, k, answer)
        {
            json_t *verdict = json_object_get(answer, "verdict");
            json_t *found = json_object_get(json_object_get(verdict, "components"), "extracted");
            if (isnan(answer_reward(answer)))
                continue;
            judged++;
            if (json_number_value(found) == 1)
                return true;
        }
    return judged == 0;
}

/* {"1": the figures of level 1, ...} */
static json_t *
levels_json(const struct task_set *set, const struct round_result *results)
{
    json_t *levels = json_object();
    for (int level = 1; level <= 4; level++) {
        char name[8];
        bool has = false;
        for (size_t i = 0; i < set->n; i++)
            has = has || set->tasks[i].level == level;
        snprintf(name, sizeof(name), "%d", level);
        if (has)
            json_object_set_new(levels, name, metrics_json(results, set->n, level));
    }
    return levels;
}

static json_t *
report_json(const struct evaluate *e)
{
    char prompt[HASH_TEXT_SIZE], at[CLOCK_TEXT_SIZE];
    const char *source = e->runs ? "runs" : e->checkpoint ? "checkpoint" : "endpoint";
    const char *path = e->runs ? e->runs_path : e->checkpoint ? e->model_path : e->trainer->model;

    prompt_digest(e->round.policy, prompt);
    clock_text(clock_wall_ms(), at);
    json_t *sampling = e->runs ? json_incref(e->source.provenance) : endpoint_provenance(e->trainer);
    return json_pack("{s:s, s:s?, s:s, s:o, s:s?, s:s, s:s?, s:i, s:i, s:b, s:f, s:o, s:o, s:o}", "name",
                     e->name, "model_path", path, "source", source, "sampling", sampling, "prompt",
                     e->runs ? NULL : prompt, "created", at, "policy", e->round.policy, "num_tasks",
                     (int)e->set.n, "failed_tasks", (int)e->totals.failed, "unextracted", !has_extracted(e),
                     "seconds", e->totals.seconds, "metrics", metrics_json(e->results, e->set.n, 0), "levels",
                     levels_json(&e->set, e->results), "detailed_results",
                     details_json(e->results, e->set.n));
}

/* --- the same answers, judged otherwise --- */

static int
again_cb(void *arg, const struct task *task, json_t *messages, int n, uint64_t seed, json_t **answers,
         struct error *err)
{
    const struct evaluate *e = arg;
    json_t *answer;
    size_t k;

    (void)messages;
    (void)n;
    (void)seed;
    *answers = NULL;
    for (size_t i = 0; i < e->set.n; i++) {
        if (strcmp(e->set.tasks[i].name, task->name) != 0)
            continue;
        if (e->results[i].failure)
            return error_set(err, ERR_INPUT, "%s", e->results[i].failure);
        *answers = json_array();
        json_array_foreach(e->results[i].answers, k, answer)
        {
            if (!answer_is_last(e->results[i].answers, answer))
                continue;
            json_t *copy = json_copy(answer);
            json_object_del(copy, "verdict");
            json_array_append_new(*answers, copy);
        }
        return 0;
    }
    return error_set(err, ERR_INPUT, "there is no such task");
}

/* Which answers they are, for the journal. */
static json_t *
again_provenance(const struct evaluate *e)
{
    char digest[HASH_TEXT_SIZE];
    AUTO_BUFFER struct buffer all = BUFFER_INIT;
    json_t *answer;
    size_t k;

    for (size_t i = 0; i < e->set.n; i++) {
        json_array_foreach(e->results[i].answers, k, answer)
        {
            AUTO_BUFFER struct buffer code = BUFFER_INIT;
            if (answer_code(answer, e->results[i].task, &code) != 0)
                return NULL;
            hash_text(code.data, code.size, digest);
            buffer_printf(&all, "%zu %zu %s\n", i, k, digest);
        }
    }
    hash_text(all.data ? all.data : "", all.size, digest);
    return json_pack("{s:s, s:s}", "answers_of", e->name, "digest", digest);
}

/* Judge all answers again; *results is given. */
static int
judge_again(struct evaluate *e, const char *column, const char *policy, json_t *parts, const char *until,
            struct round_result **results, struct error *err)
{
    char file[256], journal[OUTPUT_PATH_MAX];
    AUTO_JSON json_t *provenance = again_provenance(e);
    const struct round_source source = { again_cb, e, provenance };
    struct round_options o = e->round;
    struct round_totals totals;

    o.policy = policy;
    o.policy_parts = parts;
    o.source = &source;
    o.turns = 1;
    o.journal = journal;
    o.until = until;
    fprintf(stderr, "the same answers: %s\n", column);
    snprintf(file, sizeof(file), "eval_%.180s.%.40s.journal.jsonl", e->name, column);
    int rc = output_path(e->trainer->workdir, "outputs", file, journal, err);
    return rc == 0 ? round_run(e->trainer, &o, &e->set, results, &totals, err) : rc;
}

/* {"strict": {"metrics", "levels"}, ...} */
static int
add_columns(struct evaluate *e, json_t *report, struct error *err)
{
    json_t *columns = json_object();
    int rc = 0;

    json_object_set_new(report, "columns", columns);
    for (const char *at = e->columns; rc == 0 && at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        char policy[32];
        struct round_result *results = NULL;
        snprintf(policy, sizeof(policy), "%.*s", (int)strcspn(at, ","), at);
        rc = judge_again(e, policy, policy, NULL, e->round.until, &results, err);
        if (rc == 0)
            json_object_set_new(columns, policy,
                                json_pack("{s:o, s:o}", "metrics", metrics_json(results, e->set.n, 0),
                                          "levels", levels_json(&e->set, results)));
        round_free(results, e->set.n);
    }
    return rc;
}

/* Settings that show the effect of optional features: the same answers are judged under each. */
enum { ONE_INPUT, FIVE_INPUTS, ALL_ON, FUNNEL_OFF, N_SETTINGS };
static const struct {
    const char *name, *parts, *until; /* until NULL: through timing */
} settings[N_SETTINGS] = {
    [ONE_INPUT] = { "one_input", "{\"variations\": {\"count\": 1, \"value\": false}}", "full" },
    [FIVE_INPUTS] = { "five_inputs", "{\"variations\": {\"count\": 5}}", "full" },
    [ALL_ON] = { "all_on", "{\"staged\": true, \"tiny_first\": true, \"skip_timing_on_failure\": true}",
                 NULL },
    [FUNNEL_OFF] = { "funnel_off",
                     "{\"staged\": false, \"tiny_first\": false, \"skip_timing_on_failure\": false}", NULL },
};
/* Two settings that differ in one feature alone. */
static const struct {
    const char *feature, *off_means, *on_means;
    int off, on;
} features[] = {
    { "inputs", "one", "five", ONE_INPUT, FIVE_INPUTS },
    { "timing", "off", "on", FIVE_INPUTS, ALL_ON },
    { "funnel", "off", "on", FUNNEL_OFF, ALL_ON },
};

/* Seconds that its stages ran, wherever the verdict came from. */
static double
judging_s(json_t *answer)
{
    json_t *stage;
    double ms = 0;
    size_t i;

    json_array_foreach(json_object_get(json_object_get(answer, "verdict"), "stages"), i, stage) ms +=
        json_number_value(json_object_get(stage, "run_ms"));
    return ms / 1000;
}

/* {"answers", "correct", "reward", "judging_s"} of the answers that every setting judged. */
static json_t *
setting_json(const struct evaluate *e, struct round_result *const *all, int which)
{
    int n = 0, correct = 0;
    double reward = 0, seconds = 0;

    for (size_t i = 0; i < e->set.n; i++) {
        for (size_t k = 0; k < json_array_size(all[0][i].answers); k++) {
            bool is_judged = true;
            for (int s = 0; s < N_SETTINGS; s++)
                is_judged = is_judged && !isnan(answer_reward(json_array_get(all[s][i].answers, k)));
            json_t *answer = json_array_get(all[which][i].answers, k);
            if (!is_judged)
                continue;
            n++;
            correct += answer_is_correct(answer);
            reward += answer_reward(answer);
            seconds += judging_s(answer);
        }
    }
    return json_pack("{s:i, s:i, s:o, s:f}", "answers", n, "correct", correct, "reward",
                     n ? json_real(reward / n) : json_null(), "judging_s", seconds);
}

/*
 * How many answers each number of inputs accepts, and which of them five inputs refuse; and the results of each
 * setting.
 */
static json_t *
ablation_json(const struct evaluate *e, struct round_result *const *all)
{
    const struct round_result *one = all[ONE_INPUT], *five = all[FIVE_INPUTS];
    int n = 0, accepted_one = 0, accepted_five = 0;
    json_t *refused = json_array(), *each = json_object();

    for (size_t i = 0; i < e->set.n; i++) {
        for (size_t k = 0; k < json_array_size(one[i].answers); k++) {
            json_t *a = json_array_get(one[i].answers, k), *b = json_array_get(five[i].answers, k);
            json_t *verdict = json_object_get(b, "verdict");
            bool by_one = answer_is_correct(a), by_five = answer_is_correct(b);
            const char *class_ = json_string_value(json_object_get(verdict, "class"));
            if (isnan(answer_reward(a)) || isnan(answer_reward(b)))
                continue; /* not judged: no information on either */
            n++;
            accepted_one += by_one;
            accepted_five += by_five;
            if (by_one && !by_five)
                json_array_append_new(refused, json_pack("{s:s, s:i, s:s?, s:O?}", "id", e->set.tasks[i].name,
                                                         "sample", (int)k, "class", class_, "submission",
                                                         json_object_get(verdict, "id")));
        }
    }
    for (int s = 0; s < N_SETTINGS; s++)
        json_object_set_new(each, settings[s].name, setting_json(e, all, s));
    return json_pack("{s:i, s:i, s:i, s:o, s:o}", "answers", n, "correct_on_one_input", accepted_one,
                     "correct_on_five_inputs", accepted_five, "refused_by_five", refused, "settings", each);
}

static int
add_ablation(struct evaluate *e, json_t *report, struct error *err)
{
    struct round_result *all[N_SETTINGS] = { NULL };
    int rc = 0;

    for (int s = 0; s < N_SETTINGS && rc == 0; s++) {
        AUTO_JSON json_t *parts = json_loads(settings[s].parts, 0, NULL);
        const char *until = settings[s].until ? settings[s].until : e->round.until;
        rc = judge_again(e, settings[s].name, e->round.policy, parts, until, &all[s], err);
    }
    if (rc == 0)
        json_object_set_new(report, "ablation", ablation_json(e, all));
    for (int s = 0; s < N_SETTINGS; s++)
        round_free(all[s], e->set.n);
    return rc;
}

/* --- for people --- */

static void
print_row(const char *what, json_t *m)
{
    char fast[16] = "-"; /* of correct answers, none of which was timed */

    if (json_is_number(json_object_get(json_object_get(m, "fast_p"), "1")))
        snprintf(fast, sizeof(fast), "%.1f%%", number_under(m, "fast_p", "1"));
    printf("%-13s %5.0f %8.1f%% %8.1f%% %8.1f%% %8.1f%% %9s %8.1f%%", what,
           number_under(m, "num_tasks", NULL), number_under(m, "extracted_rate", NULL),
           number_under(m, "valid_rate", NULL), number_under(m, "compiled_rate", NULL),
           number_under(m, "correct_rate", NULL), fast, number_under(m, "pass_at", "1"));
    if (json_is_number(json_object_get(m, "speedup_geomean")))
        printf("  %.2f (%.2f to %.2f)\n", number_under(m, "speedup_geomean", NULL),
               number_under(m, "speedup_geomean_lo", NULL), number_under(m, "speedup_geomean_hi", NULL));
    else
        puts("  -");
}

static void
print_table(json_t *report)
{
    const char *level;
    json_t *metrics;
    printf("%-13s %5s %9s %9s %9s %9s %9s %9s  %s\n", "level", "tasks", "extracted", "valid", "compiled",
           "correct", "fast_1", "pass@1", "geometric mean of speed-ups (95 %)");
    json_object_foreach(json_object_get(report, "levels"), level, metrics) print_row(level, metrics);
    print_row("all", json_object_get(report, "metrics"));
}

/* Rates are of all tasks: answers that were not judged are reported separately. */
static void
print_unjudged(json_t *report)
{
    double infra = number_under(report, "metrics", "infra");
    if (infra > 0)
        printf("%.0f answers could not be judged (infra, or cancelled); a task without another counts as not "
               "correct\n",
               infra);
}

static void
print_columns(json_t *report)
{
    const char *policy;
    json_t *column;

    if (!json_object_get(report, "columns"))
        return;
    printf("\nthe same answers under each policy\n");
    json_object_foreach(json_object_get(report, "columns"), policy, column)
    {
        const char *level;
        json_t *metrics;
        json_object_foreach(json_object_get(column, "levels"), level, metrics)
        {
            char what[32];
            snprintf(what, sizeof(what), "%s %s", policy, level);
            print_row(what, metrics);
        }
        print_row(policy, json_object_get(column, "metrics"));
    }
}

static void
print_setting(const char *feature, const char *means, json_t *setting)
{
    printf("%-8s %-5s %8.0f %8.0f", feature, means, number_under(setting, "answers", NULL),
           number_under(setting, "correct", NULL));
    if (json_is_number(json_object_get(setting, "reward")))
        printf(" %8.3f", number_under(setting, "reward", NULL));
    else
        printf(" %8s", "-");
    printf(" %10.2f\n", number_under(setting, "judging_s", NULL));
}

static void
print_features(json_t *ablation)
{
    json_t *each = json_object_get(ablation, "settings");

    printf("\n%-14s %8s %8s %8s %10s\n", "feature", "answers", "correct", "reward", "judging, s");
    for (size_t i = 0; i < ARRAY_LEN(features); i++) {
        print_setting(features[i].feature, features[i].off_means,
                      json_object_get(each, settings[features[i].off].name));
        print_setting(features[i].feature, features[i].on_means,
                      json_object_get(each, settings[features[i].on].name));
    }
}

static void
print_ablation(json_t *report)
{
    json_t *a = json_object_get(report, "ablation"), *row;
    size_t i;

    if (!a)
        return;
    double n = number_under(a, "answers", NULL), one = number_under(a, "correct_on_one_input", NULL),
           five = number_under(a, "correct_on_five_inputs", NULL);
    printf("\n%.0f answers: correct on one input %.0f (%.1f%%), on five %.0f (%.1f%%)\n", n, one,
           n > 0 ? 100 * one / n : 0, five, n > 0 ? 100 * five / n : 0);
    json_array_foreach(json_object_get(a, "refused_by_five"), i, row)
    {
        printf("  %s, sample %.0f: one input accepts it, five do not (%s)\n", text_member(row, "id"),
               number_under(row, "sample", NULL), text_or(row, "class", "?"));
    }
    print_features(a);
}

/* --- the command --- */

/* The tasks: with --runs all of its levels, unless options select some. */
static int
load_tasks(struct evaluate *e, struct error *err)
{
    bool is_level_given = e->tasks.level >= 0;

    if (e->tasks.level < 0)
        e->tasks.level = e->runs ? 0 : 2;
    if (e->tasks.most < 0)
        e->tasks.most = e->runs ? 0 : 20;
    int rc = task_options_load(&e->tasks, e->trainer->seed, &e->set, err);
    if (rc != 0 || !e->runs || is_level_given)
        return rc;
    AUTO_FREE bool *is_kept = calloc(e->set.n + 1, sizeof(*is_kept));
    if (!is_kept)
        return error_set(err, ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < e->set.n; i++)
        is_kept[i] = runs_has_level(e->runs, e->set.tasks[i].level);
    tasks_keep(&e->set, is_kept);
    if (e->set.n > 0 && e->tasks.most == 0)
        runs_tell_unknown(e->runs, &e->set);
    return e->set.n > 0
               ? 0
               : error_set(err, ERR_INPUT, "%s and %s have no level in common", e->runs_path, e->tasks.path);
}

static int
open_runs(struct evaluate *e, struct error *err)
{
    int rc = runs_open(e->runs_path, &e->runs, err);
    if (rc != 0)
        return rc;
    e->source = (struct round_source){ runs_sample, e->runs, runs_provenance(e->runs) };
    if (!e->source.provenance)
        return error_set(err, ERR_INPUT, "the kernels of %s cannot be read", e->runs_path);
    e->round.source = &e->source;
    e->round.samples = (int)runs_samples(e->runs);
    e->round.turns = 1;
    return 0;
}

static int
write_report(struct evaluate *e, struct error *err)
{
    char file[256], path[OUTPUT_PATH_MAX];
    AUTO_JSON json_t *report = report_json(e);

    int rc = report ? 0 : error_set(err, ERR_NOMEM, "out of memory");
    rc = rc == 0 && e->columns ? add_columns(e, report, err) : rc;
    rc = rc == 0 && e->ablates ? add_ablation(e, report, err) : rc;
    snprintf(file, sizeof(file), "eval_%.200s.json", e->name);
    rc = rc == 0 ? output_path(e->trainer->workdir, "outputs", file, path, err) : rc;
    rc = rc == 0 ? output_document(path, report, err) : rc;
    snprintf(file, sizeof(file), "eval_%.200s", e->name);
    rc = rc == 0 ? runs_write(e->trainer->workdir, "outputs", file, e->results, e->set.n, err) : rc;
    if (rc == 0) {
        print_table(report);
        print_unjudged(report);
        print_columns(report);
        print_ablation(report);
        printf("%s\n", path);
    }
    return rc;
}

/* The exit status of an evaluation whose report is written. */
static int
status_of(const struct evaluate *e)
{
    int status = (int)round_tell_failures(e->results, e->set.n);
    if (status == TRAINER_OK && !has_extracted(e))
        status = trainer_complain(
            TRAINER_UNEXTRACTED,
            "no code was found in any answer: these rates say how the model answers, not how "
            "good its kernels are (is the prompt's form what it was trained on? were answers "
            "cut off at --max-tokens?)");
    return status;
}

int
evaluate_command(struct trainer *t, int argc, char **argv)
{
    AUTO_JSON json_t *reward = json_object();
    struct evaluate e = { .trainer = t,
                          .python = program_environment("TRAINER_PYTHON", "python3"),
                          .tasks = { .level = -1, .most = -1 },
                          .round = { .samples = 1, .turns = 1, .reward = reward } };
    struct error err = { 0 };
    char file[256], journal[OUTPUT_PATH_MAX];
    int rc = 0;

    argp_parse(&argp, argc, argv, 0, NULL, &e);
    if (!e.runs_path && !e.model_path && (!t->endpoint_url || !t->model))
        return trainer_complain(TRAINER_USAGE,
                                "name the model and its endpoint: --endpoint URL --model NAME; or "
                                "a checkpoint: --model-path DIR; or kernels: --runs DIR");
    if (e.runs_path)
        rc = open_runs(&e, &err);
    AUTO_FREE char *name = output_last_part(e.runs_path    ? e.runs_path
                                            : e.model_path ? e.model_path
                                                           : t->model);
    e.name = e.name ? e.name : name;
    if (!e.name)
        rc = error_set(&err, ERR_NOMEM, "out of memory");
    rc = rc == 0 ? load_tasks(&e, &err) : rc;
    if (rc == 0 && e.model_path)
        rc = checkpoint_serve(t, e.python, e.model_path, &e.checkpoint, &err);
    snprintf(file, sizeof(file), "eval_%.200s.journal.jsonl", e.name);
    rc = rc == 0 ? output_path(t->workdir, "outputs", file, journal, &err) : rc;
    e.round.journal = journal;
    rc = rc == 0 ? round_run(t, &e.round, &e.set, &e.results, &e.totals, &err) : rc;
    rc = rc == 0 ? write_report(&e, &err) : rc;
    int status = rc == 0 ? status_of(&e) : trainer_failed(&err);
    checkpoint_close(e.checkpoint);
    round_free(e.results, e.set.n);
    tasks_free(&e.set);
    json_decref(e.source.provenance);
    runs_free(e.runs);
    return status;
}
