/*
 * trainer sft, weighted, reinforce, grpo: check the options, write them down, and run the Python program that
 * takes the gradient steps (client/python/finetune). Its exit status is ours: 75 means that it is to be run again.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/trainer/child.h"
#include "client/trainer/daemon.h"
#include "client/trainer/options.h"
#include "client/trainer/output.h"
#include "client/trainer/prompt.h"
#include "client/trainer/rules.h"
#include "client/trainer/settings.h"
#include "client/trainer/trainer.h"
#include "common/auto.h"
#include "common/program.h"

struct train {
    struct trainer *trainer;
    struct task_options tasks; /* reinforce, grpo */
    const char *method;        /* "bestofn" is sft with that preset */
    const char *preset;        /* "plain", of reinforce; NULL: none */
    const char *python, *accelerate_config, *policy;
    int gpus;
    json_t *table, *values; /* borrowed from train_command() */
    bool is_printed;
};

enum { OPT_FIRST = 2000, OPT_PRESET = 512, OPT_PYTHON, OPT_GPUS, OPT_ACCELERATE, OPT_POLICY, OPT_PRINT };

static const struct argp_option fixed[] = {
    { "preset", OPT_PRESET, "NAME", 0,
      "sft: the defaults of fine-tuning on what Best-of-N kept (bestofn); reinforce: those of the plain "
      "method, one "
      "answer to each task at temperature 0.8 and no baseline (plain)",
      0 },
    { "python", OPT_PYTHON, "PROGRAM", 0,
      "The interpreter that has torch, transformers and peft (or TRAINER_PYTHON; default python3)", 0 },
    { "gpus", OPT_GPUS, "N", 0, "Processes, one for each GPU, by `accelerate launch` (default 1)", 0 },
    { "accelerate-config", OPT_ACCELERATE, "FILE", 0, "What `accelerate config` wrote, for accelerate launch",
      0 },
    { "policy", OPT_POLICY, "FILE|NAME,KEY=VALUE,...", 0,
      "reinforce, grpo: what is judged and how, as hybrid,shapes=require; by default strict at level 1 and "
      "hybrid above",
      0 },
    { "print-settings", OPT_PRINT, NULL, 0, "Print all settings as JSON, and train nothing", 0 },
};

/* --learning-rate for learning_rate. */
static void
dashed(char *text)
{
    for (; *text; text++)
        *text = *text == '_' ? '-' : *text;
}

static bool
is_by_reward(const char *method)
{
    return strcmp(method, "reinforce") == 0 || strcmp(method, "grpo") == 0;
}

/* Refuses here a value that the daemon would refuse at the first step. */
static void
put_setting(struct train *t, json_t *row, char *text, struct argp_state *state)
{
    const char *name = json_string_value(json_object_get(row, "name")), *until;
    AUTO_JSON json_t *reward = json_object();
    struct error err = { 0 };

    if (strcmp(name, "reward") == 0)
        option_reward(state, "--reward", text, reward);
    if (strcmp(name, "until") == 0)
        option_until(state, "--until", text, &until);
    if (settings_put(t->values, row, text, &err) != 0)
        argp_error(state, "%s", err.text);
}

/* A setting's value where the line gives none. */
static json_t *
default_of(const struct train *t, json_t *row)
{
    json_t *preset = t->preset ? json_object_get(json_object_get(row, "presets"), t->preset) : NULL;
    return preset ? preset : settings_default(row, t->method);
}

static json_t *
value_of(const struct train *t, const char *name)
{
    json_t *given = json_object_get(t->values, name), *row;
    size_t i;
    json_array_foreach(t->table, i, row)
    {
        if (!given && strcmp(json_string_value(json_object_get(row, "name")), name) == 0)
            given = default_of(t, row);
    }
    return given;
}

/* One answer to a task has nothing to be compared with but a baseline of none. */
static void
check_samples(const struct train *t, struct argp_state *state)
{
    const char *baseline = json_string_value(value_of(t, "baseline"));
    bool is_plain = strcmp(t->method, "reinforce") == 0 && baseline && strcmp(baseline, "none") == 0;
    if (is_by_reward(t->method) && json_integer_value(value_of(t, "samples")) == 1 && !is_plain)
        argp_error(
            state,
            "--samples=1 leaves nothing to compare an answer with: more, or reinforce with --baseline=none");
}

