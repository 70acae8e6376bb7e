/*
 * trainer run: from data to a report, by one configuration file.
 *
 * Theory of operation. The file becomes a list of steps, each with what it reads and what it leaves; a step is a command of
 * this program, in a process of its own, and can itself be gone on with. run.json in the working directory says which
 * steps are finished, and with which arguments: a run that was ended in any way is begun again with the same command. What no
 * step leaves is looked for before the first one; a step whose inputs are not there or do not verify ends the run before it is begun.
 */
#include "client/trainer/run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "client/trainer/child.h"
#include "client/trainer/options.h"
#include "client/trainer/restore.h"
#include "client/trainer/run_along.h"
#include "client/trainer/run_check.h"
#include "client/trainer/run_estimate.h"
#include "client/trainer/run_files.h"
#include "client/trainer/run_plan.h"
#include "client/trainer/run_state.h"
#include "client/trainer/run_step.h"
#include "client/trainer/runconf.h"
#include "common/auto.h"
#include "common/clock.h"

enum { OPT_STAGE = 512, OPT_MAX_SAMPLES, OPT_DRY_RUN, OPT_ESTIMATE, OPT_CHECK };

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

/* --- what the other files use --- */

void
run_say(const struct run *r, const char *format, ...)
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

const char *
run_text(const struct run *r, const char *section, const char *key)
{
    return runconf_text(r->conf, section, key);
}

const char *
run_python(const struct run *r)
{
    const char *named = run_text(r, "", "python"), *python = getenv("TRAINER_PYTHON");
    return *named ? named : python && *python ? python : "python3";
}

int
run_python_wait(const struct run *r, const char **argv)
{
    argv[0] = run_python(r);
    pid_t pid = child_spawn(argv[0], (char *const *)(uintptr_t)argv);
    return pid < 0 ? TRAINER_CONFIG : child_wait(pid, run_along_tend, r->along);
}

/* --- the whole --- */

/* At most so much of everything, unless the command line says how many rows. */
static void
apply_limits(struct run *r)
{
    static const struct {
        const char *section, *key;
        int most;
    } small[] = { { "prepare", "max_samples", 100 },
                  { "rl", "max_tasks", 5 },
                  { "rl", "fused", 5 },
                  { "rl", "rounds", 1 },
                  { "rl", "held_out_tasks", 5 },
                  { "evaluate", "max_tasks", 5 } };
    for (size_t i = 0; r->is_dry && i < ARRAY_LEN(small); i++) {
        double n = runconf_number(r->conf, small[i].section, small[i].key);
        const bool is_none = n == 0 && strcmp(small[i].key, "fused") == 0; /* elsewhere 0 is all */
        if (!is_none && (n == 0 || n > small[i].most))
            json_object_set_new(json_object_get(r->conf, small[i].section), small[i].key,
                                json_integer(small[i].most));
    }
    if (r->max_samples > 0)
        json_object_set_new(json_object_get(r->conf, "prepare"), "max_samples", json_integer(r->max_samples));
}

/* A dry run works in a directory of its own: what the user named below the working directory is still there, and not here. */
static void
apply_place(struct run *r, const char *workdir)
{
    static const char *const named[][2] = { { "", "model" },          { "prepare", "file" },
                                            { "prepare", "overlap" }, { "rl", "tasks" },
                                            { "rl", "held_out" },     { "evaluate", "tasks" } };
    static const char *const made[] = { "data/", "outputs/", "checkpoints/", "evaluation/" };
    AUTO_FREE char *found = realpath(workdir, NULL);
    for (size_t i = 0; i < ARRAY_LEN(named); i++) {
        const char *value = run_text(r, named[i][0], named[i][1]);
        char full[PATH_MAX];
        bool is_users = *value && *value != '/';
        for (size_t k = 0; k < ARRAY_LEN(made); k++)
            is_users = is_users && strncmp(value, made[k], strlen(made[k])) != 0;
        snprintf(full, sizeof(full), "%s/%s", found ? found : workdir, value);
        if (is_users && access(full, F_OK) == 0) /* a model may also be a hub's */
            json_object_set_new(*named[i][0] ? json_object_get(r->conf, named[i][0]) : r->conf, named[i][1],
                                json_string(full));
    }
}

