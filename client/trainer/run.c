/*
 * trainer run: from data to a report, by one configuration file.
 *
 * Theory of operation. The file becomes a list of steps, each with what it reads and what it leaves; a step is a command of
 * this program, in a process of its own, and can itself be gone on with. run.json in the working directory says which
 * steps are finished, and with which arguments: a run that was ended in any way is begun again with the same command. A step whose
 * inputs are not there or do not verify ends the run before it is begun.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/trainer/manifest.h"
#include "client/trainer/options.h"
#include "client/trainer/output.h"
#include "client/trainer/prompt.h"
#include "client/trainer/runconf.h"
#include "client/trainer/serving.h"
#include "client/trainer/settings.h"
#include "client/trainer/trainer.h"
#include "common/auto.h"
#include "common/clock.h"
#include "common/extract.h"

enum { OPT_STAGE = 512, OPT_MAX_SAMPLES, OPT_DRY_RUN, OPT_ESTIMATE, OPT_CHECK };
enum { EXTRACTED_ROWS = 20 };

struct run {
    struct trainer *trainer;
    const char *file, *stage;
    int max_samples; /* -1: as the file says */
    bool is_dry, is_estimate, is_check;
    json_t *conf, *steps, *state;
    char workdir[PATH_MAX], state_path[OUTPUT_PATH_MAX], log_path[PATH_MAX + 32], program[PATH_MAX];
    struct serving serving;
    char serving_log[OUTPUT_PATH_MAX];
};

static const struct argp_option options[] = {
    { "stage", OPT_STAGE, "NAME", 0, "prepare, sft, rl, evaluate or all (default)", 0 },
    { "max-samples", OPT_MAX_SAMPLES, "N", 0, "Prepare and learn from so many rows at most", 0 },
    { "dry-run", OPT_DRY_RUN, NULL, 0,
      "The whole of it with 100 samples, 5 tasks and one round, in WORKDIR/dry_run", 0 },
    { "estimate", OPT_ESTIMATE, NULL, 0, "Print GPU hours and price by step; run nothing", 0 },
    { "check", OPT_CHECK, NULL, 0, "Check files, memory and shapes; run nothing", 0 },
    { 0 },
};

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    static const char *const stages[] = { "prepare", "sft", "rl", "evaluate", "all" };
    struct run *r = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = r->trainer;
        return 0;
    case OPT_STAGE:
        for (size_t i = 0; i < ARRAY_LEN(stages); i++)
            if (strcmp(arg, stages[i]) == 0) {
                r->stage = stages[i];
                return 0;
            }
        argp_error(state, "--stage: there is no stage \"%s\"", arg);
        return 0;
    case OPT_MAX_SAMPLES:
        r->max_samples = option_int(state, "--max-samples", arg, 1, 100000000);
        return 0;
    case OPT_DRY_RUN:
        r->is_dry = true;
        return 0;
    case OPT_ESTIMATE:
        r->is_estimate = true;
        return 0;
    case OPT_CHECK:
        r->is_check = true;
        return 0;
    case ARGP_KEY_ARG:
        if (r->file)
            argp_error(state, "one configuration file");
        r->file = arg;
        return 0;
    case ARGP_KEY_END:
        if (!r->file)
            argp_error(state, "which configuration file?");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = { { &trainer_common_argp, 0, NULL, -1 }, { 0 } };
static const struct argp argp = { options,
                                  parse,
                                  "FILE",
                                  "From data to a report: prepare, fine-tune, improve by reward, evaluate. "
                                  "Ended in any way, it goes on when it is given again.",
                                  children,
                                  NULL,
                                  NULL };

