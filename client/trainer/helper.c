#include "client/trainer/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/auto.h"

/* The file itself: nothing to install, nothing to find. */
__asm__(".pushsection .rodata\n"
        "prepare_rows:\n"
        ".incbin \"client/python/prepare_rows.py\"\n"
        ".byte 0\n"
        ".popsection\n");
extern const char prepare_rows[];
extern char **environ;

struct helper {
    const char *python;
    pid_t pid; /* 0: none runs */
    FILE *to, *from;
    char *line;
    size_t capacity;
    pthread_mutex_t mutex; /* one question at a time */
};

static void
end(struct helper *h)
{
    if (h->to)
        fclose(h->to);
    if (h->from)
        fclose(h->from);
    h->to = h->from = NULL;
    while (h->pid && waitpid(h->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    h->pid = 0;
}

static int
start(struct helper *h, const char *mode, const char *argument, struct error *err)
{
    char *const argv[] = { (char *)h->python, (char *)"-I",     (char *)"-c", (char *)prepare_rows,
                           (char *)mode,      (char *)argument, NULL };
    int to[2], from[2], rc;
    posix_spawn_file_actions_t actions;

    if (pipe2(to, O_CLOEXEC) != 0)
        return error_set(err, ERR_SYS, "cannot make a pipe");
    if (pipe2(from, O_CLOEXEC) != 0) {
        close(to[0]);
        close(to[1]);
        return error_set(err, ERR_SYS, "cannot make a pipe");
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
    rc = posix_spawnp(&h->pid, h->python, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    h->to = fdopen(to[1], "w");
    h->from = fdopen(from[0], "r");
    if (rc != 0) {
        h->pid = 0;
        end(h);
        errno = rc;
        return error_set(err, ERR_SYS, "cannot start %s", h->python);
    }
    return 0;
}

int
helper_new(const char *python, struct helper **out, struct error *err)
{
    struct helper *h = calloc(1, sizeof(*h));

    *out = NULL;
    if (!h)
        return error_set(err, ERR_NOMEM, "out of memory");
    h->python = python;
    pthread_mutex_init(&h->mutex, NULL);
    int rc = start(h, "check", NULL, err);
    if (rc != 0) {
        helper_free(h);
        return rc;
    }
    *out = h;
    return 0;
}

void
helper_free(struct helper *h)
{
    if (!h)
        return;
    end(h);
    pthread_mutex_destroy(&h->mutex);
    free(h->line);
    free(h);
}

static int
check(struct helper *h, const char *text, json_t **reply, struct error *err)
{
    int rc = h->pid ? 0 : start(h, "check", NULL, err);

    if (rc != 0)
        return rc;
    bool is_sent = fputs(text, h->to) != EOF && putc('\n', h->to) != EOF && fflush(h->to) == 0;
    ssize_t size = is_sent ? getline(&h->line, &h->capacity, h->from) : -1;
    if (size > 0)
        *reply = json_loadb(h->line, (size_t)size, 0, NULL);
    if (json_is_object(*reply))
        return 0;
    json_decref(*reply);
    *reply = NULL;
    end(h);
    return error_set(err, ERR_PROTOCOL, "it ended the interpreter that was to parse it");
}

int
helper_check(struct helper *h, json_t *row, json_t **reply, struct error *err)
{
    AUTO_FREE char *text = json_dumps(row, JSON_COMPACT);

    *reply = NULL;
    if (!text)
        return error_set(err, ERR_NOMEM, "out of memory");
    pthread_mutex_lock(&h->mutex);
    int rc = check(h, text, reply, err);
    pthread_mutex_unlock(&h->mutex);
    return rc;
}

int
helper_parquet(const char *python, const char *file, char path[32], struct helper **out, struct error *err)
{
    struct helper *h = calloc(1, sizeof(*h));

    *out = NULL;
    if (!h)
        return error_set(err, ERR_NOMEM, "out of memory");
    h->python = python;
    pthread_mutex_init(&h->mutex, NULL);
    int rc = start(h, "parquet", file, err);
    if (rc != 0) {
        helper_free(h);
        return rc;
    }
    snprintf(path, 32, "/dev/fd/%d", fileno(h->from));
    *out = h;
    return 0;
}

int
helper_ended(struct helper *h, struct error *err)
{
    int status = 0;
    while (waitpid(h->pid, &status, 0) < 0 && errno == EINTR)
        ;
    h->pid = 0;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0
               ? 0
               : error_set(err, ERR_INPUT, "the parquet file could not be read");
}