static void
take_preset(struct argp_state *state, const char *name, char *arg, void *out)
{
    struct train *t = out;

    if (strcmp(t->method, "sft") == 0 && strcmp(arg, "bestofn") == 0)
        t->method = "bestofn";
    else if (strcmp(t->method, "reinforce") == 0 && strcmp(arg, "plain") == 0)
        t->preset = "plain";
    else
        argp_error(state, "%s: there are bestofn, of sft, and plain, of reinforce", name);
}

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct train *t = state->input;
    const struct take rows[] = {
        TAKE_INPUT(t->trainer),
        TAKE_INPUT(&t->tasks),
        TAKE_CALL(OPT_PRESET, take_preset, t),
        TAKE_TEXT(OPT_PYTHON, &t->python),
        TAKE_INT(OPT_GPUS, &t->gpus, 1, 1024),
        TAKE_TEXT(OPT_ACCELERATE, &t->accelerate_config),
        TAKE_CALL(OPT_POLICY, option_policy, &t->policy),
        TAKE_FLAG(OPT_PRINT, &t->is_printed),
    };

    if (key == ARGP_KEY_END)
        check_samples(t, state);
    if (key < OPT_FIRST || key >= OPT_FIRST + (int)json_array_size(t->table))
        return take(rows, ARRAY_LEN(rows), key, arg, state);
    put_setting(t, json_array_get(t->table, (size_t)(key - OPT_FIRST)), arg, state);
    return 0;
}

static const struct argp_child by_data[] = { { &trainer_common_argp, 0, NULL, -1 }, { 0 } };
static const struct argp_child by_reward[] = { { &trainer_daemon_argp, 0, NULL, -1 },
                                               { &task_options_argp, 0, NULL, -2 },
                                               { 0 } };

/* argp's table from ours: the fixed ones, then a row for each setting that the method looks at. */
static void
parse_options(struct train *t, int argc, char **argv)
{
    size_t n = json_array_size(t->table), used = ARRAY_LEN(fixed);
    struct argp_option *options = calloc(ARRAY_LEN(fixed) + n + 1, sizeof(*options));
    const bool is_sft = strcmp(t->method, "sft") == 0;

    if (!options)
        abort();
    memcpy(options, fixed, sizeof(fixed));
    for (size_t i = 0; i < n; i++) {
        json_t *row = json_array_get(t->table, i);
        char *name = strdup(json_string_value(json_object_get(row, "name")));
        if (!name)
            abort();
        bool is_ours = settings_concern(row, t->method) || (is_sft && settings_concern(row, "bestofn"));
        if (is_ours) {
            dashed(name);
            options[used++] = (struct argp_option){
                name, OPT_FIRST + (int)i, "VALUE", 0, json_string_value(json_object_get(row, "help")), 1
            };
        } else {
            free(name);
        }
    }
    const struct argp argp = { options,
                               parse,
                               NULL,
                               "Train an adapter. Each setting stands in docs/pipeline.md.",
                               is_by_reward(t->method) ? by_reward : by_data,
                               NULL,
                               NULL };
    argp_parse(&argp, argc, argv, 0, NULL, t);
    for (size_t i = ARRAY_LEN(fixed); i < used; i++)
        free((char *)(uintptr_t)options[i].name);
    free(options);
}

/* All settings of the method: what was given over its defaults. */
static void
complete(struct train *t)
{
    size_t i;
    json_t *row;
    json_array_foreach(t->table, i, row)
    {
        const char *name = json_string_value(json_object_get(row, "name"));
        if (!json_object_get(t->values, name))
            json_object_set(t->values, name, default_of(t, row));
    }
}

/* One task as the Python needs it: its id with the daemon, the prompt, the class that it asks for, and the policy. */
static int
add_task(struct train *t, struct http_client *c, const struct task *task, json_t *out, struct error *err)
{
    char id[DAEMON_ID_SIZE];
    AUTO_BUFFER struct buffer prompt = BUFFER_INIT;
    AUTO_FREE char *wanted = task_class_wanted(task);
    AUTO_JSON json_t *policy = NULL;
    int rc = wanted ? prompt_make(task->reference, wanted, t->policy, &prompt) : ERR_NOMEM;
    rc = rc == 0 ? daemon_add_task(c, task, id, err) : error_set(err, ERR_NOMEM, "out of memory");
    if (rc == ERR_INPUT || rc == ERR_CONFLICT) {
        fprintf(stderr, "trainer: left out: %s: %s\n", task->name, err->text);
        return 0;
    }
    rc = rc == 0 ? rules_of(t->policy, task->level, NULL, &policy, err) : rc;
    if (rc == 0)
        json_array_append_new(out, json_pack("{s:s, s:s, s:s, s:s, s:O, s:i}", "name", task->name, "id", id,
                                             "prompt", prompt.data, "entry_point", wanted, "policy", policy,
                                             "level", task->level));
    return rc;
}

