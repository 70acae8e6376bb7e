#include "client/trainer/run_along.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/trainer/child.h"
#include "client/trainer/run_state.h"
#include "client/trainer/runconf.h"
#include "common/auto.h"
#include "common/clock.h"

#define SECOND_NS INT64_C(1000000000)
enum { LIFE_S = 120, PAUSE_MAX_S = 60 };

/* Its command, with another option in place of the first ("": without it). 0: it could not be started. */
static pid_t
spawn_own(const struct run *r, const struct companion *c, const char *instead)
{
    char workdir[PATH_MAX + 16];
    const char *argv[COMPANION_OPTIONS + 4] = { r->program, c->command, workdir };
    int n = 3;
    snprintf(workdir, sizeof(workdir), "--workdir=%s", r->workdir);
    for (int i = 0; i < COMPANION_OPTIONS; i++) {
        const char *option = i == 0 && instead ? instead : c->options[i];
        if (*option)
            argv[n++] = option;
    }
    pid_t pid = child_spawn(r->program, (char **)(uintptr_t)argv);
    return pid < 0 ? 0 : pid;
}

/* What status shows of it. how: of its end, or NULL. */
static void
note(struct run_along *along, const struct companion *c, const char *how)
{
    char at[CLOCK_TEXT_SIZE];
    struct error err = { 0 };
    json_t *before = json_object_get(json_object_get(along->run->state, "along"), c->command);
    clock_text(clock_wall_ms(), at);
    json_t *now =
        json_pack("{s:b, s:i, s:i}", "is_running", c->pid > 0, "pid", (int)c->pid, "ended", c->ended);
    if (how) {
        json_object_set_new(now, "how", json_string(how));
        json_object_set_new(now, "at", json_string(at));
    } else {
        json_object_set(now, "how", json_object_get(before, "how"));
        json_object_set(now, "at", json_object_get(before, "at"));
    }
    if (run_state_note(along->run, c->command, now, &err) != 0)
        run_say(along->run, "%s", err.text);
}

static void
begin(struct run_along *along, struct companion *c)
{
    c->pid = spawn_own(along->run, c, NULL);
    c->began_ns = clock_monotonic_ns();
    c->again_ns = c->began_ns + PAUSE_MAX_S * SECOND_NS; /* where there is no process for it */
    note(along, c, NULL);
}

int
run_along_start(struct run_along *along)
{
    struct run *r = along->run;
    struct companion *sync = &along->sync, *watch = &along->watch;
    const char *engine = run_text(r, "sync", "engine"), *remote = run_text(r, "sync", "remote");

    if (*remote) {
        sync->command = "sync";
        snprintf(sync->options[0], COMPANION_OPTION_SIZE, "--every=%d",
                 (int)runconf_number(r->conf, "sync", "every_s"));
        snprintf(sync->options[1], COMPANION_OPTION_SIZE, "--remote=%s", remote);
        if (strcmp(engine, "rclone") != 0)
            snprintf(sync->options[2], COMPANION_OPTION_SIZE, "--copy-command=%s", engine);
        pid_t probe = spawn_own(r, sync, "--probe");
        int status = probe ? child_wait(probe, NULL, NULL) : TRAINER_CONFIG;
        if (status != TRAINER_OK) {
            sync->command = NULL;
            run_say(r, "the remote %s cannot be used: nothing was begun", remote);
            return status;
        }
        begin(along, sync);
    }
    if (*run_text(r, "watch", "clouds")) {
        watch->command = "watch";
        snprintf(watch->options[0], COMPANION_OPTION_SIZE, "--clouds=%s", run_text(r, "watch", "clouds"));
        snprintf(watch->options[1], COMPANION_OPTION_SIZE, "--pid=%d", (int)getpid());
        snprintf(watch->options[2], COMPANION_OPTION_SIZE, "--every=%g",
                 runconf_number(r->conf, "watch", "every_s"));
        begin(along, watch);
    }
    return TRAINER_OK;
}

int
companion_pause_s(int n)
{
    return n > 6 ? PAUSE_MAX_S : 1 << (n - 1);
}

/* It ended by itself: say so, and when it is started again. */
static void
mourn(struct run_along *along, struct companion *c, int status)
{
    const int64_t now_ns = clock_monotonic_ns();
    char how[64];

    c->pid = 0;
    c->ended++;
    c->soon = now_ns - c->began_ns > LIFE_S * SECOND_NS ? 1 : c->soon + 1;
    c->again_ns = now_ns + companion_pause_s(c->soon) * SECOND_NS;
    /* A watch that saw a notice has told us: its work is done. */
    c->is_over = c == &along->watch && WIFEXITED(status) && WEXITSTATUS(status) == TRAINER_RESUME;
    snprintf(how, sizeof(how), WIFSIGNALED(status) ? "signal %d" : "status %d",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    if (!c->is_over)
        run_say(along->run, "%s ended (%s): it is started again in %d s, training goes on", c->command, how,
                companion_pause_s(c->soon));
    note(along, c, how);
}

static void
tend(struct run_along *along, struct companion *c)
{
    int status;
    if (!c->command)
        return;
    if (c->pid > 0) {
        if (waitpid(c->pid, &status, WNOHANG) == c->pid)
            mourn(along, c, status);
    } else if (!c->is_over && !trainer_is_stopping() && clock_monotonic_ns() >= c->again_ns) {
        begin(along, c);
        run_say(along->run, c->pid ? "%s was started again" : "%s cannot be started", c->command);
    }
}

void
run_along_tend(void *given)
{
    struct run_along *along = given;
    if (!along)
        return;
    tend(along, &along->sync);
    tend(along, &along->watch);
    if (trainer_is_stopping() && !along->is_hurried) {
        along->is_hurried = true;
        if (along->sync.pid > 0)
            kill(along->sync.pid, SIGUSR1);
    }
}

static void
end(struct companion *c, int signal_number)
{
    if (c->pid > 0 && kill(c->pid, signal_number) == 0)
        while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    c->pid = 0;
}

void
run_along_end(struct run_along *along)
{
    const struct run *r = along->run;
    struct companion *sync = &along->sync;
    int status = 0;

    end(&along->watch, SIGKILL);
    if (!sync->command)
        return;
    end(sync, SIGTERM);
    /* Not child_wait(): the signal that we got is not for this one. */
    pid_t last = spawn_own(r, sync, "");
    while (last > 0 && waitpid(last, &status, 0) < 0 && errno == EINTR)
        ;
    if (last <= 0 || child_status(status) != TRAINER_OK)
        run_say(r, "the last copy to %s failed: trainer sync --remote=...", run_text(r, "sync", "remote"));
}