/* A line on stderr and in training.log. */
static void __attribute__((format(printf, 2, 3))) say(const struct run *r, const char *format, ...)
{
    char text[1024], at[CLOCK_TEXT_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(stderr, "trainer: %s\n", text);
    FILE *log = r->is_check || r->is_estimate ? NULL : fopen(r->log_path, "a");
    if (log) {
        clock_text(clock_wall_ms(), at);
        fprintf(log, "%s run: %s\n", at, text);
        fclose(log);
    }
}

/* --- the steps --- */

static const char *
conf_text(const struct run *r, const char *section, const char *key)
{
    return runconf_text(r->conf, section, key);
}

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

static void
arg_python(struct run *r, json_t *step)
{
    const char *named = conf_text(r, "", "python"), *python = getenv("TRAINER_PYTHON");
    arg_text(step, "python", *named ? named : python && *python ? python : "python3");
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
    arg_text(step, "policy", conf_text(r, section, "policy"));
    arg_text(step, "until", conf_text(r, section, "until"));
}

static void
plan_hub(struct run *r)
{
    const char *source = conf_text(r, "evaluate", "source");
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
    bool is_hub = *conf_text(r, "evaluate", "source");
    snprintf(path, PATH_MAX, "%s",
             is_hub ? "evaluation/data/processed/tasks.jsonl" : conf_text(r, "evaluate", "tasks"));
}

static void
plan_prepare(struct run *r)
{
    const char *file = conf_text(r, "prepare", "file"), *overlap = conf_text(r, "prepare", "overlap");
    if (json_is_true(runconf_get(r->conf, "verifier", "selftest"))) {
        json_t *step = step_new(r, "selftest", "prepare", "@selftest");
        ARG(step, "--url=%s", r->trainer->daemon_url);
    }
    plan_hub(r);
    json_t *step = step_new(r, "prepare", "prepare", "prepare");
    arg_text(step, "file", file);
    arg_text(step, "source", conf_text(r, "prepare", "source"));
    if (!*overlap && *conf_text(r, "evaluate", "source"))
        ARG(step, "--overlap=evaluation/data/processed/tasks.jsonl");
    arg_text(step, "overlap", overlap);
    arg_text(step, "licenses", conf_text(r, "prepare", "licenses"));
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
    ARG(step, "--model=%s", conf_text(r, "", "model"));
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
    IN(step, "data/processed/sft_train.jsonl");
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
    ARG(step, "--tasks=%s", conf_text(r, "rl", "held_out"));
    ARG(step, "--level=0");
    ARG(step, "--max-tasks=%d", (int)runconf_number(r->conf, "rl", "held_out_tasks"));
    ARG(step, "--name=%s", name);
    arg_sampling(r, step, "rl");
    arg_common(r, step);
    serve(step, "{adapter}");
    IN(step, "%s", conf_text(r, "rl", "held_out"));
    OUT(step, "outputs/eval_%s.json", name);
}

static void
plan_round(struct run *r, int round, const char *method)
{
    char name[64];
    bool has_curriculum = *conf_text(r, "rl", "curriculum"), has_held_out = *conf_text(r, "rl", "held_out");
    if (has_curriculum && has_held_out)
        plan_held_out(r, round);
    snprintf(name, sizeof(name), "round%d", round);
    json_t *step = step_new(r, name, "rl", "bestofn");
    ARG(step, "--tasks=%s", conf_text(r, "rl", "tasks"));
    ARG(step, "--level=%d", (int)runconf_number(r->conf, "rl", "level"));
    ARG(step, "--max-tasks=%d", (int)runconf_number(r->conf, "rl", "max_tasks"));
    ARG(step, "--samples=%d", (int)runconf_number(r->conf, "rl", "samples"));
    ARG(step, "--keep=%d", (int)runconf_number(r->conf, "rl", "keep"));
    ARG(step, "--reward=%s", conf_text(r, "rl", "reward"));
    ARG(step, "--name=%s", name);
    if (has_curriculum) {
        ARG(step, "--curriculum=%s", conf_text(r, "rl", "curriculum"));
        ARG(step, "--mix=%g", runconf_number(r->conf, "rl", "mix"));
    }
    if (has_curriculum && has_held_out)
        ARG(step, "--held-out=outputs/eval_held_out_%d.json", round);
    arg_sampling(r, step, "rl");
    ARG(step, "--workdir=.");
    ARG(step, "--seed=%d", (int)runconf_number(r->conf, "", "seed") + round - 1); /* other tasks each round */
    serve(step, "{adapter}");
    IN(step, "%s", conf_text(r, "rl", "tasks"));
    OUT(step, "outputs/bestofn_%s/kept.jsonl", name);
    bool is_weighted = strcmp(method, "weighted") == 0;
    char learned[64];
    snprintf(learned, sizeof(learned), "rl_round%d", round);
    step = plan_training(r, learned, "rl", "train", method, name, learned);
    ARG(step, "--data=outputs/bestofn_%s/%s.jsonl", name, is_weighted ? "candidates" : "kept");
    ARG(step, "--adapter={adapter}");
    IN(step, "outputs/bestofn_%s/%s.jsonl", name, is_weighted ? "candidates" : "kept");
    json_object_set_new(step, "round", json_integer(round));
}

static void
plan_rl(struct run *r)
{
    const char *method = conf_text(r, "rl", "method");
    if (strcmp(method, "reinforce") == 0 || strcmp(method, "grpo") == 0) {
        json_t *step = plan_training(r, method, "rl", "train", method, method, "rl_final");
        ARG(step, "--tasks=%s", conf_text(r, "rl", "tasks"));
        ARG(step, "--level=%d", (int)runconf_number(r->conf, "rl", "level"));
        ARG(step, "--max-tasks=%d", (int)runconf_number(r->conf, "rl", "max_tasks"));
        arg_text(step, "policy", conf_text(r, "rl", "policy"));
        ARG(step, "--url=%s", r->trainer->daemon_url);
        ARG(step, "--adapter={adapter}");
        IN(step, "%s", conf_text(r, "rl", "tasks"));
        return;
    }
    for (int round = 1; round <= (int)runconf_number(r->conf, "rl", "rounds"); round++)
        plan_round(r, round, method);
    json_t *step = step_new(r, "publish", "rl", "@publish");
    ARG(step, "rl_final");
    OUT(step, "checkpoints/rl_final");
}

static void
plan_evaluate(struct run *r)
{
    static const char *const names[][2] = { { "base", "" }, { "sft", "sft_final" }, { "rl", "rl_final" } };
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
        ARG(step, "--name=%s", names[i][0]);
        arg_sampling(r, step, "evaluate");
        arg_common(r, step);
        serve(step, names[i][1]);
        IN(step, "%s", tasks);
        if (*names[i][1])
            IN(step, "checkpoints/%s", names[i][1]);
        OUT(step, "outputs/eval_%s.json", names[i][0]);
    }
    if (*tasks) {
        json_t *step = step_new(r, "compare", "evaluate", "compare");
        ARG(step, "base");
        ARG(step, "sft");
        ARG(step, "rl");
        ARG(step, "--html=outputs/comparison.html");
        ARG(step, "--workdir=.");
        for (size_t i = 0; i < ARRAY_LEN(names); i++)
            IN(step, "outputs/eval_%s.json", names[i][0]);
        OUT(step, "outputs/comparison.html");
    }
    json_t *step = step_new(r, "report", "evaluate", "report");
    ARG(step, "--workdir=.");
    OUT(step, "outputs/report.html");
    OUT(step, "outputs/report.json");
}