static int
add_tasks(struct train *t, json_t *request, struct error *err)
{
    struct task_set set = { 0 };
    struct http_client *c = NULL;
    json_t *tasks = json_array();

    json_object_set_new(request, "tasks", tasks);
    json_object_set_new(request, "daemon", json_string(t->trainer->daemon_url));
    int rc = task_options_load(&t->tasks, (uint64_t)json_integer_value(value_of(t, "seed")), &set, err);
    rc = rc == 0 ? daemon_open(t->trainer, &c, err) : rc;
    for (size_t i = 0; rc == 0 && i < set.n; i++)
        rc = add_task(t, c, &set.tasks[i], tasks, err);
    if (rc == 0 && json_array_size(tasks) == 0)
        rc = error_set(err, ERR_INPUT, "none of the %zu tasks can be judged", set.n);
    http_client_free(c);
    tasks_free(&set);
    return rc;
}

int
finetune_environment(struct error *err)
{
    char home[PATH_MAX], module[PATH_MAX];
    AUTO_FREE char *all = NULL;
    const char *before = program_environment("PYTHONPATH", "");
    if (!program_beside("../lib/verifierd", home) ||
        !program_beside("../lib/verifierd/finetune/__main__.py", module))
        return error_set(err, ERR_SYS, "the package finetune is not there: install it with the program");
    if (asprintf(&all, "%s%s%s", home, *before ? ":" : "", before) < 0)
        return error_set(err, ERR_NOMEM, "out of memory");
    setenv("PYTHONPATH", all, 1);
    setenv("PYTHONSAFEPATH", "1", 1); /* not what lies in the working directory */
    return 0;
}

/* The path of the Python's status, next to the request: a launcher of several has its own. */
static void
status_path(const char *request, char path[OUTPUT_PATH_MAX])
{
    AUTO_JSON json_t *layout = settings_layout();
    const char *slash = strrchr(request, '/');
    snprintf(path, OUTPUT_PATH_MAX, "%.*s/%s", slash ? (int)(slash - request) : 1, slash ? request : ".",
             json_string_value(json_object_get(layout, "status")));
}

/* -1: it left none. */
static int
status_left(const char *path)
{
    char text[16] = "";
    FILE *file = fopen(path, "r");
    if (!file)
        return -1;
    bool is_read = fgets(text, sizeof(text), file) && *text >= '0' && *text <= '9';
    fclose(file);
    return is_read ? atoi(text) : -1;
}

/* A status of 0 is believed if our own program reports it, and the adapter is there and verifies. */
static int
check_trained(const struct train *t, int left, struct error *err)
{
    AUTO_JSON json_t *layout = settings_layout();
    char path[PATH_MAX];
    if (left < 0)
        return error_set(err, ERR_INPUT,
                         "%.100s ended with status 0 and trained nothing: is it a Python that has torch, "
                         "transformers and peft?",
                         t->python);
    const char *final = json_string_value(json_object_get(t->values, "final"));
    snprintf(path, sizeof(path), "%s/%s/%s/%s", t->trainer->workdir,
             json_string_value(json_object_get(layout, "checkpoints")), final,
             json_string_value(json_object_get(layout, "manifest")));
    return access(path, R_OK) == 0 ? 0 : error_set(err, ERR_SYS, "%s is no checkpoint: no %s", final, path);
}

/* May training begin here? Not before a restore (trainer resume) is finished; its mark names the remote. */
static int
check_restored(const char *workdir, struct error *err)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/.resume.json", workdir);
    AUTO_JSON json_t *mark = json_load_file(path, 0, NULL);
    const char *remote = json_string_value(json_object_get(mark, "remote"));
    if (!remote)
        return 0;
    return error_set(err, ERR_INPUT,
                     "a restore of %.60s was begun and not finished: trainer resume --remote=%.60s goes on",
                     remote, remote);
}

