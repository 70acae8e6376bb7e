#include "server/workers/check.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/buffer.h"
#include "common/clock.h"
#include "common/json.h"
#include "server/workers/process.h"

#define ANSWER_MAX (64 * 1024)
#define LIMIT_MS 60000

/* --- the layers --- */

int
layers_check(const char *require, json_t *layers, struct error *err)
{
    AUTO_FREE char *list = strdup(require);
    char *rest = list;

    if (!list)
        return error_set(err, ERR_NOMEM, "no memory to check the sandbox");
    for (char *name; (name = strsep(&rest, ",")) != NULL;) {
        name += strspn(name, " ");
        name[strcspn(name, " ")] = '\0';
        if (!*name || text_is(layers, name, "on") ||
            (strcmp(name, "uid") == 0 && text_is(layers, "user_namespace", "on")))
            continue;
        const char *state = json_string_value(json_object_get(layers, name));
        const char *hint = strcmp(name, "uid") == 0
                               ? "; start as root, or where user namespaces are allowed (docs/sandbox.md)"
                               : "";
        return error_set(err, ERR_INPUT, "the layer \"%.40s\" is required (sandbox_require) and is %s%s",
                         name, state ? state : "none of the sandbox's", hint);
    }
    return 0;
}

int
cgroups_check(const char *require, const struct cgroups *g, struct error *err)
{
    AUTO_FREE char *list = strdup(require);
    char *rest = list;

    if (!list)
        return error_set(err, ERR_NOMEM, "no memory to check the sandbox");
    for (char *name; (name = strsep(&rest, ", ")) != NULL;) {
        if (strcmp(name, "cgroup") == 0 && strcmp(cgroups_state(g), "on") != 0)
            return error_set(err, ERR_INPUT, "the layer \"cgroup\" is required (sandbox_require) and is %s",
                             cgroups_state(g));
    }
    return 0;
}

/* --- asking --- */

/* Reads the program's output until it closes it. */
static int
read_answer(int fd, struct buffer *out, struct error *err)
{
    int64_t until_ns = clock_monotonic_ns() + (int64_t)LIMIT_MS * 1000000;
    char bytes[4096];

    for (;;) {
        int64_t left_ms = (until_ns - clock_monotonic_ns()) / 1000000;
        struct pollfd wait = { .fd = fd, .events = POLLIN };
        if (left_ms <= 0 || out->size > ANSWER_MAX)
            return error_set(err, ERR_UNAVAILABLE, "it gave no answer within %d s", LIMIT_MS / 1000);
        int ready = poll(&wait, 1, (int)left_ms);
        if (ready <= 0)
            continue;
        ssize_t n = read(fd, bytes, sizeof(bytes));
        if (n < 0 && errno != EINTR)
            return error_set(err, ERR_SYS, "read its answer");
        if (n == 0)
            return 0;
        if (n > 0 && buffer_append(out, bytes, (size_t)n) != 0)
            return error_set(err, ERR_NOMEM, "no memory for its answer");
    }
}

/* Runs it, with its output in `out` and its words about what went wrong on our stderr. */
static int
run(const char *const args[], struct buffer *out, struct error *err)
{
    AUTO_FREE char **env = process_environment();
    posix_spawn_file_actions_t actions;
    int ends[2];
    pid_t pid;

    if (!env || pipe2(ends, O_CLOEXEC) != 0)
        return error_set(err, ERR_SYS, "make a pipe");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    int rc = posix_spawnp(&pid, args[0], &actions, NULL, (char *const *)(uintptr_t)args, env);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (rc != 0) {
        close(ends[0]);
        return error_set(err, ERR_INPUT, "it cannot be started: %s", strerror(rc));
    }
    rc = read_answer(ends[0], out, err);
    close(ends[0]);
    if (rc != 0)
        kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return rc;
}

static int
check_file(const char *directory, const char *name, struct error *err)
{
    AUTO_FREE char *path = NULL;

    if (asprintf(&path, "%s/%s", directory, name) < 0)
        return error_set(err, ERR_NOMEM, "no memory for a path");
    if (access(path, R_OK) != 0)
        return error_set(err, ERR_INPUT, "harness: %s cannot be read: %s", path, strerror(errno));
    return 0;
}

int
workers_check(const struct config *config, json_t **layers, struct error *err)
{
    AUTO_BUFFER struct buffer out = BUFFER_INIT;
    AUTO_FREE char *script = NULL;
    struct error why = { 0 };

    if (layers)
        *layers = NULL;
    int rc = check_file(config->harness, "zygote.py", err);
    if (rc == 0)
        rc = check_file(config->harness, "referee.py", err);
    if (rc == 0)
        rc = check_file(config->harness, "check.py", err);
    if (rc != 0)
        return rc;
    if (asprintf(&script, "%s/check.py", config->harness) < 0)
        return error_set(err, ERR_NOMEM, "no memory for a path");
    const char *args[] = { config->python, script, NULL };
    if (run(args, &out, &why) != 0)
        return error_set(err, why.code, "python \"%s\": %s", config->python, why.text);
    AUTO_JSON json_t *answer = json_loadb(out.data ? out.data : "", out.size, 0, NULL);
    const char *fault = json_string_value(json_object_get(answer, "error"));
    if (fault)
        return error_set(err, ERR_INPUT, "python \"%s\": %s", config->python, fault);
    if (!json_is_object(json_object_get(answer, "layers")))
        return error_set(err, ERR_INPUT, "python \"%s\": it cannot run the harness in %s", config->python,
                         config->harness);
    /* The daemon's own doing, checked when it has done it. */
    json_object_set_new(json_object_get(answer, "layers"), "cgroup", json_string("on"));
    rc = layers_check(config->sandbox_require, json_object_get(answer, "layers"), err);
    if (rc == 0 && layers)
        *layers = json_incref(json_object_get(answer, "layers"));
    return rc;
}
