/* trainer evaluate: how well a model does on a set of tasks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainer/metrics.h"
#include "client/trainer/options.h"
#include "client/trainer/output.h"
#include "client/trainer/prompt.h"
#include "common/auto.h"
#include "common/clock.h"

struct evaluate {
    struct trainer *trainer;
    struct task_options tasks;
    struct round_options round;
    const char *name;
};

enum { OPT_NAME = 512 };

static const struct argp_option options[] = {
    { "name", OPT_NAME, "NAME", 0,
      "Of the evaluation: outputs/eval_NAME.json in the working directory (default: the model's)", 0 },
    { 0 },
};

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct evaluate *e = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = e->trainer;
        state->child_inputs[1] = &e->tasks;
        state->child_inputs[2] = &e->round;
        return 0;
    case OPT_NAME:
        e->name = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {
    { &trainer_common_argp, 0, NULL, -1 },
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

static json_t *
report_json(const struct evaluate *e, const struct task_set *set, const struct round_result *results,
            const struct round_totals *totals)
{
    char prompt[HASH_TEXT_SIZE], at[CLOCK_TEXT_SIZE];
    json_t *levels = json_object();

    prompt_digest(prompt);
    clock_text(clock_wall_ms(), at);
    for (int level = 1; level <= 4; level++) {
        char name[8];
        bool has = false;
        for (size_t i = 0; i < set->n; i++)
            has = has || set->tasks[i].level == level;
        snprintf(name, sizeof(name), "%d", level);
        if (has)
            json_object_set_new(levels, name, metrics_json(results, set->n, level));
    }
    return json_pack("{s:s, s:s, s:s, s:s, s:s?, s:i, s:i, s:f, s:o, s:o, s:o}", "name", e->name,
                     "model_path", e->trainer->model, "prompt", prompt, "created", at, "policy",
                     e->round.policy, "num_tasks", (int)set->n, "failed_tasks", (int)totals->failed,
                     "seconds", totals->seconds, "metrics", metrics_json(results, set->n, 0), "levels",
                     levels, "detailed_results", details_json(results, set->n));
}

static void
print_row(const char *what, json_t *m)
{
    json_t *fast = json_object_get(m, "fast_p"), *pass = json_object_get(m, "pass_at");
    printf("%-8s %5d %8.1f%% %8.1f%% %8.1f%% %8.1f%% %8.1f%%", what,
           (int)json_integer_value(json_object_get(m, "num_tasks")),
           json_number_value(json_object_get(m, "valid_rate")),
           json_number_value(json_object_get(m, "compiled_rate")),
           json_number_value(json_object_get(m, "correct_rate")),
           json_number_value(json_object_get(fast, "1")), json_number_value(json_object_get(pass, "1")));
    json_t *geomean = json_object_get(m, "speedup_geomean");
    if (json_is_number(geomean))
        printf("  %.2f (%.2f to %.2f)\n", json_number_value(geomean),
               json_number_value(json_object_get(m, "speedup_geomean_lo")),
               json_number_value(json_object_get(m, "speedup_geomean_hi")));
    else
        puts("  -");
}

static void
print_table(json_t *report)
{
    const char *level;
    json_t *metrics;
    printf("%-8s %5s %9s %9s %9s %9s %9s  %s\n", "level", "tasks", "valid", "compiled", "correct", "fast_1",
           "pass@1", "geometric mean of speed-ups (95 %)");
    json_object_foreach(json_object_get(report, "levels"), level, metrics) print_row(level, metrics);
    print_row("all", json_object_get(report, "metrics"));
}

int
evaluate_command(struct trainer *t, int argc, char **argv)
{
    AUTO_JSON json_t *reward = json_object();
    struct evaluate e = { .trainer = t,
                          .tasks = { .level = 2, .most = 20 },
                          .round = { .samples = 1, .turns = 1, .reward = reward } };
    struct task_set set = { 0 };
    struct round_result *results = NULL;
    struct round_totals totals;
    struct error err = { 0 };
    char file[256], journal[OUTPUT_PATH_MAX], path[OUTPUT_PATH_MAX];

    argp_parse(&argp, argc, argv, 0, NULL, &e);
    if (!t->endpoint_url || !t->model)
        return trainer_complain(TRAINER_USAGE,
                                "name the model and its endpoint: --endpoint URL --model NAME");
    if (!e.name)
        e.name = strrchr(t->model, '/') ? strrchr(t->model, '/') + 1 : t->model;
    int rc = task_options_load(&e.tasks, t->seed, &set, &err);
    snprintf(file, sizeof(file), "eval_%.200s.journal.jsonl", e.name);
    rc = rc == 0 ? output_path(t->workdir, "outputs", file, journal, &err) : rc;
    e.round.journal = journal;
    rc = rc == 0 ? round_run(t, &e.round, &set, &results, &totals, &err) : rc;
    snprintf(file, sizeof(file), "eval_%.200s.json", e.name);
    rc = rc == 0 ? output_path(t->workdir, "outputs", file, path, &err) : rc;
    if (rc == 0) {
        AUTO_JSON json_t *report = report_json(&e, &set, results, &totals);
        rc = output_document(path, report, &err);
        if (rc == 0) {
            print_table(report);
            printf("%s\n", path);
        }
    }
    round_free(results, set.n);
    tasks_free(&set);
    return rc == 0 ? TRAINER_OK : trainer_failed(&err);
}
