/*
 * trainer sync, trainer resume: the working directory to a remote and back, by an engine that exists (rclone, or a configured command).
 *
 * Theory of operation. What goes up is a snapshot: checkpoints that verify, by hard links (their files never change, so that
 * pruning and replacing do not matter), and copies of the rest. It goes in three parts, each finished before the next: data,
 * manifests, `latest`. A remote therefore never has a manifest whose data is not there, and what was cut off is no
 * checkpoint. Nothing on the remote is ever deleted. Each part is compared with the remote afterwards.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/trainer/manifest.h"
#include "client/trainer/options.h"
#include "client/trainer/output.h"
#include "client/trainer/trainer.h"
#include "common/auto.h"

#define RCLONE_COPY "rclone copy {source} {target}"
#define RCLONE_CHECK "rclone check --one-way {source} {target}"
#define RETRY_S 60
#define PATH_SIZE 3000 /* of a path below the working directory; longer ones are refused */

struct sync {
    struct trainer *trainer;
    const char *remote, *copy, *check; /* check "": fetch back and compare */
    int every_s;                       /* 0: once */
    bool is_probe;
    char root[PATH_SIZE];  /* the working directory */
    char stage[PATH_SIZE]; /* root/.sync */
    json_t
        *sent; /* {relative path of a checkpoint: digest of its manifest}, of those that are on the remote */
};

enum { OPT_REMOTE = 512, OPT_EVERY, OPT_COPY, OPT_VERIFY, OPT_PROBE };