static void
make_plan(struct run *r)
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

/* --- inputs and outputs --- */

static const char *
in_workdir(const struct run *r, const char *path, char full[PATH_MAX])
{
    if (*path == '/')
        return path;
    if (snprintf(full, PATH_MAX, "%s/%s", r->workdir, path) >= PATH_MAX)
        full[PATH_MAX - 1] = '\0';
    return full;
}

static bool
is_checkpoint(const char *path)
{
    const char *at = strstr(path, "checkpoints/");
    return at && !strchr(at + strlen("checkpoints/"), '/');
}

/* Is it there, whole where it is a checkpoint, and not empty where it is a file? */
static int
check_path(const struct run *r, const char *path, struct error *err)
{
    char full[PATH_MAX];
    struct stat st;
    const char *where = in_workdir(r, path, full);
    if (stat(where, &st) != 0)
        return error_set(err, ERR_NOTFOUND, "%.300s is not there", where);
    if (is_checkpoint(path))
        return manifest_verify(where, NULL, err);
    return 0;
}

/* Is this path left by a step of the plan? */
static bool
is_made(const struct run *r, const char *path)
{
    size_t i, k;
    json_t *step, *one;
    char full[PATH_MAX], other[PATH_MAX];
    json_array_foreach(r->steps, i, step)
        json_array_foreach(json_object_get(step, "outputs"), k,
                           one) if (strcmp(in_workdir(r, path, full),
                                           in_workdir(r, json_string_value(one), other)) == 0) return true;
    return false;
}

/* --- what was finished --- */

static json_t *
finished(const struct run *r, const char *name)
{
    return json_object_get(json_object_get(r->state, "steps"), name);
}

static int
write_state(struct run *r, struct error *err)
{
    return output_document(r->state_path, r->state, err);
}

static int
set_state(struct run *r, json_t *step, const char *state, double seconds, struct error *err)
{
    char at[CLOCK_TEXT_SIZE];
    const char *name = json_string_value(json_object_get(step, "name"));
    clock_text(clock_wall_ms(), at);
    json_t *old = finished(r, name);
    double before = json_number_value(json_object_get(old, "seconds"));
    bool is_same = json_equal(json_object_get(old, "argv"), json_object_get(step, "argv"));
    json_object_set_new(json_object_get(r->state, "steps"), name,
                        json_pack("{s:s, s:f, s:s, s:O, s:s, s:b}", "state", state, "seconds",
                                  seconds + (is_same ? before : 0), "at", at, "argv",
                                  json_object_get(step, "argv"), "stage",
                                  json_string_value(json_object_get(step, "stage")), "trains",
                                  json_is_true(json_object_get(step, "trains"))));
    return write_state(r, err);
}

/* Where services and programs are is not what is computed. */
static json_t *
work_of(json_t *argv)
{
    static const char *const places[] = { "--url=", "--endpoint=", "--concurrency=", "--python=" };
    json_t *out = json_array(), *one;
    size_t i;
    json_array_foreach(argv, i, one)
    {
        bool is_place = false;
        for (size_t k = 0; k < ARRAY_LEN(places); k++)
            is_place = is_place || strncmp(json_string_value(one), places[k], strlen(places[k])) == 0;
        if (!is_place)
            json_array_append(out, one);
    }
    return out;
}

/* Finished with these arguments, and what it left is still there. */
static bool
is_finished(struct run *r, json_t *step)
{
    size_t i;
    json_t *one, *was = finished(r, json_string_value(json_object_get(step, "name")));
    const char *state = json_string_value(json_object_get(was, "state"));
    struct error ignored = { 0 };

    AUTO_JSON json_t *before = work_of(json_object_get(was, "argv")),
                     *now = work_of(json_object_get(step, "argv"));
    if (!state || !json_equal(before, now))
        return false;
    if (strcmp(state, "skipped") == 0)
        return true;
    if (strcmp(state, "done") != 0)
        return false;
    json_array_foreach(json_object_get(step, "outputs"), i,
                       one) if (check_path(r, json_string_value(one), &ignored) != 0) return false;
    return true;
}

