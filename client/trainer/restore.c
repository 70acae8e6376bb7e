/*
 * trainer resume: what trainer sync copied, on a new machine.
 *
 * Theory of operation. The engine copies the remote into root/.resume; root/.resume.json says from where, and whether all has
 * arrived. Files of a checkpoint that are not as its manifest says are removed there and fetched once more. Then everything is
 * moved to its place, file by file, and the mark goes last. A process that is killed at any moment is begun again with the same
 * command: before all has arrived the engine goes on (what it skips is its own affair: rclone fetches what is not there
 * in its whole size and of its time), afterwards the moves do. No run begins in a directory that has the mark.
 */
#include "client/trainer/restore.h"

#include <errno.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/trainer/engine.h"
#include "client/trainer/manifest.h"
#include "client/trainer/options.h"
#include "client/trainer/output.h"
#include "client/trainer/trainer.h"
#include "common/auto.h"

#define MARK ".resume.json"
#define LANDING ".resume"
enum { ROOT_SIZE = 3000 };

struct restore {
    struct trainer *trainer;
    const char *remote, *copy;
    char root[ROOT_SIZE], landing[ROOT_SIZE + 16];
};

enum { OPT_REMOTE = 512, OPT_COPY };

static const struct argp_option options[] = {
    { "remote", OPT_REMOTE, "REMOTE", 0, "Where from: as trainer sync's", 0 },
    { "copy-command", OPT_COPY, "COMMAND", 0,
      "The engine: copies directory {source} into {target} (default: " ENGINE_COPY ")", 0 },
    { 0 },
};

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct restore *s = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = s->trainer;
        return 0;
    case OPT_REMOTE:
        s->remote = arg;
        return 0;
    case OPT_COPY:
        s->copy = arg;
        return 0;
    case ARGP_KEY_END:
        if (!s->remote || !*s->remote)
            argp_error(state, "where from? --remote REMOTE");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = { { &trainer_common_argp, 0, NULL, -1 }, { 0 } };
static const struct argp argp = {
    options,
    parse,
    NULL,
    "Restore a run from a remote, and check it. Ended in any way, it goes on when it is given again.",
    children,
    NULL,
    NULL
};

/* --- the mark --- */

json_t *
restore_unfinished(const char *workdir)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/" MARK, workdir);
    AUTO_JSON json_t *mark = json_load_file(path, 0, NULL);
    return json_incref(json_object_get(mark, "remote"));
}

int
restore_check(const char *workdir, struct error *err)
{
    AUTO_JSON json_t *remote = restore_unfinished(workdir);
    if (!remote)
        return 0;
    return error_set(err, ERR_INPUT,
                     "a restore of %.60s was begun and not finished: trainer resume --remote=%.60s goes on",
                     workdir, json_string_value(remote));
}

static int
mark(const struct restore *s, bool is_fetched, struct error *err)
{
    char path[OUTPUT_PATH_MAX];
    AUTO_JSON json_t *document = json_pack("{s:s, s:b}", "remote", s->remote, "is_fetched", is_fetched);
    int rc = output_path(s->root, ".", MARK, path, err);
    return rc == 0 ? output_document(path, document, err) : rc;
}

/* Was a restore begun here? *is_fetched: all of it has arrived. ERR_INPUT: it was of another remote, or a run is here. */
static int
look(const struct restore *s, bool *is_fetched, struct error *err)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/" MARK, s->root);
    AUTO_JSON json_t *before = json_load_file(path, 0, NULL);
    const char *remote = json_string_value(json_object_get(before, "remote"));

    *is_fetched = json_is_true(json_object_get(before, "is_fetched"));
    if (remote && strcmp(remote, s->remote) != 0)
        return error_set(
            err, ERR_INPUT,
            "%.80s: a restore of %.60s was begun here: go on with that, or take another directory", s->root,
            remote);
    snprintf(path, sizeof(path), "%s/checkpoints", s->root);
    if (!remote && access(path, F_OK) == 0)
        return error_set(err, ERR_INPUT, "%.160s is there already: restore into an empty directory", path);
    return 0;
}

/* --- fetching --- */

/* Each checkpoint's directory below root, finished adapters first: take(its path, its path from root on). The sum of what it returns. */
static int
each_checkpoint(const char *root, int (*take)(const char *path, const char *name))
{
    static const char *const patterns[] = { "checkpoints/*", "checkpoints/*/step-*" };
    int sum = 0;
    for (size_t k = 0; k < ARRAY_LEN(patterns); k++) {
        char pattern[PATH_MAX];
        struct stat st;
        glob_t found;
        snprintf(pattern, sizeof(pattern), "%s/%s", root, patterns[k]);
        if (glob(pattern, 0, NULL, &found) == 0)
            for (size_t i = 0; i < found.gl_pathc; i++)
                if (stat(found.gl_pathv[i], &st) == 0 && S_ISDIR(st.st_mode))
                    sum += take(found.gl_pathv[i], found.gl_pathv[i] + strlen(root) + 1);
        globfree(&found);
    }
    return sum;
}

