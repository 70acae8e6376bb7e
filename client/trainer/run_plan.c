/*
 * Theory of operation. A step is {"name", "stage", "argv", "inputs", "outputs"}, and where it has them "trains" (it wants the
 * GPUs), "serve" (the checkpoint that the endpoint has to have, "" for the base) and "round". argv begins with a command of this
 * program, or with @ and what run_step.c does itself; {served} and {adapter} are put in when the step begins, because only then
 * it is known which round was the last that learned something.
 */
#include "client/trainer/run_plan.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainer/runconf.h"
#include "client/trainer/settings.h"
#include "common/auto.h"

static json_t *
step_new(struct run *r, const char *name, const char *stage, const char *command)
{
    json_t *step = json_pack("{s:s, s:s, s:[s], s:[], s:[]}", "name", name, "stage", stage, "argv", command,
                             "inputs", "outputs");
    if (!step)
        abort();
    json_array_append_new(r->steps, step);
    return step;
}

static void __attribute__((format(printf, 3, 4))) add(json_t *step, const char *list, const char *format, ...)
{
    char text[PATH_MAX + 64];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    json_array_append_new(json_object_get(step, list), json_string(text));
}

#define ARG(step, ...) add(step, "argv", __VA_ARGS__)
#define IN(step, ...) add(step, "inputs", __VA_ARGS__)
#define OUT(step, ...) add(step, "outputs", __VA_ARGS__)

/* --flag=value, where there is a value. */
static void
arg_text(json_t *step, const char *flag, const char *value)
{
    if (*value)
        ARG(step, "--%s=%s", flag, value);
}

static const char fused_tasks[] = "data/processed/rl_tasks.jsonl",
                  taught_rows[] = "data/processed/sft_taught.jsonl";

static bool
has_teacher(const struct run *r)
{
    return *run_text(r, "teacher", "url") && runconf_number(r->conf, "rl", "fused") > 0;
}

/* What reinforcement draws from. */
static const char *
rl_tasks(const struct run *r)
{
    return runconf_number(r->conf, "rl", "fused") > 0 ? fused_tasks : run_text(r, "rl", "tasks");
}

static void
arg_python(struct run *r, json_t *step)
{
    arg_text(step, "python", run_python(r));
}

static void
arg_common(struct run *r, json_t *step)
{
    ARG(step, "--workdir=.");
    ARG(step, "--seed=%d", (int)runconf_number(r->conf, "", "seed"));
}

/* What asks the endpoint for answers. */
static void
arg_sampling(struct run *r, json_t *step, const char *section)
{
    ARG(step, "--url=%s", r->trainer->daemon_url);
    ARG(step, "--endpoint=%s", r->serving.url);
    ARG(step, "--temperature=%g", runconf_number(r->conf, "endpoint", "temperature"));
    ARG(step, "--max-tokens=%d", (int)runconf_number(r->conf, "endpoint", "max_tokens"));
    ARG(step, "--concurrency=%d", (int)runconf_number(r->conf, "endpoint", "concurrency"));
    arg_text(step, "policy", run_text(r, section, "policy"));
    arg_text(step, "until", run_text(r, section, "until"));
}

static void
plan_hub(struct run *r)
{
    const char *source = run_text(r, "evaluate", "source");
    if (!*source)
        return;
    json_t *step = step_new(r, "evaluation_tasks", "prepare", "prepare");
    ARG(step, "--source=%s", source);
    ARG(step, "--static");
    ARG(step, "--max-samples=0");
    ARG(step, "--workdir=evaluation");
    arg_python(r, step);
    OUT(step, "evaluation/data/processed/tasks.jsonl");
}

/* Where the evaluation's tasks are. */
static void
evaluation_tasks(struct run *r, char path[PATH_MAX])
{
    bool is_hub = *run_text(r, "evaluate", "source");
    snprintf(path, PATH_MAX, "%s",
             is_hub ? "evaluation/data/processed/tasks.jsonl" : run_text(r, "evaluate", "tasks"));
}