/* --- running a step --- */

/* The adapter before a round (0: after the last): the newest round's that learned something, else sft_final. */
static void
adapter_before(const struct run *r, int round, char path[PATH_MAX])
{
    char name[64];
    struct error ignored = { 0 };
    for (int n = round > 0 ? round - 1 : (int)runconf_number(r->conf, "rl", "rounds"); n > 0; n--) {
        snprintf(name, sizeof(name), "checkpoints/rl_round%d", n);
        if (check_path(r, name, &ignored) == 0) {
            in_workdir(r, name, path);
            return;
        }
    }
    in_workdir(r, "checkpoints/sft_final", path);
}

static int
round_of(json_t *step)
{
    const char *name = json_string_value(json_object_get(step, "name"));
    size_t digits = strcspn(name, "0123456789");
    return atoi(name + digits);
}

/* Start argv and wait; SIGTERM is handed on. Its exit status, or 128 + its signal. */
static int
wait_for(pid_t pid)
{
    int status;
    bool is_told = false;
    while (waitpid(pid, &status, 0) < 0) {
        if (trainer_is_stopping() && !is_told) {
            kill(pid, SIGTERM);
            is_told = true;
        }
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static pid_t
spawn(const char *program, char *const *argv)
{
    const pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() == parent)
            execvp(program, argv);
        fprintf(stderr, "trainer: cannot start %s: %s\n", program, strerror(errno));
        _exit(TRAINER_CONFIG);
    }
    return pid;
}

/* A step's arguments with {served} and {adapter} put in. Freed by the caller, each and all. */
static char **
arguments(const struct run *r, json_t *step, const char *program, const char *served, size_t skip)
{
    json_t *argv = json_object_get(step, "argv"), *one;
    char **out = calloc(json_array_size(argv) + 2, sizeof(*out)), adapter[PATH_MAX];
    size_t i, n = 0;
    bool is_weak = strcmp(json_string_value(json_object_get(step, "stage")), "rl") == 0;

    adapter_before(r, is_weak ? round_of(step) : 0, adapter);
    if (!out)
        abort();
    out[n++] = strdup(program);
    json_array_foreach(argv, i, one)
    {
        const char *text = json_string_value(one), *mark;
        if (i < skip)
            continue;
        if ((mark = strstr(text, "{served}")) || (mark = strstr(text, "{adapter}"))) {
            if (asprintf(&out[n++], "%.*s%s", (int)(mark - text), text, mark[1] == 's' ? served : adapter) <
                0)
                abort();
        } else {
            out[n++] = strdup(text);
        }
    }
    return out;
}

static void
arguments_free(char **argv)
{
    for (char **at = argv; *at; at++)
        free(*at);
    free(argv);
}

static bool
is_empty(const struct run *r, const char *path)
{
    char full[PATH_MAX];
    struct stat st;
    return stat(in_workdir(r, path, full), &st) == 0 && st.st_size == 0;
}

/* Known-good answers have to give code: what cannot be extracted from these never is from a model's. */
static int
check_extraction(const struct run *r)
{
    char full[PATH_MAX];
    AUTO_FREE char *line = NULL;
    size_t capacity = 0, rows = 0, good = 0;
    FILE *file = fopen(in_workdir(r, "data/processed/sft_train.jsonl", full), "r");

    while (file && rows < EXTRACTED_ROWS && getline(&line, &capacity, file) > 0) {
        AUTO_JSON json_t *row = json_loads(line, 0, NULL);
        json_t *output = json_object_get(row, "output");
        struct extract code;
        rows++;
        good += json_is_string(output) &&
                extract_code(json_string_value(output), json_string_length(output), &code) == 0 &&
                code.from != EXTRACT_TEXT && !code.is_truncated && memmem(code.code, code.size, "class ", 6);
    }
    if (file)
        fclose(file);
    if (rows == 0)
        return trainer_complain(
            TRAINER_FAILED,
            "%s has no rows: nothing was prepared that can be learned (dropped.jsonl says why)", full);
    if (good < rows)
        return trainer_complain(TRAINER_FAILED,
                                "code is extracted from %zu of the first %zu known-good answers of %s: an "
                                "evaluation would find none either",
                                good, rows, full);
    say(r, "code is extracted from all of the first %zu known-good answers", rows);
    return TRAINER_OK;
}

static int
run_python(const struct run *r, char **argv)
{
    const char *named = conf_text(r, "", "python"), *python = getenv("TRAINER_PYTHON");
    python = *named ? named : python && *python ? python : "python3";
    argv[0] = (char *)(uintptr_t)python;
    pid_t pid = spawn(python, argv);
    return pid < 0 ? TRAINER_CONFIG : wait_for(pid);
}

