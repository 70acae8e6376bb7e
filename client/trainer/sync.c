/*
 * trainer sync: the working directory to a remote, by an engine that exists (rclone, or a configured command).
 *
 * Theory of operation. What goes up is a snapshot in three parts, each finished before the next: data, manifests, `latest`. A
 * remote therefore never has a manifest whose data is not there, and what was cut off is no checkpoint. Nothing on the remote
 * is ever deleted. Each part is compared with the remote afterwards. One copy of a working directory at a time: the next one waits.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client/trainer/engine.h"
#include "client/trainer/manifest.h"
#include "client/trainer/options.h"
#include "client/trainer/output.h"
#include "client/trainer/snapshot.h"
#include "client/trainer/trainer.h"
#include "common/auto.h"

#define RETRY_S 60

struct sync {
    struct trainer *trainer;
    const char *remote, *copy, *check; /* check "": fetch back and compare */
    int every_s;                       /* 0: once */
    bool is_probe;
    struct snapshot snapshot;
    double good_at; /* when the last good copy was made, seconds since 1970; 0: never */
};

enum { OPT_REMOTE = 512, OPT_EVERY, OPT_COPY, OPT_VERIFY, OPT_PROBE };

static const struct argp_option options[] = {
    { "remote", OPT_REMOTE, "REMOTE", 0,
      "Where to: NAME:BUCKET/PATH of rclone's, or whatever the engine takes", 0 },
    { "every", OPT_EVERY, "SECONDS", 0, "Again and again, until a signal (default: once); SIGUSR1: now", 0 },
    { "copy-command", OPT_COPY, "COMMAND", 0,
      "The engine: copies directory {source} into {target} (default: " ENGINE_COPY ")", 0 },
    { "check-command", OPT_VERIFY, "COMMAND", 0,
      "Compares {source} with {target} (default: rclone check; with another engine what was sent is fetched "
      "back)",
      0 },
    { "probe", OPT_PROBE, NULL, 0, "Only write a small object, list it and read it back", 0 },
    { 0 },
};

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct sync *s = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = s->trainer;
        return 0;
    case OPT_REMOTE:
        s->remote = arg;
        return 0;
    case OPT_EVERY:
        s->every_s = option_int(state, "--every", arg, 1, 86400);
        return 0;
    case OPT_COPY:
        s->copy = arg;
        return 0;
    case OPT_VERIFY:
        s->check = arg;
        return 0;
    case OPT_PROBE:
        s->is_probe = true;
        return 0;
    case ARGP_KEY_END:
        if (!s->remote || !*s->remote)
            argp_error(state, "where to? --remote REMOTE");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = { { &trainer_common_argp, 0, NULL, -1 }, { 0 } };
static const struct argp argp = { options,  parse, NULL, "Copy a run's checkpoints and results to a remote.",
                                  children, NULL,  NULL };

/* --- sending --- */

struct comparison {
    const char *stage, *back;
    char differing[PATH_MAX];
};
static _Thread_local struct comparison *comparison; /* nftw() hands nothing to its callback */

static int
compare_cb(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    char other[PATH_MAX], one[80], two[80];
    struct error err = { 0 };
    (void)st;
    (void)at;
    if (kind != FTW_F)
        return 0;
    snprintf(other, sizeof(other), "%s%s", comparison->back, path + strlen(comparison->stage));
    if (manifest_digest(path, one, &err) == 0 && manifest_digest(other, two, &err) == 0 &&
        strcmp(one, two) == 0)
        return 0;
    snprintf(comparison->differing, sizeof(comparison->differing), "%s",
             path + strlen(comparison->stage) + 1);
    return 1;
}