/* New tasks for reinforcement, and a teacher's answers to them for fine-tuning. */
static void
plan_fuse(struct run *r)
{
    json_t *step = step_new(r, "fuse", "prepare", "fuse");
    ARG(step, "--number=%d", (int)runconf_number(r->conf, "rl", "fused"));
    ARG(step, "--mined");
    ARG(step, "--with=%s", run_text(r, "rl", "tasks"));
    ARG(step, "--url=%s", r->trainer->daemon_url);
    arg_python(r, step);
    arg_common(r, step);
    IN(step, "%s", run_text(r, "rl", "tasks"));
    OUT(step, "data/processed/fused.jsonl");
    OUT(step, "%s", fused_tasks);
    if (!has_teacher(r))
        return;
    step = step_new(r, "teach", "prepare", "bestofn");
    ARG(step, "--as=sft");
    ARG(step, "--tasks=data/processed/fused.jsonl");
    ARG(step, "--level=0");
    ARG(step, "--max-tasks=0");
    ARG(step, "--keep=1");
    ARG(step, "--samples=%d", (int)runconf_number(r->conf, "teacher", "samples"));
    ARG(step, "--name=teacher");
    arg_sampling(r, step, "rl");
    arg_text(step, "endpoint", run_text(r, "teacher", "url")); /* the last one counts */
    arg_text(step, "model", run_text(r, "teacher", "model"));
    arg_common(r, step);
    IN(step, "data/processed/fused.jsonl");
    OUT(step, "outputs/bestofn_teacher/sft_train.jsonl");
    step = step_new(r, "join", "prepare", "@join");
    IN(step, "data/processed/sft_train.jsonl");
    IN(step, "outputs/bestofn_teacher/sft_train.jsonl");
    OUT(step, "%s", taught_rows);
}

static void
plan_prepare(struct run *r)
{
    const char *file = run_text(r, "prepare", "file"), *overlap = run_text(r, "prepare", "overlap");
    if (json_is_true(runconf_get(r->conf, "verifier", "selftest"))) {
        json_t *step = step_new(r, "selftest", "prepare", "@selftest");
        ARG(step, "--url=%s", r->trainer->daemon_url);
    }
    plan_hub(r);
    json_t *step = step_new(r, "prepare", "prepare", "prepare");
    arg_text(step, "file", file);
    arg_text(step, "source", run_text(r, "prepare", "source"));
    if (!*overlap && *run_text(r, "evaluate", "source")) {
        ARG(step, "--overlap=evaluation/data/processed/tasks.jsonl");
        IN(step, "evaluation/data/processed/tasks.jsonl");
    }
    arg_text(step, "overlap", overlap);
    arg_text(step, "licenses", run_text(r, "prepare", "licenses"));
    ARG(step, "--max-samples=%d", (int)runconf_number(r->conf, "prepare", "max_samples"));
    if (json_is_true(runconf_get(r->conf, "prepare", "static")))
        ARG(step, "--static");
    else if (json_is_true(runconf_get(r->conf, "prepare", "verify")))
        ARG(step, "--verify");
    ARG(step, "--url=%s", r->trainer->daemon_url);
    arg_python(r, step);
    arg_common(r, step);
    if (*file)
        IN(step, "%s", file);
    if (*overlap)
        IN(step, "%s", overlap);
    OUT(step, "data/processed/tasks.jsonl");
    OUT(step, "data/processed/sft_train.jsonl");
    step = step_new(r, "extraction", "prepare", "@extraction");
    IN(step, "data/processed/sft_train.jsonl");
    if (runconf_number(r->conf, "rl", "fused") > 0)
        plan_fuse(r);
}

/* A training command with all its settings; run, final, data and adapter are the step's own. */
static json_t *
plan_training(struct run *r, const char *name, const char *stage, const char *section, const char *method,
              const char *run, const char *final)
{
    bool is_preset = strcmp(method, "bestofn") == 0;
    AUTO_JSON json_t *table = settings_table();
    json_t *step = step_new(r, name, stage, is_preset ? "sft" : method), *row;
    size_t i;

    if (is_preset)
        ARG(step, "--preset=bestofn");
    json_array_foreach(table, i, row)
    {
        static const char *const own[] = { "model", "adapter", "data", "run", "final", "seed" };
        const char *key = json_string_value(json_object_get(row, "name"));
        bool is_own = !settings_concern(row, method);
        for (size_t k = 0; k < ARRAY_LEN(own); k++)
            is_own = is_own || strcmp(own[k], key) == 0;
        if (is_own)
            continue;
        json_t *value = json_object_get(json_object_get(r->conf, section), key);
        char flag[64];
        snprintf(flag, sizeof(flag), "%s", key);
        for (char *at = flag; *at; at++)
            *at = *at == '_' ? '-' : *at;
        if (json_is_string(value))
            arg_text(step, flag, json_string_value(value));
        else if (json_is_boolean(value))
            ARG(step, "--%s=%s", flag, json_is_true(value) ? "true" : "false");
        else
            ARG(step, "--%s=%.17g", flag, json_number_value(value));
    }
    ARG(step, "--model=%s", run_text(r, "", "model"));
    ARG(step, "--run=%s", run);
    ARG(step, "--final=%s", final);
    arg_python(r, step);
    if (runconf_number(r->conf, "", "gpus") > 1)
        ARG(step, "--gpus=%d", (int)runconf_number(r->conf, "", "gpus"));
    arg_common(r, step);
    OUT(step, "checkpoints/%s", final);
    json_object_set_new(step, "trains", json_true());
    return step;
}