static int
publish(const struct run *r)
{
    char source[PATH_MAX], root[PATH_MAX];
    adapter_before(r, 0, source);
    const char *argv[] = { NULL,       "-m",   "finetune",
                           "publish",  source, in_workdir(r, "checkpoints", root),
                           "rl_final", NULL };
    return run_python(r, (char **)(uintptr_t)argv);
}

static int
run_selftest(const struct run *r)
{
    char verifier[PATH_MAX + 16];
    const char *slash = strrchr(r->program, '/');
    snprintf(verifier, sizeof(verifier), "%.*s/verifier", (int)(slash - r->program), r->program);
    char *const argv[] = { verifier,
                           (char *)(uintptr_t) "selftest",
                           (char *)(uintptr_t) "--quick",
                           (char *)(uintptr_t) "--url",
                           (char *)(uintptr_t)r->trainer->daemon_url,
                           NULL };
    pid_t pid = spawn(verifier, argv);
    return pid < 0 ? TRAINER_CONFIG : wait_for(pid);
}

static int
run_command(struct run *r, json_t *step, const char *served)
{
    const char *command = json_string_value(json_array_get(json_object_get(step, "argv"), 0));

    if (strcmp(command, "@selftest") == 0)
        return run_selftest(r);
    if (strcmp(command, "@extraction") == 0)
        return check_extraction(r);
    if (strcmp(command, "@publish") == 0)
        return publish(r);
    char **argv = arguments(r, step, r->program, served, 0);
    pid_t pid = spawn(r->program, argv);
    int status = pid < 0 ? TRAINER_CONFIG : wait_for(pid);
    arguments_free(argv);
    return status;
}

/* What serves has the model; what trains has the GPUs. */
static int
prepare_serving(struct run *r, json_t *step, char served[SERVING_NAME_SIZE], struct error *err)
{
    char adapter[PATH_MAX] = "";
    const char *wanted = json_string_value(json_object_get(step, "serve"));
    if (!wanted) {
        if (json_is_true(json_object_get(step, "trains")) &&
            !json_is_true(runconf_get(r->conf, "endpoint", "keep")))
            serving_stop(&r->serving);
        return 0;
    }
    if (strcmp(wanted, "{adapter}") == 0)
        adapter_before(r, round_of(step), adapter);
    else if (*wanted) {
        char name[PATH_MAX];
        snprintf(name, sizeof(name), "checkpoints/%s", wanted);
        in_workdir(r, name, adapter);
    }
    int rc = serving_start(&r->serving, err);
    return rc == 0 ? serving_adapter(&r->serving, adapter, served, err) : rc;
}

/* A round that kept nothing has nothing to learn: the adapter stays as it is. */
static bool
is_skipped(const struct run *r, json_t *step)
{
    size_t i;
    json_t *one;
    if (!json_object_get(step, "round"))
        return false;
    json_array_foreach(json_object_get(step, "inputs"), i,
                       one) if (is_empty(r, json_string_value(one))) return true;
    return false;
}

static int
run_step(struct run *r, json_t *step)
{
    const char *name = json_string_value(json_object_get(step, "name"));
    char served[SERVING_NAME_SIZE] = "";
    struct error err = { 0 };
    size_t i;
    json_t *one;
    const int64_t start_ns = clock_monotonic_ns();

    json_array_foreach(json_object_get(step, "inputs"), i, one)
    {
        if (check_path(r, json_string_value(one), &err) != 0)
            return trainer_complain(TRAINER_CONFIG, "%s: what it needs is missing: %s", name, err.text);
    }
    if (is_skipped(r, step)) {
        say(r, "%s: the round kept nothing, there is nothing to learn", name);
        return set_state(r, step, "skipped", 0, &err) == 0 ? TRAINER_OK : trainer_failed(&err);
    }
    say(r, "%s", name);
    if (set_state(r, step, "running", 0, &err) != 0 || prepare_serving(r, step, served, &err) != 0)
        return trainer_failed(&err);
    int status = run_command(r, step, served);
    double seconds = (double)(clock_monotonic_ns() - start_ns) / 1e9;
    if (trainer_is_stopping() || status == TRAINER_RESUME) {
        set_state(r, step, "interrupted", seconds, &err);
        return TRAINER_RESUME;
    }
    if (status != TRAINER_OK) {
        set_state(r, step, "failed", seconds, &err);
        say(r, "%s failed with status %d", name, status);
        return status;
    }
    json_array_foreach(json_object_get(step, "outputs"), i, one)
    {
        if (check_path(r, json_string_value(one), &err) != 0)
            return trainer_complain(TRAINER_FAILED, "%s: what it should have left is not as it should be: %s",
                                    name, err.text);
    }
    return set_state(r, step, "done", seconds, &err) == 0 ? TRAINER_OK : trainer_failed(&err);
}

/* --- check and estimate --- */

