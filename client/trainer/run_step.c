#include "client/trainer/run_step.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/trainer/child.h"
#include "client/trainer/options.h"
#include "client/trainer/run_along.h"
#include "client/trainer/run_files.h"
#include "client/trainer/run_state.h"
#include "client/trainer/runconf.h"
#include "common/auto.h"
#include "common/clock.h"
#include "common/extract.h"

enum { EXTRACTED_ROWS = 20 };

/* --- what this program does itself --- */

/* Known-good answers have to give code: what cannot be extracted from these never is from a model's. */
static int
check_extraction(const struct run *r)
{
    char full[PATH_MAX];
    AUTO_FREE char *line = NULL;
    size_t capacity = 0, rows = 0, good = 0;
    FILE *file = fopen(run_path(r, "data/processed/sft_train.jsonl", full), "r");

    while (file && rows < EXTRACTED_ROWS && getline(&line, &capacity, file) > 0) {
        AUTO_JSON json_t *row = json_loads(line, 0, NULL);
        json_t *output = json_object_get(row, "output");
        struct extract code;
        rows++;
        good += json_is_string(output) &&
                extract_code(json_string_value(output), json_string_length(output), NULL, &code) == 0 &&
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
    run_say(r, "code is extracted from all of the first %zu known-good answers", rows);
    return TRAINER_OK;
}

/* All inputs one after the other as the output. */
static int
join(const struct run *r, json_t *step)
{
    enum { MOST = 4 };
    char full[MOST + 1][PATH_MAX];
    const char *parts[MOST] = { NULL },
               *out = json_string_value(json_array_get(json_object_get(step, "outputs"), 0));
    struct error err = { 0 };
    json_t *one;
    size_t i;

    json_array_foreach(json_object_get(step, "inputs"), i, one)
    {
        assert(i < MOST);
        parts[i] = run_path(r, json_string_value(one), full[i]);
    }
    return output_joined(run_path(r, out, full[MOST]), parts, i, &err) == 0 ? TRAINER_OK
                                                                            : trainer_failed(&err);
}

static int
publish(const struct run *r)
{
    char name[RUN_ADAPTER_SIZE], source[PATH_MAX], root[PATH_MAX];
    run_state_adapter(r, 0, name);
    const char *argv[] = {
        NULL,       "-m", "finetune", "publish", run_path(r, name, source), run_path(r, "checkpoints", root),
        "rl_final", NULL
    };
    return run_python_wait(r, argv);
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
    pid_t pid = child_spawn(verifier, argv);
    return pid < 0 ? TRAINER_CONFIG : child_wait(pid, run_along_tend, r->along);
}

/* --- what is a process of its own --- */

/* A step's arguments with {served} and {adapter} put in. Freed by the caller, each and all. */
static char **
arguments(const struct run *r, json_t *step, const char *served)
{
    json_t *argv = json_object_get(step, "argv"), *one;
    char **out = calloc(json_array_size(argv) + 3, sizeof(*out)), name[RUN_ADAPTER_SIZE], adapter[PATH_MAX];
    size_t i, n = 0;

    run_state_adapter(r, run_round_of(step), name);
    run_path(r, name, adapter);
    if (!out)
        abort();
    out[n++] = strdup(r->program);
    json_array_foreach(argv, i, one)
    {
        const char *text = json_string_value(one), *mark;
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

int
run_step_check(const struct run *r, json_t *step)
{
    const char *command = json_string_value(json_array_get(json_object_get(step, "argv"), 0));
    if (*command == '@')
        return TRAINER_OK;
    char **argv = arguments(r, step, "model");
    argv[json_array_size(json_object_get(step, "argv")) + 1] = strdup("--check-arguments");
    pid_t pid = child_spawn(r->program, argv);
    int status = pid < 0 ? TRAINER_CONFIG : child_wait(pid, NULL, NULL);
    arguments_free(argv);
    return status;
}

static int
run_command(struct run *r, json_t *step, const char *served)
{
    const char *command = json_string_value(json_array_get(json_object_get(step, "argv"), 0));

    if (strcmp(command, "@selftest") == 0)
        return run_selftest(r);
    if (strcmp(command, "@extraction") == 0)
        return check_extraction(r);
    if (strcmp(command, "@join") == 0)
        return join(r, step);
    if (strcmp(command, "@publish") == 0)
        return publish(r);
    char **argv = arguments(r, step, served);
    pid_t pid = child_spawn(r->program, argv);
    int status = pid < 0 ? TRAINER_CONFIG : child_wait(pid, run_along_tend, r->along);
    arguments_free(argv);
    return status;
}

/* --- a step from its inputs to its outputs --- */

/* What serves has the model; what trains has the GPUs. */
static int
prepare_serving(struct run *r, json_t *step, char served[SERVING_NAME_SIZE], struct error *err)
{
    char name[PATH_MAX], adapter[PATH_MAX] = "";
    const char *wanted = json_string_value(json_object_get(step, "serve"));
    if (!wanted) {
        if (json_is_true(json_object_get(step, "trains")) &&
            !json_is_true(runconf_get(r->conf, "endpoint", "keep")))
            serving_stop(&r->serving);
        return 0;
    }
    if (strcmp(wanted, "{adapter}") == 0)
        run_state_adapter(r, run_round_of(step), name);
    else
        snprintf(name, sizeof(name), "checkpoints/%s", wanted);
    if (*wanted)
        run_path(r, name, adapter);
    int rc = serving_start(&r->serving, err);
    return rc == 0 ? serving_adapter(&r->serving, adapter, served, err) : rc;
}

static bool
is_empty(const struct run *r, const char *path)
{
    char full[PATH_MAX];
    struct stat st;
    return stat(run_path(r, path, full), &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0;
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

int
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
        if (run_path_check(r, json_string_value(one), &err) != 0)
            return trainer_complain(TRAINER_CONFIG, "%s: what it needs is missing: %s", name, err.text);
    }
    if (is_skipped(r, step)) {
        run_say(r, "%s: the round kept nothing, there is nothing to learn", name);
        return run_state_set(r, step, "skipped", 0, &err) == 0 ? TRAINER_OK : trainer_failed(&err);
    }
    const bool is_other = run_state_is_other(r, step);
    run_say(r, "%s", name);
    if (run_state_set(r, step, "running", 0, &err) != 0 || prepare_serving(r, step, served, &err) != 0)
        return trainer_failed(&err);
    int status = run_command(r, step, served);
    double seconds = (double)(clock_monotonic_ns() - start_ns) / 1e9;
    if (status ==
        TRAINER_UNEXTRACTED) { /* its report is there and says so; run_steps() looks at it at the end */
        run_say(r, "%s: no code was found in any answer", name);
        status = TRAINER_OK;
    }
    if (trainer_is_stopping() || status == TRAINER_RESUME) {
        run_state_set(r, step, "interrupted", seconds, &err);
        return TRAINER_RESUME;
    }
    if (status != TRAINER_OK) {
        run_state_set(r, step, "failed", seconds, &err);
        run_say(r, "%s failed with status %d", name, status);
        if (is_other)
            run_say(r,
                    "%s was done before, with other arguments or from other inputs: begin again in another "
                    "--workdir, or remove what that left",
                    name);
        return status;
    }
    json_array_foreach(json_object_get(step, "outputs"), i, one)
    {
        if (run_path_check(r, json_string_value(one), &err) != 0)
            return trainer_complain(TRAINER_FAILED, "%s: what it should have left is not as it should be: %s",
                                    name, err.text);
    }
    return run_state_set(r, step, "done", seconds, &err) == 0 ? TRAINER_OK : trainer_failed(&err);
}