/* Fetched from the remote, is it what was sent? */
static int
compare_back(struct sync *s, const char *part, struct error *err)
{
    char back[PATH_MAX];
    snprintf(back, sizeof(back), "%.4000s/back", s->snapshot.stage);
    int rc = engine_run(s->copy, s->remote, back, err);
    if (rc != 0)
        return rc;
    struct comparison now = { .stage = part, .back = back };
    comparison = &now;
    rc = nftw(part, compare_cb, 16, FTW_PHYS);
    comparison = NULL;
    output_remove_tree(back);
    return rc == 0 ? 0
                   : error_set(err, ERR_UNAVAILABLE, "%.60s: %.120s is not there as it was sent", s->remote,
                               now.differing);
}

/* Is the remote as what was sent? */
static int
compare(struct sync *s, const char *part, struct error *err)
{
    return *s->check ? engine_run(s->check, part, s->remote, err) : compare_back(s, part, err);
}

static int
send_part(struct sync *s, const char *name, struct error *err)
{
    char part[PATH_MAX];
    snprintf(part, sizeof(part), "%.4000s/%s", s->snapshot.stage, name);
    if (access(part, F_OK) != 0)
        return 0;
    int rc = engine_run(s->copy, part, s->remote, err);
    return rc == 0 ? compare(s, part, err) : rc;
}

static int
write_state(struct sync *s, const char *error, struct error *err)
{
    char path[OUTPUT_PATH_MAX];
    AUTO_JSON json_t *document =
        json_pack("{s:s, s:f, s:f, s:O, s:s*}", "remote", s->remote, "good_at", s->good_at, "tried_at",
                  (double)time(NULL), "sent", s->snapshot.sent, "error", error);
    int rc = output_path(s->snapshot.root, ".", "sync.json", path, err);
    return rc == 0 ? output_document(path, document, err) : rc;
}

/* Waits for another copy of this directory. The lock is held until *lock is closed. ERR_UNAVAILABLE: interrupted meanwhile. */
static int
lock_root(const struct sync *s, int *lock, struct error *err)
{
    char path[PATH_MAX];
    static const struct timespec look = { 0, 100000000 };
    const bool was_stopping = trainer_is_stopping(); /* an emergency's copy is not given up */
    snprintf(path, sizeof(path), "%s/sync.lock", s->snapshot.root);
    *lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (*lock < 0)
        return error_set(err, ERR_SYS, "cannot open %s", path);
    for (bool is_told = false; flock(*lock, LOCK_EX | LOCK_NB) != 0; is_told = true) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return error_set(err, ERR_SYS, "cannot lock %s", path);
        if (trainer_is_stopping() && !was_stopping)
            return error_set(err, ERR_UNAVAILABLE, "interrupted");
        if (!is_told)
            fprintf(stderr, "trainer: another copy of %s is being made: waiting for it\n", s->snapshot.root);
        nanosleep(&look, NULL);
    }
    return 0;
}

/* Data, then manifests, then latest. */
static int
sync_once(struct sync *s, struct error *err)
{
    static const char *const parts[] = SNAPSHOT_PARTS;
    AUTO_JSON json_t *now = json_object();
    AUTO_FD int lock = -1;
    struct error ignored = { 0 };
    int rc = lock_root(s, &lock, err);
    if (rc != 0)
        return rc;
    rc = snapshot_take(&s->snapshot, now, err);
    for (size_t i = 0; i < ARRAY_LEN(parts) && rc == 0; i++)
        rc = send_part(s, parts[i], err);
    snapshot_remove(&s->snapshot);
    if (rc == 0) {
        json_object_update(s->snapshot.sent, now);
        s->good_at = (double)time(NULL);
        return write_state(s, NULL, err);
    }
    write_state(s, err->text, &ignored);
    return rc;
}