static int
check_training(struct run *r, const char *section, const char *method)
{
    char path[] = "/tmp/trainer-check-XXXXXX", full[PATH_MAX];
    const char *config = conf_text(r, "", "model_config");
    AUTO_JSON json_t *settings = json_deep_copy(json_object_get(r->conf, section));
    json_object_set(settings, "model", runconf_get(r->conf, "", "model"));
    if (*config && *config != '/') { /* beside the configuration file */
        const char *slash = strrchr(r->file, '/');
        snprintf(full, sizeof(full), "%.*s/%s", slash ? (int)(slash - r->file) : 1, slash ? r->file : ".",
                 config);
        config = full;
    }
    AUTO_JSON json_t *request =
        json_pack("{s:O, s:f, s:s*}", "settings", settings, "gpu_memory_gb",
                  runconf_number(r->conf, "", "gpu_memory_gb"), "model_config", *config ? config : NULL);
    int fd = mkstemp(path);
    if (fd < 0 || json_dumpfd(request, fd, 0) != 0)
        return trainer_complain(TRAINER_CONFIG, "cannot write %s: %s", path, strerror(errno));
    close(fd);
    const char *argv[] = { NULL, "-m", "finetune", "check", method, path, NULL };
    int status = run_python(r, (char **)(uintptr_t)argv);
    unlink(path);
    return status;
}

static int
check(struct run *r)
{
    size_t i, k;
    json_t *step, *one;
    int status = TRAINER_OK;
    struct error err = { 0 };

    json_array_foreach(r->steps, i, step) json_array_foreach(json_object_get(step, "inputs"), k, one)
    {
        const char *path = json_string_value(one);
        if (!is_made(r, path) && check_path(r, path, &err) != 0)
            status = trainer_complain(TRAINER_CONFIG, "%s: %s",
                                      json_string_value(json_object_get(step, "name")), err.text);
    }
    if (status != TRAINER_OK)
        return status;
    const char *method = conf_text(r, "rl", "method");
    int sft = check_training(r, "sft", "sft");
    int rl = check_training(r, "train", method);
    status = sft ? sft : rl;
    if (status == TRAINER_OK)
        printf("%s: %zu steps, their files, memory and shapes are well\n", r->file,
               json_array_size(r->steps));
    return status;
}

static double
rows_expected(const struct run *r)
{
    double n = runconf_number(r->conf, "prepare", "max_samples");
    return n > 0 ? n : 18000; /* all of KernelBook */
}

/* Hours of one GPU: tokens by the speeds of the section "estimate", verdicts by theirs. */
static double
hours_of(const struct run *r, json_t *step)
{
    const char *name = json_string_value(json_object_get(step, "name"));
    const char *command = json_string_value(json_array_get(json_object_get(step, "argv"), 0));
    double token_s = 1 / runconf_number(r->conf, "estimate", "train_tokens_per_s");
    double sampled_s = 1 / runconf_number(r->conf, "estimate", "sample_tokens_per_s");
    double verdict_s = 1 / runconf_number(r->conf, "estimate", "verdicts_per_s");
    double row = runconf_number(r->conf, "estimate", "row_tokens");
    double answer = runconf_number(r->conf, "endpoint", "max_tokens") / 2, s = 0;
    double asked = runconf_number(r->conf, "rl", "max_tasks") * runconf_number(r->conf, "rl", "samples");
    const bool is_sft = strcmp(name, "sft") == 0;
    const char *section = is_sft ? "sft" : "train";

    if (strcmp(command, "prepare") == 0 && strcmp(name, "prepare") == 0)
        s = rows_expected(r) * verdict_s;
    else if (strcmp(command, "bestofn") == 0)
        s = asked * (answer * sampled_s + verdict_s);
    else if (strcmp(command, "evaluate") == 0)
        s = runconf_number(r->conf, "evaluate", "max_tasks") *
            runconf_number(r->conf, "evaluate", "samples") * (answer * sampled_s + verdict_s);
    else if (strcmp(command, "reinforce") == 0 || strcmp(command, "grpo") == 0)
        s = runconf_number(r->conf, "train", "epochs") * runconf_number(r->conf, "rl", "max_tasks") *
            runconf_number(r->conf, "train", "samples") *
            (runconf_number(r->conf, "train", "answer_tokens") / 2 * sampled_s + row * token_s + verdict_s);
    else if (json_is_true(json_object_get(step, "trains"))) {
        double rows =
            is_sft ? rows_expected(r)
                   : runconf_number(r->conf, "rl", "max_tasks") * runconf_number(r->conf, "rl", "keep");
        s = runconf_number(r->conf, section, "epochs") * rows * row * token_s;
    }
    return s / 3600;
}