static const struct argp_option options[] = {
    { "remote", OPT_REMOTE, "REMOTE", 0,
      "Where to: NAME:BUCKET/PATH of rclone's, or whatever the engine takes", 0 },
    { "every", OPT_EVERY, "SECONDS", 0, "Again and again, until a signal (default: once)", 0 },
    { "copy-command", OPT_COPY, "COMMAND", 0,
      "The engine: copies directory {source} into {target} (default: " RCLONE_COPY ")", 0 },
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
static const struct argp sync_argp = {
    options, parse, NULL, "Copy a run's checkpoints and results to a remote.", children, NULL, NULL
};
static const struct argp resume_argp = { options,  parse, NULL, "Restore a run from a remote, and check it.",
                                         children, NULL,  NULL };

/* --- the engine --- */

/* The words of a command with {source} and {target} put in; no shell reads them. Freed by the caller, each and all. */
static char **
words_of(const char *command, const char *source, const char *target)
{
    char **out = calloc(strlen(command) + 2, sizeof(*out));
    size_t n = 0;
    for (const char *at = command; out && *(at += strspn(at, " ")); at += strcspn(at, " ")) {
        size_t size = strcspn(at, " ");
        if (size == 8 && strncmp(at, "{source}", 8) == 0)
            out[n++] = strdup(source);
        else if (size == 8 && strncmp(at, "{target}", 8) == 0)
            out[n++] = strdup(target);
        else
            out[n++] = strndup(at, size);
    }
    return out;
}

/* What an engine's words come down to, whichever it is; "" where they speak for themselves. *at is where it says so. */
static const char *
meaning_of(const char *said, const char **at)
{
    static const struct {
        const char *said, *means;
    } causes[] = {
        { "InvalidAccessKeyId", "the service does not know the access key: " },
        { "SignatureDoesNotMatch", "the secret is not that of the access key: " },
        { "ExpiredToken", "the credentials are no longer valid: " },
        { "InvalidToken", "the session token is not that of the access key: " },
        { "NoCredentialProviders", "there are no credentials: " },
        { "Unable to locate credentials", "there are no credentials: " },
        { "AccessDenied", "the credentials do not suffice: " },
        { "Access Denied", "the credentials do not suffice: " },
        { "Forbidden", "the credentials do not suffice: " },
        { "NoSuchBucket", "there is no such bucket (trainer bucket makes one): " },
        { "didn't find section in config file", "rclone knows no such remote: " },
    };
    for (size_t i = 0; i < ARRAY_LEN(causes); i++)
        if ((*at = strstr(said, causes[i].said)) != NULL)
            return causes[i].means;
    return "";
}

/* Run it; what it said last is the reason when it fails. */
static int
engine(const char *command, const char *source, const char *target, struct error *err)
{
    char **argv = words_of(command, source, target), said[4096] = "";
    int pipes[2], status = -1;

    if (!argv || !argv[0] || pipe2(pipes, O_CLOEXEC) != 0)
        return error_set(err, ERR_INPUT, "the engine's command is empty");
    pid_t pid = fork();
    if (pid == 0) {
        dup2(pipes[1], STDOUT_FILENO);
        dup2(pipes[1], STDERR_FILENO);
        execvp(argv[0], argv);
        dprintf(STDERR_FILENO, "cannot start %s: %s", argv[0], strerror(errno));
        _exit(127);
    }
    close(pipes[1]);
    for (size_t used = 0;;) { /* the end of what it says */
        if (used > sizeof(said) / 2) {
            memmove(said, said + used / 2, used - used / 2);
            used -= used / 2;
        }
        ssize_t n = read(pipes[0], said + used, sizeof(said) - 1 - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        used += (size_t)n;
        said[used] = '\0';
    }
    close(pipes[0]);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    for (char **at = argv; *at; at++)
        free(*at);
    free(argv);
    if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    size_t end = strlen(said);
    while (end > 0 && said[end - 1] == '\n')
        said[--end] = '\0';
    const char *at = NULL, *means = meaning_of(said, &at);
    const char *line = at ? at : said + end;
    while (line > said && line[-1] != '\n')
        line--;
    return error_set(err, ERR_UNAVAILABLE, "%.60s: %s%.*s", target, means, (int)strcspn(line, "\n"), line);
}

/* --- the snapshot --- */

static int
copy_file(const char *from, const char *to)
{
    AUTO_FD int in = open(from, O_RDONLY | O_CLOEXEC),
                out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    char block[65536];
    ssize_t n;
    if (in < 0 || out < 0)
        return -1;
    while ((n = read(in, block, sizeof(block))) > 0)
        if (write(out, block, (size_t)n) != n)
            return -1;
    return n < 0 ? -1 : 0;
}

/* root/path to stage/part/path; by a hard link where its bytes never change. One that is gone meanwhile is left out. */
static int
stage_file(struct sync *s, const char *part, const char *path, bool is_link, struct error *err)
{
    char from[PATH_MAX], to[OUTPUT_PATH_MAX], sub[OUTPUT_PATH_MAX];
    if (snprintf(from, sizeof(from), "%s/%s", s->root, path) >= (int)sizeof(from) ||
        snprintf(sub, sizeof(sub), ".sync/%s", part) >= (int)sizeof(sub))
        return error_set(err, ERR_INPUT, "the path %.100s is too long", path);
    int rc = output_path(s->root, sub, path, to, err);
    if (rc != 0)
        return rc;
    if (is_link && link(from, to) == 0)
        return 0;
    if (copy_file(from, to) != 0 && errno != ENOENT)
        return error_set(err, ERR_SYS, "cannot copy %s", from);
    return 0;
}

static int
remove_cb(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

/* One checkpoint, unless the remote has it. What does not verify is left out, and told. */
static int
stage_checkpoint(struct sync *s, const char *path, json_t *now, struct error *err)
{
    char full[PATH_MAX], file[PATH_MAX], digest[80];
    const char *name;
    json_t *expected;
    struct error why = { 0 };
    AUTO_JSON json_t *manifest = NULL;

    snprintf(full, sizeof(full), "%.3000s/%.1000s", s->root, path);
    snprintf(file, sizeof(file), "%.4000s/manifest.json", full);
    if (access(file, F_OK) != 0 || manifest_digest(file, digest, &why) != 0)
        return 0;
    const char *sent = json_string_value(json_object_get(s->sent, path));
    if (sent && strcmp(sent, digest) == 0)
        return 0;
    if (manifest_verify(full, &manifest, &why) != 0) {
        fprintf(stderr, "trainer: not copied: %s\n", why.text);
        return 0;
    }
    int rc = 0;
    json_object_foreach(json_object_get(manifest, "files"), name, expected)
    {
        snprintf(file, sizeof(file), "%.2000s/%.1000s", path, name);
        rc = rc == 0 ? stage_file(s, "data", file, true, err) : rc;
    }
    snprintf(file, sizeof(file), "%.3000s/manifest.json", path);
    rc = rc == 0 ? stage_file(s, "manifests", file, true, err) : rc;
    if (rc == 0)
        json_object_set_new(now, path, json_string(digest));
    return rc;
}

/* Everything that matches below root, each by its path there. */
static int
each_match(struct sync *s, const char *pattern,
           int (*take)(struct sync *, const char *, json_t *, struct error *), json_t *into,
           struct error *err)
{
    char full[PATH_MAX];
    glob_t found;
    int rc = 0;
    snprintf(full, sizeof(full), "%.3000s/%.500s", s->root, pattern);
    if (glob(full, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc && rc == 0; i++)
            rc = take(s, found.gl_pathv[i] + strlen(s->root) + 1, into, err);
    globfree(&found);
    return rc;
}

static int
stage_plain(struct sync *s, const char *path, json_t *into, struct error *err)
{
    char full[PATH_MAX];
    struct stat st;
    (void)into;
    snprintf(full, sizeof(full), "%.3000s/%.1000s", s->root, path);
    return stat(full, &st) == 0 && S_ISREG(st.st_mode) ? stage_file(s, "data", path, false, err) : 0;
}

static int
stage_latest(struct sync *s, const char *path, json_t *into, struct error *err)
{
    (void)into;
    return stage_file(s, "latest", path, false, err);
}

/* The three parts in root/.sync; now gets the checkpoints that are in it. */
static int
stage_all(struct sync *s, json_t *now, struct error *err)
{
    static const char *const plain[] = { "run.json",  "training.log", "checkpoints/curriculum.json",
                                         "outputs/*", "outputs/*/*",  "data/processed/*" };
    int rc = 0;
    nftw(s->stage, remove_cb, 16, FTW_DEPTH | FTW_PHYS);
    rc = each_match(s, "checkpoints/*/step-*", stage_checkpoint, now, err);
    rc = rc == 0 ? each_match(s, "checkpoints/*", stage_checkpoint, now, err) : rc;
    for (size_t i = 0; i < ARRAY_LEN(plain) && rc == 0; i++)
        rc = each_match(s, plain[i], stage_plain, now, err);
    rc = rc == 0 ? each_match(s, "checkpoints/*/latest", stage_latest, now, err) : rc;
    return rc == 0 ? each_match(s, "checkpoints/latest", stage_latest, now, err) : rc;
}

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
    snprintf(back, sizeof(back), "%.4000s/back", s->stage);
    int rc = engine(s->copy, s->remote, back, err);
    if (rc != 0)
        return rc;
    struct comparison now = { .stage = part, .back = back };
    comparison = &now;
    rc = nftw(part, compare_cb, 16, FTW_PHYS);
    comparison = NULL;
    nftw(back, remove_cb, 16, FTW_DEPTH | FTW_PHYS);
    return rc == 0 ? 0
                   : error_set(err, ERR_UNAVAILABLE, "%.60s: %.120s is not there as it was sent", s->remote,
                               now.differing);
}

/* Is the remote as what was sent? */
static int
compare(struct sync *s, const char *part, struct error *err)
{
    return *s->check ? engine(s->check, part, s->remote, err) : compare_back(s, part, err);
}

static int
send_part(struct sync *s, const char *name, struct error *err)
{
    char part[PATH_MAX];
    snprintf(part, sizeof(part), "%.4000s/%s", s->stage, name);
    if (access(part, F_OK) != 0)
        return 0;
    int rc = engine(s->copy, part, s->remote, err);
    return rc == 0 ? compare(s, part, err) : rc;
}

static int
write_state(struct sync *s, double good_at, const char *error, struct error *err)
{
    char path[OUTPUT_PATH_MAX];
    AUTO_JSON json_t *document =
        json_pack("{s:s, s:f, s:f, s:O, s:s*}", "remote", s->remote, "good_at", good_at, "tried_at",
                  (double)time(NULL), "sent", s->sent, "error", error);
    int rc = output_path(s->root, ".", "sync.json", path, err);
    return rc == 0 ? output_document(path, document, err) : rc;
}

/* Data, then manifests, then latest. */
static int
sync_once(struct sync *s, double *good_at, struct error *err)
{
    static const char *const parts[] = { "data", "manifests", "latest" };
    AUTO_JSON json_t *now = json_object();
    struct error ignored = { 0 };
    int rc = stage_all(s, now, err);
    for (size_t i = 0; i < ARRAY_LEN(parts) && rc == 0; i++)
        rc = send_part(s, parts[i], err);
    nftw(s->stage, remove_cb, 16, FTW_DEPTH | FTW_PHYS);
    if (rc == 0) {
        json_object_update(s->sent, now);
        *good_at = (double)time(NULL);
        return write_state(s, *good_at, NULL, err);
    }
    write_state(s, *good_at, err->text, &ignored);
    return rc;
}

/* A small object is written to REMOTE/trainer-probe, listed and compared there, and read back: all that a copy and a restore need. */
static int
probe(struct sync *s, struct error *err)
{
    char path[OUTPUT_PATH_MAX], part[PATH_MAX], below[PATH_MAX];
    const char *remote = s->remote;
    struct output o;
    nftw(s->stage, remove_cb, 16, FTW_DEPTH | FTW_PHYS);
    int rc = output_path(s->root, ".sync/probe", "written", path, err);
    rc = rc == 0 ? output_begin(&o, path, err) : rc;
    if (rc != 0)
        return rc;
    fprintf(o.file, "%lld\n", (long long)time(NULL));
    rc = output_end(&o, err);
    snprintf(part, sizeof(part), "%.4000s/probe", s->stage);
    snprintf(below, sizeof(below), "%.4000s/trainer-probe", remote);
    s->remote = below;
    rc = rc == 0 ? send_part(s, "probe", err) : rc;
    if (rc == 0 && *s->check) /* without a check it was read back already */
        rc = compare_back(s, part, err);
    s->remote = remote;
    nftw(s->stage, remove_cb, 16, FTW_DEPTH | FTW_PHYS);
    return rc;
}

static int
open_root(struct sync *s, const char *workdir, struct error *err)
{
    char found[PATH_MAX], path[PATH_MAX];
    const bool is_rclone = strcmp(s->copy, RCLONE_COPY) == 0;
    if (!s->check)
        s->check = is_rclone ? RCLONE_CHECK : "";
    if (!realpath(workdir, found) || strlen(found) > PATH_SIZE - 16)
        return error_set(err, ERR_SYS, "cannot use the working directory %s", workdir);
    snprintf(s->root, sizeof(s->root), "%.2980s", found);
    snprintf(s->stage, sizeof(s->stage), "%.2980s/.sync", found);
    snprintf(path, sizeof(path), "%s/sync.json", s->root);
    AUTO_JSON json_t *before = json_load_file(path, 0, NULL);
    const char *remote = json_string_value(json_object_get(before, "remote"));
    json_t *sent = json_object_get(before, "sent");
    s->sent =
        remote && strcmp(remote, s->remote) == 0 && json_is_object(sent) ? json_incref(sent) : json_object();
    return 0;
}

int
sync_command(struct trainer *t, int argc, char **argv)
{
    struct sync s = { .trainer = t, .copy = RCLONE_COPY };
    struct error err = { 0 };
    double good_at = 0;

    argp_parse(&sync_argp, argc, argv, 0, NULL, &s);
    int rc = open_root(&s, t->workdir, &err);
    if (rc == 0 && s.is_probe)
        rc = probe(&s, &err);
    while (rc == 0 && !s.is_probe) {
        rc = sync_once(&s, &good_at, &err);
        if (rc == 0)
            printf("%s has all of %s\n", s.remote, s.root);
        fflush(stdout);
        if (s.every_s == 0)
            break;
        if (rc != 0)
            trainer_complain(TRAINER_SERVICE, "the copy failed, and is tried again: %s", err.text);
        trainer_pause(rc != 0 && s.every_s > RETRY_S ? RETRY_S : s.every_s);
        err.code = ERR_NONE;
        rc = 0;
        if (trainer_is_stopping())
            break;
    }
    json_decref(s.sent);
    return rc == 0 ? TRAINER_OK : trainer_failed(&err);
}

/* --- back --- */

static int
tell_checkpoint(struct sync *s, const char *path, json_t *into, struct error *err)
{
    char full[PATH_MAX];
    AUTO_JSON json_t *manifest = NULL;
    struct error why = { 0 };
    struct stat st;
    (void)err;
    snprintf(full, sizeof(full), "%.3000s/%.1000s", s->root, path);
    if (stat(full, &st) != 0 || !S_ISDIR(st.st_mode))
        return 0;
    int rc = manifest_verify(full, &manifest, &why);
    if (rc == ERR_NOTFOUND)
        return 0; /* a run's directory, or cut off before its manifest: no checkpoint */
    if (rc != 0) {
        fprintf(stderr, "trainer: no checkpoint: %s\n", why.text);
        return 0;
    }
    printf("%s: %s, step %lld\n", path, json_string_value(json_object_get(manifest, "method")),
           (long long)json_integer_value(json_object_get(manifest, "step")));
    json_array_append_new(into, json_string(path));
    return 0;
}

int
resume_command(struct trainer *t, int argc, char **argv)
{
    struct sync s = { .trainer = t, .copy = RCLONE_COPY };
    struct error err = { 0 };
    char path[OUTPUT_PATH_MAX], old[PATH_MAX];

    argp_parse(&resume_argp, argc, argv, 0, NULL, &s);
    int rc = output_path(t->workdir, ".", "run.json", path, &err);
    rc = rc == 0 ? open_root(&s, t->workdir, &err) : rc;
    if (rc != 0)
        return trainer_failed(&err);
    snprintf(old, sizeof(old), "%s/checkpoints", s.root);
    AUTO_JSON json_t *found = json_array();
    json_decref(s.sent);
    if (access(old, F_OK) == 0)
        return trainer_complain(TRAINER_CONFIG, "%s is there already: restore into an empty directory", old);
    rc = engine(s.copy, s.remote, s.root, &err);
    rc = rc == 0 ? each_match(&s, "checkpoints/*", tell_checkpoint, found, &err) : rc;
    rc = rc == 0 ? each_match(&s, "checkpoints/*/step-*", tell_checkpoint, found, &err) : rc;
    if (rc != 0)
        return trainer_failed(&err);
    if (json_array_size(found) == 0)
        return trainer_complain(TRAINER_FAILED, "%s has no checkpoint that verifies", s.remote);
    printf("restored; go on with the same trainer run, or: trainer status --workdir %s\n", s.root);
    return TRAINER_OK;
}