/* Train in a process of its own, until it has ended; *status is how. */
static int
train(const struct train *t, const char *request, int *status, struct error *err)
{
    char gpus[16], path[OUTPUT_PATH_MAX];
    const char *argv[16];
    int n = 0, rc = finetune_environment(err);
    if (rc != 0)
        return rc;
    argv[n++] = t->python;
    if (t->gpus > 1 || t->accelerate_config) {
        argv[n++] = "-m";
        argv[n++] = "accelerate.commands.launch";
        if (t->accelerate_config) {
            argv[n++] = "--config_file";
            argv[n++] = t->accelerate_config;
        }
        if (t->gpus > 1) {
            snprintf(gpus, sizeof(gpus), "%d", t->gpus);
            argv[n++] = "--num_processes";
            argv[n++] = gpus;
        }
    }
    argv[n++] = "-m";
    argv[n++] = "finetune";
    argv[n++] = t->method;
    argv[n++] = request;
    argv[n] = NULL;
    setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "3600", 0); /* seconds to leave a checkpoint in; torch has 30 */
    status_path(request, path);
    unlink(path);
    pid_t pid = child_spawn(t->python, (char *const *)(uintptr_t)argv);
    if (pid < 0)
        return error_set(err, ERR_SYS, "cannot start %s", t->python);
    *status = child_wait(pid);
    const int left = status_left(path);
    *status = left >= 0 ? left : *status;
    return *status == TRAINER_OK ? check_trained(t, left, err) : 0;
}

static int
train_command(struct trainer *trainer, const char *method, int argc, char **argv)
{
    AUTO_JSON json_t *table = settings_table(), *values = json_object(), *layout = settings_layout();
    struct train t = { .trainer = trainer,
                       .tasks = { .level = 0, .most = 0 },
                       .method = method,
                       .python = program_environment("TRAINER_PYTHON", "python3"),
                       .gpus = 1,
                       .table = table,
                       .values = values };
    struct error err = { 0 };
    char digest[HASH_TEXT_SIZE], plain[HASH_TEXT_SIZE], with_sizes[HASH_TEXT_SIZE], sub[512],
        path[OUTPUT_PATH_MAX];
    int status = TRAINER_CONFIG;

    parse_options(&t, argc, argv);
    complete(&t);
    if (t.is_printed) {
        json_dumpf(values, stdout, JSON_INDENT(2));
        putchar('\n');
        return TRAINER_OK;
    }
    AUTO_FREE char *workdir = realpath(trainer->workdir, NULL);
    prompt_digest(t.policy, digest);
    prompt_digest("shapes=require", with_sizes);
    prompt_digest(NULL, plain);
    AUTO_JSON json_t *request =
        json_pack("{s:s, s:O, s:s, s:s, s:[s, s]}", "method", t.method, "settings", values, "workdir",
                  workdir ? workdir : trainer->workdir, "prompt", digest, "prompts", plain, with_sizes);
    const char *run = json_string_value(json_object_get(values, "run"));
    if (!*run || strchr(run, '/') || *run == '.')
        return trainer_complain(TRAINER_CONFIG, "run: \"%s\" is no name for a directory", run);
    int rc = check_restored(trainer->workdir, &err);
    rc = rc == 0 && is_by_reward(t.method) ? add_tasks(&t, request, &err) : rc;
    snprintf(sub, sizeof(sub), "%s/train_%.200s", json_string_value(json_object_get(layout, "outputs")), run);
    rc = rc == 0 ? output_path(trainer->workdir, sub, "request.json", path, &err) : rc;
    rc = rc == 0 ? output_document(path, request, &err) : rc;
    rc = rc == 0 ? train(&t, path, &status, &err) : rc;
    return rc == 0 ? status : trainer_failed(&err);
}

int
sft_command(struct trainer *t, int argc, char **argv)
{
    return train_command(t, "sft", argc, argv);
}

int
weighted_command(struct trainer *t, int argc, char **argv)
{
    return train_command(t, "weighted", argc, argv);
}

int
reinforce_command(struct trainer *t, int argc, char **argv)
{
    return train_command(t, "reinforce", argc, argv);
}

int
grpo_command(struct trainer *t, int argc, char **argv)
{
    return train_command(t, "grpo", argc, argv);
}