static int
estimate(const struct run *r)
{
    size_t i;
    json_t *step;
    double price = runconf_number(r->conf, "", "gpu_price"), total = 0;

    printf("%-20s %12s %12s\n", "step", "GPU hours", "price");
    json_array_foreach(r->steps, i, step)
    {
        double hours = hours_of(r, step);
        total += hours;
        printf("%-20s %12.2f %12.2f\n", json_string_value(json_object_get(step, "name")), hours,
               hours * price);
    }
    printf("%-20s %12.2f %12.2f\n", "all", total, total * price);
    printf("at %g trained and %g sampled tokens a second and %g verdicts a second of one GPU, %g tokens a "
           "row, %g for a GPU hour "
           "(section estimate, gpu_price)\n",
           runconf_number(r->conf, "estimate", "train_tokens_per_s"),
           runconf_number(r->conf, "estimate", "sample_tokens_per_s"),
           runconf_number(r->conf, "estimate", "verdicts_per_s"),
           runconf_number(r->conf, "estimate", "row_tokens"), price);
    return TRAINER_OK;
}

/* --- what goes along: copies to a remote, and a look at the cloud's notices --- */

/* This program with a command and up to three arguments, as a child that ends with us. 0: it could not be started. */
static pid_t
spawn_own(const struct run *r, const char *command, const char *one, const char *two, const char *three)
{
    char workdir[PATH_MAX + 16];
    const char *argv[] = { r->program, command, workdir, one, two, three, NULL };
    snprintf(workdir, sizeof(workdir), "--workdir=%s", r->workdir);
    pid_t pid = spawn(r->program, (char **)(uintptr_t)argv);
    return pid < 0 ? 0 : pid;
}

/* The remote is written, read back and compared before anything else is done. */
static int
go_along(struct run *r, pid_t *sync, pid_t *watch)
{
    char remote[1100], every[64], copy[1100], clouds[300], pid[32];
    const char *engine = conf_text(r, "sync", "engine");
    bool is_rclone = strcmp(engine, "rclone") == 0;

    snprintf(remote, sizeof(remote), "--remote=%s", conf_text(r, "sync", "remote"));
    snprintf(copy, sizeof(copy), "--copy-command=%s", engine);
    snprintf(every, sizeof(every), "--every=%d", (int)runconf_number(r->conf, "sync", "every_s"));
    if (*conf_text(r, "sync", "remote")) {
        pid_t probe = spawn_own(r, "sync", remote, "--probe", is_rclone ? NULL : copy);
        int status = probe ? wait_for(probe) : TRAINER_CONFIG;
        if (status != TRAINER_OK) {
            say(r, "the remote %s cannot be used: nothing was begun", conf_text(r, "sync", "remote"));
            return status;
        }
        *sync = spawn_own(r, "sync", remote, every, is_rclone ? NULL : copy);
    }
    snprintf(clouds, sizeof(clouds), "--clouds=%s", conf_text(r, "watch", "clouds"));
    snprintf(pid, sizeof(pid), "--pid=%d", (int)getpid());
    if (*conf_text(r, "watch", "clouds"))
        *watch = spawn_own(r, "watch", clouds, pid, NULL);
    return TRAINER_OK;
}

static void
end(pid_t pid, int signal_number)
{
    if (pid > 0 && kill(pid, signal_number) == 0)
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
}

/* After the last step, or the interrupted one: the last copy. */
static void
come_home(struct run *r, pid_t sync, pid_t watch)
{
    char remote[1100], copy[1100];
    const char *engine = conf_text(r, "sync", "engine");
    end(watch, SIGKILL);
    if (sync == 0)
        return;
    end(sync, SIGTERM);
    snprintf(remote, sizeof(remote), "--remote=%s", conf_text(r, "sync", "remote"));
    snprintf(copy, sizeof(copy), "--copy-command=%s", engine);
    pid_t last = spawn_own(r, "sync", remote, strcmp(engine, "rclone") == 0 ? NULL : copy, NULL);
    if (last && wait_for(last) != TRAINER_OK)
        say(r, "the last copy to %s failed: trainer sync --remote=...", conf_text(r, "sync", "remote"));
}

/* --- the whole --- */

static void
apply_dry_run(struct run *r)
{
    static const struct {
        const char *section, *key;
        int value;
    } small[] = { { "prepare", "max_samples", 100 },
                  { "rl", "max_tasks", 5 },
                  { "rl", "rounds", 1 },
                  { "rl", "held_out_tasks", 5 },
                  { "evaluate", "max_tasks", 5 } };
    if (r->max_samples > 0)
        json_object_set_new(json_object_get(r->conf, "prepare"), "max_samples", json_integer(r->max_samples));
    for (size_t i = 0; r->is_dry && i < ARRAY_LEN(small); i++)
        json_object_set_new(json_object_get(r->conf, small[i].section), small[i].key,
                            json_integer(small[i].value));
}