static int
drop_damaged(const char *path, const char *name)
{
    (void)name;
    return manifest_drop_damaged(path);
}

/* From the remote into the landing, until what has a manifest is as it says, or is not so on the remote either. */
static int
fetch(const struct restore *s, struct error *err)
{
    int rc = mark(s, false, err);
    rc = rc == 0 ? engine_run(s->copy, s->remote, s->landing, err) : rc;
    if (rc == 0 && each_checkpoint(s->landing, drop_damaged) > 0)
        rc = engine_run(s->copy, s->remote, s->landing, err);
    if (rc != 0 && rmdir(s->landing) != 0 && errno != ENOENT)
        return rc; /* what has arrived is kept */
    if (rc != 0) {
        char path[PATH_MAX];
        snprintf(path, sizeof(path), "%s/" MARK, s->root);
        unlink(path); /* nothing has: nothing was begun */
        return rc;
    }
    return mark(s, true, err);
}

/* --- to its place --- */

static _Thread_local struct {
    const struct restore *s;
    struct error *err;
} moving; /* nftw() hands nothing to its callback */

static int
move_cb(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    char to[OUTPUT_PATH_MAX];
    (void)st;
    (void)at;
    if (kind != FTW_F)
        return 0;
    int rc = output_path(moving.s->root, ".", path + strlen(moving.s->landing) + 1, to, moving.err);
    if (rc == 0 && rename(path, to) != 0)
        rc = error_set(moving.err, ERR_SYS, "cannot move %s to its place", path);
    return rc;
}

static int
settle(const struct restore *s, struct error *err)
{
    char path[PATH_MAX];
    moving.s = s;
    moving.err = err;
    int rc = nftw(s->landing, move_cb, 16, FTW_PHYS);
    if (rc != 0 && err->code != ERR_NONE)
        return err->code;
    output_remove_tree(s->landing);
    snprintf(path, sizeof(path), "%s/" MARK, s->root);
    return unlink(path) == 0 ? 0 : error_set(err, ERR_SYS, "cannot remove %s", path);
}

/* --- the whole --- */

/* 1: it is a checkpoint. */
static int
tell(const char *path, const char *name)
{
    AUTO_JSON json_t *manifest = NULL;
    struct error why = { 0 };
    int rc = manifest_verify(path, &manifest, &why);
    if (rc == ERR_NOTFOUND)
        return 0; /* a run's directory, or cut off before its manifest: no checkpoint */
    if (rc != 0) {
        fprintf(stderr, "trainer: no checkpoint: %s\n", why.text);
        return 0;
    }
    printf("%s: %s, step %lld\n", name, json_string_value(json_object_get(manifest, "method")),
           (long long)json_integer_value(json_object_get(manifest, "step")));
    return 1;
}

/* 1: it was a checkpoint once. */
static int
is_damaged(const char *path, const char *name)
{
    AUTO_JSON json_t *manifest = NULL;
    struct error why = { 0 };
    int rc = manifest_verify(path, &manifest, &why);
    (void)name;
    return rc != 0 && rc != ERR_NOTFOUND;
}

static int
open_root(struct restore *s, struct error *err)
{
    char path[OUTPUT_PATH_MAX], found[PATH_MAX];
    int rc = output_path(s->trainer->workdir, ".", "run.json", path, err);
    if (rc != 0)
        return rc;
    if (!realpath(s->trainer->workdir, found) || strlen(found) >= ROOT_SIZE)
        return error_set(err, ERR_SYS, "cannot use the working directory %s", s->trainer->workdir);
    snprintf(s->root, sizeof(s->root), "%.2999s", found);
    snprintf(s->landing, sizeof(s->landing), "%s/" LANDING, s->root);
    return 0;
}

int
resume_command(struct trainer *t, int argc, char **argv)
{
    struct restore s = { .trainer = t, .copy = ENGINE_COPY };
    struct error err = { 0 };
    bool is_fetched = false;

    argp_parse(&argp, argc, argv, 0, NULL, &s);
    int rc = open_root(&s, &err);
    rc = rc == 0 ? look(&s, &is_fetched, &err) : rc;
    if (rc == 0 && !is_fetched)
        rc = fetch(&s, &err);
    rc = rc == 0 ? settle(&s, &err) : rc;
    if (rc != 0)
        return trainer_failed(&err);
    if (each_checkpoint(s.root, tell) == 0) {
        if (each_checkpoint(s.root, is_damaged) > 0)
            return trainer_complain(TRAINER_FAILED, "%s has no checkpoint that verifies", s.remote);
        return trainer_complain(TRAINER_NOTHING, "nothing to resume: %s has no checkpoint", s.remote);
    }
    printf("restored; go on with the same trainer run, or: trainer status --workdir %s\n", s.root);
    return TRAINER_OK;
}
