#include "client/trainer/serving.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/trainer/manifest.h"
#include "client/trainer/trainer.h"
#include "common/auto.h"
#include "common/buffer.h"
#include "common/clock.h"
#include "common/http_client.h"

#define STOP_LIMIT_S 30.0
#define LOAD_LIMIT_S 600.0

int
serving_command(const struct serving *s, struct buffer *out)
{
    static const char mark[] = "{model}";
    int rc = buffer_add(out, "exec ");
    for (const char *at = s->command; *at && rc == 0;) {
        const char *next = strstr(at, mark);
        size_t plain = next ? (size_t)(next - at) : strlen(at);
        rc = buffer_append(out, at, plain);
        at += plain;
        if (rc == 0 && next) {
            rc = buffer_add(out, s->model);
            at += strlen(mark);
        }
    }
    return rc;
}

static int
spawn(struct serving *s, struct error *err)
{
    AUTO_BUFFER struct buffer command = BUFFER_INIT;
    const pid_t parent = getpid();

    if (serving_command(s, &command) != 0)
        return error_set(err, ERR_NOMEM, "out of memory");
    pid_t pid = fork();
    if (pid < 0)
        return error_set(err, ERR_SYS, "cannot start the endpoint");
    if (pid == 0) {
        int fd = open(s->log, O_WRONLY | O_CREAT | O_APPEND, 0666);
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (fd >= 0) {
            dup2(fd, STDOUT_FILENO);
            dup2(fd, STDERR_FILENO);
        }
        setpgid(0, 0);
        if (getppid() == parent)
            execl("/bin/sh", "sh", "-c", command.data, (char *)NULL);
        _exit(127);
    }
    s->pid = pid;
    return 0;
}

/* {"data": [{"id": ...}]}, or NULL. */
static json_t *
models(struct serving *s)
{
    struct http_client *c = NULL;
    struct http_answer a = { 0, -1, BUFFER_INIT };
    struct error ignored = { 0 };
    json_t *out = NULL;

    if (http_client_new(s->url, getenv("OPENAI_API_KEY"), &c, &ignored) == 0 &&
        http_client_call(c, "GET", "/models", NULL, 0, 10, &a, &ignored) == 0 && a.status == 200 &&
        a.body.data)
        out = json_loadb(a.body.data, a.body.size, 0, NULL);
    http_answer_release(&a);
    http_client_free(c);
    return out;
}

int
serving_start(struct serving *s, struct error *err)
{
    const int64_t start_ns = clock_monotonic_ns();

    if (*s->command && s->pid == 0) {
        int rc = spawn(s, err);
        if (rc != 0)
            return rc;
    }
    for (;;) {
        AUTO_JSON json_t *found = models(s);
        int status;
        if (found)
            return 0;
        if (s->pid && waitpid(s->pid, &status, WNOHANG) == s->pid) {
            s->pid = 0;
            return error_set(err, ERR_UNAVAILABLE, "the endpoint's command ended (status %d): see %s",
                             WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), s->log);
        }
        if (trainer_is_stopping())
            return error_set(err, ERR_UNAVAILABLE, "interrupted");
        if ((double)(clock_monotonic_ns() - start_ns) / 1e9 > s->wait_s)
            return error_set(err, ERR_UNAVAILABLE, "the endpoint %s does not answer after %d s", s->url,
                             s->wait_s);
        if (s->tend)
            s->tend(s->tended);
        trainer_pause(0.5);
    }
}

void
serving_stop(struct serving *s)
{
    const int64_t start_ns = clock_monotonic_ns();

    if (!s->pid)
        return;
    kill(-s->pid, SIGTERM);
    while (waitpid(s->pid, NULL, WNOHANG) == 0) {
        const struct timespec step = { 0, 50000000 };
        if ((double)(clock_monotonic_ns() - start_ns) / 1e9 > STOP_LIMIT_S)
            kill(-s->pid, SIGKILL);
        nanosleep(&step, NULL);
    }
    s->pid = 0;
}

bool
serving_has(json_t *found, const char *name)
{
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(found, "data"), i, one)
    {
        const char *id = json_string_value(json_object_get(one, "id"));
        if (id && strcmp(id, name) == 0)
            return true;
    }
    return false;
}

static int
load(struct serving *s, const char *name, const char *path, struct error *err)
{
    struct http_client *c = NULL;
    struct http_answer a = { 0, -1, BUFFER_INIT };
    AUTO_JSON json_t *body = json_pack("{s:s, s:s}", "lora_name", name, "lora_path", path);
    AUTO_FREE char *text = json_dumps(body, JSON_COMPACT);

    if (!text)
        return error_set(err, ERR_NOMEM, "out of memory");
    int rc = http_client_new(s->url, getenv("OPENAI_API_KEY"), &c, err);
    rc = rc == 0
             ? http_client_call(c, "POST", "/load_lora_adapter", text, strlen(text), LOAD_LIMIT_S, &a, err)
             : rc;
    if (rc == 0 && a.status != 200)
        rc = error_set(err, ERR_INPUT,
                       "the endpoint refuses the adapter %.200s (%ld): %.120s (vLLM: --enable-lora and "
                       "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True)",
                       path, a.status, a.body.data ? a.body.data : "");
    http_answer_release(&a);
    http_client_free(c);
    return rc;
}

void
serving_name(const char *adapter, const char *digest, char name[SERVING_NAME_SIZE])
{
    const char *base = strrchr(adapter, '/') ? strrchr(adapter, '/') + 1 : adapter;
    snprintf(name, SERVING_NAME_SIZE, "%.80s-%.12s", base, digest + strlen("sha256:"));
}

int
serving_adapter(struct serving *s, const char *adapter, char name[SERVING_NAME_SIZE], struct error *err)
{
    char file[PATH_MAX], digest[80];

    if (!*adapter) {
        snprintf(name, SERVING_NAME_SIZE, "%s", s->name);
        return 0;
    }
    snprintf(file, sizeof(file), "%s/adapter_model.safetensors", adapter);
    int rc = manifest_verify(adapter, NULL, err);
    rc = rc == 0 ? manifest_digest(file, digest, err) : rc;
    AUTO_FREE char *path = rc == 0 ? realpath(adapter, NULL) : NULL;
    if (rc != 0)
        return rc;
    serving_name(adapter, digest, name);
    AUTO_JSON json_t *found = models(s);
    return serving_has(found, name) ? 0 : load(s, name, path ? path : adapter, err);
}
