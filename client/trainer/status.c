/* trainer status: where a run stands, from what is in its working directory. Asks no service, changes nothing. */
#include "client/trainer/status.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/trainer/manifest.h"
#include "client/trainer/options.h"
#include "client/trainer/restore.h"
#include "client/trainer/trainer.h"
#include "common/auto.h"

struct status {
    struct trainer *trainer;
    bool is_json;
};

static const struct argp_option options[] = { { "json", 'j', NULL, 0, "Print JSON", 0 }, { 0 } };

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct status *s = state->input;
    (void)arg;
    if (key == ARGP_KEY_INIT)
        state->child_inputs[0] = s->trainer;
    if (key == 'j')
        s->is_json = true;
    return key == ARGP_KEY_INIT || key == 'j' ? 0 : ARGP_ERR_UNKNOWN;
}

static const struct argp_child children[] = { { &trainer_common_argp, 0, NULL, -1 }, { 0 } };
static const struct argp argp = { options, parse, NULL, "Where a run stands.", children, NULL, NULL };

json_t *
status_checkpoints(const char *workdir)
{
    char pattern[PATH_MAX];
    glob_t found;
    json_t *out = json_object();

    snprintf(pattern, sizeof(pattern), "%s/checkpoints/*/step-*", workdir);
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = found.gl_pathc; i-- > 0;) {
            AUTO_JSON json_t *manifest = NULL;
            struct error err = { 0 };
            if (manifest_verify(found.gl_pathv[i], &manifest, &err) != 0) {
                fprintf(stderr, "trainer: passed over: %s\n", err.text);
                continue;
            }
            const char *run = json_string_value(json_object_get(manifest, "run"));
            if (run && !json_object_get(out, run))
                json_object_set_new(out, run,
                                    json_pack("{s:s, s:O*, s:O*, s:O*}", "path", found.gl_pathv[i], "step",
                                              json_object_get(manifest, "step"), "steps",
                                              json_object_get(manifest, "steps"), "created",
                                              json_object_get(manifest, "created")));
        }
    globfree(&found);
    return out;
}

static json_t *
read_document(const char *workdir, const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", workdir, name);
    return json_load_file(path, 0, NULL);
}

static void
print(json_t *d)
{
    const char *name;
    json_t *one;
    printf("%s\n", json_is_true(json_object_get(d, "is_running")) ? "running" : "not running");
    json_object_foreach(json_object_get(d, "steps"), name, one) printf(
        "  %-18s %-12s %8.0f s  %s\n", name, json_string_value(json_object_get(one, "state")),
        json_number_value(json_object_get(one, "seconds")), json_string_value(json_object_get(one, "at")));
    json_object_foreach(json_object_get(d, "checkpoints"), name, one)
        printf("  checkpoint of %s: step %lld of %lld, %s\n", name,
               (long long)json_integer_value(json_object_get(one, "step")),
               (long long)json_integer_value(json_object_get(one, "steps")),
               json_string_value(json_object_get(one, "path")));
    json_object_foreach(json_object_get(d, "along"), name, one)
    {
        if (json_integer_value(json_object_get(one, "ended")) > 0)
            printf("  %s ended %lld times, last with %s at %s: %s\n", name,
                   (long long)json_integer_value(json_object_get(one, "ended")),
                   json_string_value(json_object_get(one, "how")),
                   json_string_value(json_object_get(one, "at")),
                   json_is_true(json_object_get(one, "is_running")) ? "runs again" : "does not run");
    }
    if (json_object_get(d, "restoring"))
        printf("  a restore was begun and not finished: trainer resume --remote=%s goes on\n",
               json_string_value(json_object_get(d, "restoring")));
    json_t *sync = json_object_get(d, "sync");
    if (sync) {
        double good = json_number_value(json_object_get(sync, "good_at"));
        const char *error = json_string_value(json_object_get(sync, "error"));
        if (good > 0)
            printf("  last good copy: %.0f s ago, to %s\n", difftime(time(NULL), (time_t)good),
                   json_string_value(json_object_get(sync, "remote")));
        else
            printf("  no good copy yet, to %s\n", json_string_value(json_object_get(sync, "remote")));
        if (error)
            printf("  the last attempt failed: %s\n", error);
    }
}

int
status_command(struct trainer *t, int argc, char **argv)
{
    struct status s = { .trainer = t };
    argp_parse(&argp, argc, argv, 0, NULL, &s);
    AUTO_JSON json_t *state = read_document(t->workdir, "run.json"),
                     *sync = read_document(t->workdir, "sync.json");
    json_t *found = status_checkpoints(t->workdir), *steps = json_object_get(state, "steps");
    pid_t pid = (pid_t)json_integer_value(json_object_get(state, "pid"));
    bool is_running = pid > 0 && (kill(pid, 0) == 0 || errno == EPERM);
    const char *name;
    json_t *step;

    AUTO_JSON json_t *restoring = restore_unfinished(t->workdir);
    if (!state && !restoring && json_object_size(found) == 0) {
        json_decref(found);
        return trainer_complain(TRAINER_CONFIG, "%s has neither a run nor a checkpoint", t->workdir);
    }
    AUTO_JSON json_t *document = json_pack(
        "{s:b, s:{}, s:o, s:O*, s:O*, s:O*}", "is_running", is_running, "steps", "checkpoints", found, "sync",
        sync, "along", is_running ? json_object_get(state, "along") : NULL, "restoring", restoring);
    json_object_foreach(steps, name, step)
    {
        const char *was = json_string_value(json_object_get(step, "state"));
        bool is_lost = !is_running && was && strcmp(was, "running") == 0;
        json_object_set_new(json_object_get(document, "steps"), name,
                            json_pack("{s:s, s:O*, s:O*}", "state", is_lost ? "interrupted" : was, "seconds",
                                      json_object_get(step, "seconds"), "at", json_object_get(step, "at")));
    }
    if (s.is_json) {
        json_dumpf(document, stdout, JSON_COMPACT);
        putchar('\n');
    } else {
        print(document);
    }
    return TRAINER_OK;
}