static void
plan_sft(struct run *r)
{
    json_t *step = plan_training(r, "sft", "sft", "sft", "sft", "sft", "sft_final");
    if (r->max_samples > 0)
        ARG(step, "--max-samples=%d", r->max_samples);
    const char *rows = has_teacher(r) ? taught_rows : "data/processed/sft_train.jsonl";
    ARG(step, "--data=%s", rows);
    IN(step, "%s", rows);
}

static void
serve(json_t *step, const char *adapter)
{
    json_object_set_new(step, "serve", json_string(adapter));
    ARG(step, "--model={served}");
}

/* The curriculum that moves by a held-out evaluation gets one before each round. */
static void
plan_held_out(struct run *r, int round)
{
    char name[64];
    snprintf(name, sizeof(name), "held_out_%d", round);
    json_t *step = step_new(r, name, "rl", "evaluate");
    ARG(step, "--tasks=%s", run_text(r, "rl", "held_out"));
    ARG(step, "--level=0");
    ARG(step, "--max-tasks=%d", (int)runconf_number(r->conf, "rl", "held_out_tasks"));
    ARG(step, "--name=%s", name);
    arg_sampling(r, step, "rl");
    arg_common(r, step);
    serve(step, "{adapter}");
    IN(step, "checkpoints/sft_final");
    IN(step, "%s", run_text(r, "rl", "held_out"));
    OUT(step, "outputs/eval_%s.json", name);
}

static void
plan_round(struct run *r, int round, const char *method)
{
    char name[64];
    bool has_curriculum = *run_text(r, "rl", "curriculum"), has_held_out = *run_text(r, "rl", "held_out");
    if (has_curriculum && has_held_out)
        plan_held_out(r, round);
    snprintf(name, sizeof(name), "round%d", round);
    json_t *step = step_new(r, name, "rl", "bestofn");
    ARG(step, "--tasks=%s", rl_tasks(r));
    ARG(step, "--level=%d", (int)runconf_number(r->conf, "rl", "level"));
    ARG(step, "--max-tasks=%d", (int)runconf_number(r->conf, "rl", "max_tasks"));
    ARG(step, "--samples=%d", (int)runconf_number(r->conf, "rl", "samples"));
    ARG(step, "--keep=%d", (int)runconf_number(r->conf, "rl", "keep"));
    ARG(step, "--reward=%s", run_text(r, "rl", "reward"));
    ARG(step, "--name=%s", name);
    if (has_curriculum) {
        ARG(step, "--curriculum=%s", run_text(r, "rl", "curriculum"));
        ARG(step, "--mix=%g", runconf_number(r->conf, "rl", "mix"));
    }
    if (has_curriculum && has_held_out)
        ARG(step, "--held-out=outputs/eval_held_out_%d.json", round);
    arg_sampling(r, step, "rl");
    ARG(step, "--workdir=.");
    ARG(step, "--seed=%d", (int)runconf_number(r->conf, "", "seed") + round - 1); /* other tasks each round */
    serve(step, "{adapter}");
    IN(step, "checkpoints/sft_final");
    IN(step, "%s", rl_tasks(r));
    OUT(step, "outputs/bestofn_%s/kept.jsonl", name);
    OUT(step, "outputs/bestofn_%s/candidates.jsonl", name);
    bool is_weighted = strcmp(method, "weighted") == 0;
    char learned[64];
    snprintf(learned, sizeof(learned), "rl_round%d", round);
    step = plan_training(r, learned, "rl", "train", method, name, learned);
    ARG(step, "--data=outputs/bestofn_%s/%s.jsonl", name, is_weighted ? "candidates" : "kept");
    ARG(step, "--adapter={adapter}");
    IN(step, "checkpoints/sft_final");
    IN(step, "outputs/bestofn_%s/%s.jsonl", name, is_weighted ? "candidates" : "kept");
    json_object_set_new(step, "round", json_integer(round));
}

