#include "client/trainer/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sodium.h>

#include "client/trainer/output.h"
#include "common/auto.h"
#include "common/buffer.h"
#include "common/hash.h"

enum { NAMED_MAX = 6, DEPTH_MAX = 3, SEEN_MAX = 20000 };

struct checkpoint {
    pid_t pid;
    char url[256], name[64], weights[HASH_TEXT_SIZE + 16];
};

/* --- what a directory holds --- */

enum kind { NOTHING, ADAPTER, WHOLE };

static bool
has_file(const char *directory, const char *name)
{
    char path[OUTPUT_PATH_MAX];
    struct stat status;
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0;
}

static const char *const adapter_weights[] = { "adapter_model.safetensors", "adapter_model.bin" };
static const char *const whole_weights[] = { "model.safetensors", "model.safetensors.index.json",
                                             "pytorch_model.bin", "pytorch_model.bin.index.json" };

/* The first of the names that is there, or NULL. */
static const char *
first_of(const char *directory, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (has_file(directory, names[i]))
            return names[i];
    return NULL;
}

static enum kind
kind_of(const char *directory)
{
    if (has_file(directory, "adapter_config.json") &&
        first_of(directory, adapter_weights, ARRAY_LEN(adapter_weights)))
        return ADAPTER;
    if (has_file(directory, "config.json") && first_of(directory, whole_weights, ARRAY_LEN(whole_weights)))
        return WHOLE;
    return NOTHING;
}

/* Directories below root that hold a checkpoint, into text; *n counts them. */
static void
name_below(const char *root, const char *but, struct buffer *text, int *n)
{
    char *const roots[] = { (char *)(uintptr_t)root, NULL };
    FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    FTSENT *entry;

    for (int seen = 0; tree && seen < SEEN_MAX && *n < NAMED_MAX && (entry = fts_read(tree)) != NULL;
         seen++) {
        if (entry->fts_info != FTS_D)
            continue;
        if (entry->fts_level >= DEPTH_MAX || (entry->fts_level > 0 && entry->fts_name[0] == '.'))
            fts_set(tree, entry, FTS_SKIP);
        if (kind_of(entry->fts_path) == NOTHING || strcmp(entry->fts_path, but) == 0 ||
            (text->data && strstr(text->data, entry->fts_path)))
            continue;
        buffer_printf(text, "%s%s", (*n)++ ? ", " : "", entry->fts_path);
    }
    if (tree)
        fts_close(tree);
}

/* The error, with directories that would do. */
static int
refuse(const struct trainer *t, const char *directory, const char *why, struct error *err)
{
    AUTO_BUFFER struct buffer there = BUFFER_INIT;
    char root[OUTPUT_PATH_MAX], copy[OUTPUT_PATH_MAX];
    int n = 0;

    snprintf(root, sizeof(root), "%.900s/checkpoints", t->workdir);
    if (access(directory, F_OK) == 0)
        name_below(directory, directory, &there, &n);
    name_below(root, directory, &there, &n);
    snprintf(copy, sizeof(copy), "%s", directory);
    const char *parent = dirname(copy);
    /* Not through a whole file system. */
    if (n == 0 && strcmp(parent, "/") != 0 && strcmp(parent, ".") != 0)
        name_below(parent, directory, &there, &n);
    /* The error's text is short: the directories get a line of their own. */
    if (n > 0)
        fprintf(stderr, "trainer: these directories hold a checkpoint: %s\n", there.data);
    else
        fprintf(stderr, "trainer: no directory in or beside it, or in %s, holds a checkpoint\n", root);
    return error_set(err, ERR_INPUT, "--model-path %.120s: %s", directory, why);
}

static int
check(const struct trainer *t, const char *directory, struct error *err)
{
    struct stat status;
    if (stat(directory, &status) != 0)
        return refuse(t, directory, "there is no such directory", err);
    if (!S_ISDIR(status.st_mode))
        return refuse(t, directory, "it is no directory", err);
    if (kind_of(directory) != NOTHING)
        return 0;
    if (has_file(directory, "adapter_config.json"))
        return refuse(t, directory, "it has adapter_config.json, and no weights (adapter_model.safetensors)",
                      err);
    if (has_file(directory, "config.json"))
        return refuse(t, directory, "it has config.json, and no weights (model.safetensors)", err);
    return refuse(t, directory, "it is no checkpoint: no adapter_config.json and no config.json", err);
}

/* --- which weights --- */

static int
digest_weights(const char *directory, enum kind kind, char out[HASH_TEXT_SIZE], struct error *err)
{
    char path[OUTPUT_PATH_MAX];
    unsigned char bytes[65536], hash[crypto_hash_sha256_BYTES];
    crypto_hash_sha256_state state;
    size_t n;
    const char *name = kind == ADAPTER ? first_of(directory, adapter_weights, ARRAY_LEN(adapter_weights))
                                       : first_of(directory, whole_weights, ARRAY_LEN(whole_weights));

    snprintf(path, sizeof(path), "%s/%s", directory, name ? name : "");
    FILE *file = fopen(path, "r");
    if (!file)
        return error_set(err, ERR_SYS, "cannot read %s", path);
    crypto_hash_sha256_init(&state);
    while ((n = fread(bytes, 1, sizeof(bytes), file)) > 0)
        crypto_hash_sha256_update(&state, bytes, n);
    int rc = ferror(file) ? error_set(err, ERR_SYS, "cannot read %s", path) : 0;
    fclose(file);
    crypto_hash_sha256_final(&state, hash);
    n = (size_t)snprintf(out, HASH_TEXT_SIZE, "sha256:");
    sodium_bin2hex(out + n, HASH_TEXT_SIZE - n, hash, sizeof(hash));
    return rc;
}

