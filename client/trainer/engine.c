#include "client/trainer/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/buffer.h"

/* A word with {source} and {target} put in, wherever they stand in it. Given. */
static char *
word_of(const char *word, size_t size, const char *source, const char *target)
{
    AUTO_BUFFER struct buffer out = BUFFER_INIT;
    for (size_t at = 0; at < size;) {
        bool is_source = size - at >= 8 && strncmp(word + at, "{source}", 8) == 0;
        bool is_target = size - at >= 8 && strncmp(word + at, "{target}", 8) == 0;
        int rc = is_source   ? buffer_add(&out, source)
                 : is_target ? buffer_add(&out, target)
                             : buffer_append(&out, word + at, 1);
        if (rc != 0)
            return NULL;
        at += is_source || is_target ? 8 : 1;
    }
    return strdup(out.data ? out.data : "");
}

static void
free_words(char **words)
{
    for (char **at = words; at && *at; at++)
        free(*at);
    free(words);
}

char **
engine_words(const char *command, const char *source, const char *target)
{
    char **out = calloc(strlen(command) + 2, sizeof(*out));
    size_t n = 0;
    for (const char *at = command; out && *(at += strspn(at, " ")); at += strcspn(at, " "))
        if ((out[n++] = word_of(at, strcspn(at, " "), source, target)) == NULL) {
            free_words(out);
            return NULL;
        }
    return out;
}

const char *
engine_meaning(const char *said, const char **at)
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
        { "unsupported transport",
          "AWS_CA_BUNDLE is set, which rclone cannot use: give it RCLONE_CA_CERT: " },
        { "--ca-cert", "the file of AWS_CA_BUNDLE (or RCLONE_CA_CERT) has no certificates: " },
        { "didn't find section in config file", "rclone knows no such remote: " },
    };
    for (size_t i = 0; i < ARRAY_LEN(causes); i++)
        if ((*at = strstr(said, causes[i].said)) != NULL)
            return causes[i].means;
    return "";
}

/*
 * rclone gives up on S3 where AWS_CA_BUNDLE is set ("unsupported transport"), and has RCLONE_CA_CERT for the same. The list is
 * given, its words are views; NULL: no memory.
 */
static char **
environment_of(const char *program)
{
    const char *name = strrchr(program, '/'), *bundle = getenv("AWS_CA_BUNDLE");
    bool is_rclone = strcmp(name ? name + 1 : program, "rclone") == 0;
    static char own[PATH_MAX + 32];
    size_t n = 0, kept = 0;

    while (environ[n])
        n++;
    char **out = calloc(n + 2, sizeof(*out));
    for (size_t i = 0; out && i < n; i++)
        if (!is_rclone || strncmp(environ[i], "AWS_CA_BUNDLE=", 14) != 0)
            out[kept++] = environ[i];
    if (out && is_rclone && bundle && bundle[0] && !getenv("RCLONE_CA_CERT")) {
        snprintf(own, sizeof(own), "RCLONE_CA_CERT=%s", bundle);
        out[kept] = own;
    }
    return out;
}

/* With what it says in a pipe, whose end *out is given; it ends with us. -1: there is no process for it, and errno says why. */
static pid_t
start(char **argv, int *out)
{
    const pid_t parent = getpid();
    char **environment = environment_of(argv[0]);
    int pipes[2];

    if (!environment || pipe2(pipes, O_CLOEXEC) != 0) {
        free(environment);
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM); /* who starts again would have two of them at work */
        if (getppid() != parent)
            _exit(127);
        dup2(pipes[1], STDOUT_FILENO);
        dup2(pipes[1], STDERR_FILENO);
        execvpe(argv[0], argv, environment);
        dprintf(STDERR_FILENO, "cannot start %s: %s", argv[0], strerror(errno));
        _exit(127);
    }
    free(environment);
    close(pipes[1]);
    if (pid < 0)
        close(pipes[0]);
    else
        *out = pipes[0];
    return pid;
}

/* Until the end of a pipe: the last of what came through it, without empty lines at its end. */
static void
read_end(int fd, char *said, size_t size)
{
    size_t used = 0;
    ssize_t n;

    while ((n = read(fd, said + used, size - 1 - used)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break;
        used += (size_t)n;
        if (used > size / 2) {
            memmove(said, said + used / 2, used - used / 2);
            used -= used / 2;
        }
    }
    while (used > 0 && said[used - 1] == '\n')
        used--;
    said[used] = '\0';
}

int
engine_run(const char *command, const char *source, const char *target, struct error *err)
{
    char **argv = engine_words(command, source, target), said[4096];
    int status = -1;

    if (!argv)
        return error_set(err, ERR_NOMEM, "out of memory");
    AUTO_FD int out = -1;
    pid_t pid = argv[0] ? start(argv, &out) : -1;
    if (pid < 0) {
        int rc = argv[0] ? error_set(err, ERR_SYS, "cannot start %.60s", argv[0])
                         : error_set(err, ERR_INPUT, "the engine's command is empty");
        free_words(argv);
        return rc;
    }
    free_words(argv);
    read_end(out, said, sizeof(said));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    const char *at = NULL, *means = engine_meaning(said, &at);
    const char *line = at ? at : said + strlen(said);
    while (line > said && line[-1] != '\n')
        line--;
    return error_set(err, ERR_UNAVAILABLE, "%.60s: %s%.*s", target, means, (int)strcspn(line, "\n"), line);
}