static void
plan_rl(struct run *r)
{
    const char *method = run_text(r, "rl", "method");
    if (strcmp(method, "reinforce") == 0 || strcmp(method, "grpo") == 0) {
        json_t *step = plan_training(r, method, "rl", "train", method, method, "rl_final");
        ARG(step, "--tasks=%s", rl_tasks(r));
        ARG(step, "--level=%d", (int)runconf_number(r->conf, "rl", "level"));
        ARG(step, "--max-tasks=%d", (int)runconf_number(r->conf, "rl", "max_tasks"));
        arg_text(step, "policy", run_text(r, "rl", "policy"));
        ARG(step, "--url=%s", r->trainer->daemon_url);
        ARG(step, "--adapter={adapter}");
        IN(step, "checkpoints/sft_final");
        IN(step, "%s", rl_tasks(r));
        return;
    }
    for (int round = 1; round <= (int)runconf_number(r->conf, "rl", "rounds"); round++)
        plan_round(r, round, method);
    json_t *step = step_new(r, "publish", "rl", "@publish");
    ARG(step, "rl_final");
    IN(step, "checkpoints/sft_final");
    OUT(step, "checkpoints/rl_final");
}

static void
plan_evaluate(struct run *r)
{
    static const char *const names[][3] = { { "base", "base", "" },
                                            { "sft", "sft_final", "sft_final" },
                                            { "rl", "rl_final", "rl_final" } };
    char tasks[PATH_MAX];

    evaluation_tasks(r, tasks);
    for (size_t i = 0; *tasks && i < ARRAY_LEN(names); i++) {
        char name[64];
        snprintf(name, sizeof(name), "evaluate_%s", names[i][0]);
        json_t *step = step_new(r, name, "evaluate", "evaluate");
        ARG(step, "--tasks=%s", tasks);
        ARG(step, "--level=%d", (int)runconf_number(r->conf, "evaluate", "level"));
        ARG(step, "--max-tasks=%d", (int)runconf_number(r->conf, "evaluate", "max_tasks"));
        ARG(step, "--samples=%d", (int)runconf_number(r->conf, "evaluate", "samples"));
        ARG(step, "--name=%s", names[i][1]);
        arg_sampling(r, step, "evaluate");
        arg_common(r, step);
        serve(step, names[i][2]);
        IN(step, "%s", tasks);
        if (*names[i][2])
            IN(step, "checkpoints/%s", names[i][2]);
        OUT(step, "outputs/eval_%s.json", names[i][1]);
    }
    if (*tasks) {
        json_t *step = step_new(r, "compare", "evaluate", "compare");
        for (size_t i = 0; i < ARRAY_LEN(names); i++)
            ARG(step, "%s", names[i][1]);
        arg_text(step, "published", run_text(r, "evaluate", "published"));
        ARG(step, "--html=outputs/comparison.html");
        ARG(step, "--save=outputs/comparison.json");
        ARG(step, "--workdir=.");
        for (size_t i = 0; i < ARRAY_LEN(names); i++)
            IN(step, "outputs/eval_%s.json", names[i][1]);
        OUT(step, "outputs/comparison.html");
        OUT(step, "outputs/comparison.json");
    }
    json_t *step = step_new(r, "report", "evaluate", "report");
    ARG(step, "--workdir=.");
    IN(step, "checkpoints/sft_final");
    IN(step, "checkpoints/rl_final");
    if (*tasks)
        IN(step, "outputs/comparison.json");
    OUT(step, "outputs/report.html");
    OUT(step, "outputs/report.json");
}

void
run_plan(struct run *r)
{
    plan_prepare(r);
    plan_sft(r);
    plan_rl(r);
    plan_evaluate(r);
    for (size_t i = json_array_size(r->steps); i-- > 0;) {
        const char *stage = json_string_value(json_object_get(json_array_get(r->steps, i), "stage"));
        if (strcmp(r->stage, "all") != 0 && strcmp(r->stage, stage) != 0)
            json_array_remove(r->steps, i);
    }
}