/* The base of an adapter: the user's choice, else the one in its configuration. Given; NULL: neither is there. */
static char *
base_of(const struct trainer *t, const char *directory)
{
    char path[OUTPUT_PATH_MAX];
    if (t->model)
        return strdup(t->model);
    snprintf(path, sizeof(path), "%s/adapter_config.json", directory);
    AUTO_JSON json_t *config = json_load_file(path, 0, NULL);
    const char *named = json_string_value(json_object_get(config, "base_model_name_or_path"));
    return named && named[0] ? strdup(named) : NULL;
}

/* --- the server --- */

static pid_t
start(const char *python, const char *base, const char *name, const char *adapter, int *from)
{
    int pipe_fds[2];
    const char *argv[] = { python,
                           "-m",
                           "finetune",
                           "serve",
                           base,
                           "--port",
                           "0",
                           "--name",
                           adapter ? base : name,
                           adapter ? "--adapter" : NULL,
                           adapter,
                           NULL };

    if (pipe2(pipe_fds, O_CLOEXEC) != 0)
        return -1;
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        setpgid(0, 0); /* Ctrl-C is for the trainer, which ends it */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(127);
        dup2(pipe_fds[1], STDOUT_FILENO);
        execvp(python, (char *const *)(uintptr_t)argv);
        fprintf(stderr, "trainer: cannot start %s: %s\n", python, strerror(errno));
        _exit(127);
    }
    close(pipe_fds[1]);
    *from = pipe_fds[0];
    if (pid < 0)
        close(pipe_fds[0]);
    return pid;
}

/* "serves NAME on URL": 0 and the URL, or ERR_INPUT: it ended before. */
static int
wait_for(int from, char url[256], struct error *err)
{
    AUTO_FREE char *line = NULL;
    size_t capacity = 0;
    FILE *file = fdopen(from, "r");
    int rc = -1;

    if (!file) {
        close(from);
        return error_set(err, ERR_SYS, "cannot read from the model's server");
    }
    while (rc != 0 && getline(&line, &capacity, file) > 0) {
        const char *at = strncmp(line, "serves ", 7) == 0 ? strstr(line, " on http://") : NULL;
        if (!at)
            continue;
        snprintf(url, 256, "%.*s", (int)strcspn(at + 4, "\r\n"), at + 4);
        rc = 0;
    }
    fclose(file);
    return rc == 0 ? 0 : error_set(err, ERR_INPUT, "it ended");
}

void
checkpoint_close(struct checkpoint *c)
{
    if (!c)
        return;
    if (c->pid > 0) {
        kill(c->pid, SIGKILL); /* it keeps nothing */
        while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    free(c);
}

int
checkpoint_serve(struct trainer *t, const char *python, const char *directory, struct checkpoint **out,
                 struct error *err)
{
    char digest[HASH_TEXT_SIZE];
    AUTO_FREE char *adapter = NULL, *base = NULL;
    int from = -1;

    *out = NULL;
    int rc = check(t, directory, err);
    enum kind kind = rc == 0 ? kind_of(directory) : NOTHING;
    rc = rc == 0 ? digest_weights(directory, kind, digest, err) : rc;
    rc = rc == 0 ? finetune_environment(err) : rc;
    if (rc != 0)
        return rc;
    base = kind == ADAPTER ? base_of(t, directory) : strdup(directory);
    if (!base)
        return refuse(t, directory, "its adapter_config.json names no base: give one by --model", err);
    struct checkpoint *c = calloc(1, sizeof(*c));
    if (!c || (kind == ADAPTER && asprintf(&adapter, "checkpoint=%s", directory) < 0)) {
        free(c);
        return error_set(err, ERR_NOMEM, "out of memory");
    }
    snprintf(c->name, sizeof(c->name), "checkpoint");
    snprintf(c->weights, sizeof(c->weights), "weights %s", digest);
    fprintf(stderr, "trainer: loading %s%s%s\n", directory, kind == ADAPTER ? " over " : "",
            kind == ADAPTER ? base : "");
    c->pid = start(python, base, c->name, adapter, &from);
    rc = c->pid > 0 ? wait_for(from, c->url, err) : error_set(err, ERR_SYS, "cannot start %s", python);
    if (rc == ERR_INPUT)
        rc = trainer_is_stopping() ? error_set(err, ERR_UNAVAILABLE, "interrupted")
                                   : refuse(t, directory, "it does not load, for the reason above", err);
    if (rc != 0) {
        checkpoint_close(c);
        return rc;
    }
    t->endpoint_url = c->url;
    t->endpoint_key = NULL;
    t->endpoint_name = c->weights;
    t->model = c->name;
    *out = c;
    return 0;
}