static int
open_workdir(struct run *r, struct error *err)
{
    const char *wanted = *run_text(r, "", "workdir") ? run_text(r, "", "workdir") : r->trainer->workdir;
    char made[OUTPUT_PATH_MAX], dry[PATH_MAX];

    snprintf(dry, sizeof(dry), "%s%s", wanted, r->is_dry ? "/dry_run" : "");
    if (r->is_dry)
        apply_place(r, wanted);
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

static void
serving_configure(struct run *r)
{
    const char *named = run_text(r, "endpoint", "model"), *url = run_text(r, "endpoint", "url");
    const char *otherwise = r->trainer->endpoint_url ? r->trainer->endpoint_url : "http://127.0.0.1:8000/v1";
    r->serving = (struct serving){ .url = *url ? url : otherwise,
                                   .command = run_text(r, "endpoint", "start"),
                                   .model = run_text(r, "", "model"),
                                   .name = *named ? named : run_text(r, "", "model"),
                                   .log = r->serving_log,
                                   .wait_s = (int)runconf_number(r->conf, "endpoint", "wait_s") };
}

/* A trained model that never answers with code failed, whatever its rates are. A base model may know no better. */
static int
check_extracted(struct run *r)
{
    static const char *const trained[] = { "sft_final", "rl_final" };
    int status = TRAINER_OK;
    for (size_t i = 0; i < ARRAY_LEN(trained); i++) {
        char path[PATH_MAX + 64];
        snprintf(path, sizeof(path), "outputs/eval_%s.json", trained[i]);
        if (!run_is_made(r, path))
            continue;
        snprintf(path, sizeof(path), "%s/outputs/eval_%s.json", r->workdir, trained[i]);
        AUTO_JSON json_t *report = json_load_file(path, 0, NULL);
        if (!json_is_true(json_object_get(report, "unextracted")))
            continue;
        status = TRAINER_UNEXTRACTED;
        run_say(r, "%s: no code was found in any answer of %s", path, trained[i]);
    }
    return status;
}

static int
run_steps(struct run *r)
{
    size_t i;
    json_t *step;
    int status = TRAINER_OK;
    json_array_foreach(r->steps, i, step)
    {
        if (run_state_is_finished(r, step)) {
            run_say(r, "%s was done already", json_string_value(json_object_get(step, "name")));
            continue;
        }
        status = trainer_is_stopping() ? TRAINER_RESUME : run_step(r, step);
        if (status != TRAINER_OK)
            break;
    }
    if (status == TRAINER_RESUME)
        run_say(r, "interrupted: the same command goes on");
    if (status != TRAINER_OK)
        return status;
    run_say(r, "done: %s/outputs/report.html", r->workdir);
    return check_extracted(r);
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
    if (restore_check(r->workdir, err) != 0 || run_state_open(r, err) != 0)
        return trainer_failed(err);
    if (run_check_ahead(r) != TRAINER_OK)
        return TRAINER_CONFIG;
    struct run_along along = { .run = r };
    r->along = &along;
    r->serving.tend = run_along_tend;
    r->serving.tended = &along;
    int status = run_along_start(&along);
    status = status == TRAINER_OK ? run_steps(r) : status;
    run_along_end(&along); /* first: after a notice each second counts */
    serving_stop(&r->serving);
    return status;
}

static int
run_configured(struct run *r)
{
    struct error err = { 0 };

    apply_limits(r);
    if (open_workdir(r, &err) != 0)
        return trainer_failed(&err);
    if (*run_text(r, "verifier", "url"))
        r->trainer->daemon_url = run_text(r, "verifier", "url");
    serving_configure(r);
    run_plan(r);
    /* What the file names is below the working directory, for this program and for what it starts. */
    if (chdir(r->workdir) != 0 && !r->is_check && !r->is_estimate)
        return trainer_complain(TRAINER_CONFIG, "cannot use %s: %s", r->workdir, strerror(errno));
    if (finetune_environment(&err) != 0)
        return trainer_failed(&err);
    if (*run_text(r, "", "devices")) /* for the endpoint and each step */
        setenv("CUDA_VISIBLE_DEVICES", run_text(r, "", "devices"), 1);
    return r->is_check ? run_check(r) : r->is_estimate ? run_estimate(r) : run_locked(r, &err);
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