static int
open_workdir(struct run *r, struct error *err)
{
    const char *wanted = *conf_text(r, "", "workdir") ? conf_text(r, "", "workdir") : r->trainer->workdir;
    char made[OUTPUT_PATH_MAX], dry[PATH_MAX];

    snprintf(dry, sizeof(dry), "%s%s", wanted, r->is_dry ? "/dry_run" : "");
    if (r->is_check || r->is_estimate) {
        if (!realpath(dry, r->workdir))
            snprintf(r->workdir, sizeof(r->workdir), "%s", dry);
        return 0;
    }
    int rc = output_path(dry, "outputs", "endpoint.log", made, err);
    if (rc != 0)
        return rc;
    if (!realpath(dry, r->workdir))
        return error_set(err, ERR_SYS, "cannot use the working directory %s", dry);
    rc = output_path(r->workdir, "outputs", "endpoint.log", r->serving_log, err);
    snprintf(r->log_path, sizeof(r->log_path), "%s/training.log", r->workdir);
    return rc == 0 ? output_path(r->workdir, ".", "run.json", r->state_path, err) : rc;
}

static int
open_state(struct run *r, struct error *err)
{
    r->state = json_load_file(r->state_path, 0, NULL);
    if (!r->state && access(r->state_path, F_OK) == 0)
        return error_set(err, ERR_INPUT, "%s cannot be read: remove it to begin again", r->state_path);
    if (!r->state)
        r->state = json_pack("{s:{}}", "steps");
    json_object_set(r->state, "configuration", r->conf);
    json_object_set_new(r->state, "file", json_string(r->file));
    json_object_set_new(r->state, "pid", json_integer(getpid()));
    return write_state(r, err);
}

static int
run_steps(struct run *r)
{
    size_t i;
    json_t *step;
    int status = TRAINER_OK;
    json_array_foreach(r->steps, i, step)
    {
        if (is_finished(r, step)) {
            say(r, "%s was done already", json_string_value(json_object_get(step, "name")));
            continue;
        }
        status = trainer_is_stopping() ? TRAINER_RESUME : run_step(r, step);
        if (status != TRAINER_OK)
            break;
    }
    if (status == TRAINER_OK)
        say(r, "done: %s/outputs/report.html", r->workdir);
    else if (status == TRAINER_RESUME)
        say(r, "interrupted: the same command goes on");
    return status;
}

static int
run_locked(struct run *r, struct error *err)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof(path), "%s/run.lock", r->workdir);
    AUTO_FD int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock < 0)
        return error_set(err, ERR_SYS, "cannot open %s", path), trainer_failed(err);
    if (flock(lock, LOCK_EX | LOCK_NB) != 0)
        return trainer_complain(TRAINER_CONFIG, "another run works in %s", r->workdir);
    if (open_state(r, err) != 0)
        return trainer_failed(err);
    pid_t sync = 0, watch = 0;
    int status = go_along(r, &sync, &watch);
    status = status == TRAINER_OK ? run_steps(r) : status;
    serving_stop(&r->serving);
    come_home(r, sync, watch);
    return status;
}

static void
serving_configure(struct run *r)
{
    const char *named = conf_text(r, "endpoint", "model"), *url = conf_text(r, "endpoint", "url");
    const char *otherwise = r->trainer->endpoint_url ? r->trainer->endpoint_url : "http://127.0.0.1:8000/v1";
    r->serving = (struct serving){ .url = *url ? url : otherwise,
                                   .command = conf_text(r, "endpoint", "start"),
                                   .model = conf_text(r, "", "model"),
                                   .name = *named ? named : conf_text(r, "", "model"),
                                   .log = r->serving_log,
                                   .wait_s = (int)runconf_number(r->conf, "endpoint", "wait_s") };
}

static int
run_configured(struct run *r)
{
    struct error err = { 0 };

    apply_dry_run(r);
    if (open_workdir(r, &err) != 0)
        return trainer_failed(&err);
    if (*conf_text(r, "verifier", "url"))
        r->trainer->daemon_url = conf_text(r, "verifier", "url");
    serving_configure(r);
    make_plan(r);
    /* What the file names is below the working directory, for this program and for what it starts. */
    if (chdir(r->workdir) != 0 && !r->is_check && !r->is_estimate)
        return trainer_complain(TRAINER_CONFIG, "cannot use %s: %s", r->workdir, strerror(errno));
    if (finetune_environment(&err) != 0)
        return trainer_failed(&err);
    return r->is_check ? check(r) : r->is_estimate ? estimate(r) : run_locked(r, &err);
}

int
run_command_line(struct trainer *t, int argc, char **argv)
{
    struct run r = { .trainer = t, .stage = "all", .max_samples = -1, .steps = json_array() };
    struct error err = { 0 };

    argp_parse(&argp, argc, argv, 0, NULL, &r);
    AUTO_FREE char *file = realpath(r.file, NULL);
    r.file = file ? file : r.file;
    int status = readlink("/proc/self/exe", r.program, sizeof(r.program) - 1) <= 0
                     ? trainer_complain(TRAINER_CONFIG, "cannot find this program")
                 : runconf_read(r.file, &r.conf, &err) != 0 ? trainer_failed(&err)
                                                            : run_configured(&r);
    json_decref(r.conf);
    json_decref(r.steps);
    json_decref(r.state);
    return status;
}