/* A small object is written to REMOTE/trainer-probe, listed and compared there, and read back: all that a copy and a restore need. */
static int
probe(struct sync *s, struct error *err)
{
    char path[OUTPUT_PATH_MAX], part[PATH_MAX], below[PATH_MAX];
    const char *remote = s->remote;
    struct output o;
    AUTO_FD int lock = -1;
    int rc = lock_root(s, &lock, err);
    if (rc != 0)
        return rc;
    snapshot_remove(&s->snapshot);
    rc = output_path(s->snapshot.root, ".sync/probe", "written", path, err);
    rc = rc == 0 ? output_begin(&o, path, err) : rc;
    if (rc != 0)
        return rc;
    fprintf(o.file, "%lld\n", (long long)time(NULL));
    rc = output_end(&o, err);
    snprintf(part, sizeof(part), "%.4000s/probe", s->snapshot.stage);
    snprintf(below, sizeof(below), "%.4000s/trainer-probe", remote);
    s->remote = below;
    rc = rc == 0 ? send_part(s, "probe", err) : rc;
    if (rc == 0 && *s->check) /* without a check it was read back already */
        rc = compare_back(s, part, err);
    s->remote = remote;
    snapshot_remove(&s->snapshot);
    return rc;
}

static int
open_root(struct sync *s, const char *workdir, struct error *err)
{
    char found[PATH_MAX], path[PATH_MAX];
    const bool is_rclone = strcmp(s->copy, ENGINE_COPY) == 0;
    if (!s->check)
        s->check = is_rclone ? ENGINE_CHECK : "";
    if (!realpath(workdir, found) || strlen(found) > SNAPSHOT_PATH_SIZE - 16)
        return error_set(err, ERR_SYS, "cannot use the working directory %s", workdir);
    snprintf(s->snapshot.root, sizeof(s->snapshot.root), "%.2980s", found);
    snprintf(s->snapshot.stage, sizeof(s->snapshot.stage), "%.2980s/.sync", found);
    snprintf(path, sizeof(path), "%s/sync.json", s->snapshot.root);
    AUTO_JSON json_t *before = json_load_file(path, 0, NULL);
    const char *remote = json_string_value(json_object_get(before, "remote"));
    json_t *sent = json_object_get(before, "sent");
    bool is_same = remote && strcmp(remote, s->remote) == 0;
    s->snapshot.sent = is_same && json_is_object(sent) ? json_incref(sent) : json_object();
    s->good_at = is_same ? json_number_value(json_object_get(before, "good_at")) : 0;
    return 0;
}

static volatile sig_atomic_t is_hurried;

static void
hurry(int number)
{
    (void)number;
    is_hurried = 1;
}

/* Until the next copy is due, or SIGUSR1 asks for one now. */
static void
wait_for_next(double seconds)
{
    for (; seconds > 0 && !is_hurried && !trainer_is_stopping(); seconds -= 0.2)
        trainer_pause(seconds < 0.2 ? seconds : 0.2);
    is_hurried = 0;
}

int
sync_command(struct trainer *t, int argc, char **argv)
{
    const struct sigaction action = { .sa_handler = hurry, .sa_flags = SA_RESTART };
    struct sync s = { .trainer = t, .copy = ENGINE_COPY };
    struct error err = { 0 };

    sigaction(SIGUSR1, &action, NULL);
    argp_parse(&argp, argc, argv, 0, NULL, &s);
    int rc = open_root(&s, t->workdir, &err);
    if (rc == 0 && s.is_probe)
        rc = probe(&s, &err);
    while (rc == 0 && !s.is_probe) {
        rc = sync_once(&s, &err);
        if (rc == 0)
            printf("%s has all of %s\n", s.remote, s.snapshot.root);
        fflush(stdout);
        if (s.every_s == 0)
            break;
        if (rc != 0)
            trainer_complain(TRAINER_SERVICE, "the copy failed, and is tried again: %s", err.text);
        wait_for_next(rc != 0 && s.every_s > RETRY_S ? RETRY_S : s.every_s);
        err.code = ERR_NONE;
        rc = 0;
        if (trainer_is_stopping())
            break;
    }
    json_decref(s.snapshot.sent);
    return rc == 0 ? TRAINER_OK : trainer_failed(&err);
}
