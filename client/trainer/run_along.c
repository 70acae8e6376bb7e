#include "client/trainer/run_along.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/trainer/child.h"
#include "client/trainer/runconf.h"

/* This program with a command and up to three arguments, as a child that ends with us. 0: it could not be started. */
static pid_t
spawn_own(const struct run *r, const char *command, const char *one, const char *two, const char *three)
{
    char workdir[PATH_MAX + 16];
    const char *argv[] = { r->program, command, workdir, one, two, three, NULL };
    snprintf(workdir, sizeof(workdir), "--workdir=%s", r->workdir);
    pid_t pid = child_spawn(r->program, (char **)(uintptr_t)argv);
    return pid < 0 ? 0 : pid;
}

int
run_along_start(struct run *r, struct run_along *along)
{
    char remote[1100], every[64], copy[1100], clouds[300], pid[32], look[64];
    const char *engine = run_text(r, "sync", "engine");
    bool is_rclone = strcmp(engine, "rclone") == 0;

    snprintf(remote, sizeof(remote), "--remote=%s", run_text(r, "sync", "remote"));
    snprintf(copy, sizeof(copy), "--copy-command=%s", engine);
    snprintf(every, sizeof(every), "--every=%d", (int)runconf_number(r->conf, "sync", "every_s"));
    if (*run_text(r, "sync", "remote")) {
        pid_t probe = spawn_own(r, "sync", remote, "--probe", is_rclone ? NULL : copy);
        int status = probe ? child_wait(probe) : TRAINER_CONFIG;
        if (status != TRAINER_OK) {
            run_say(r, "the remote %s cannot be used: nothing was begun", run_text(r, "sync", "remote"));
            return status;
        }
        along->sync = spawn_own(r, "sync", remote, every, is_rclone ? NULL : copy);
    }
    snprintf(clouds, sizeof(clouds), "--clouds=%s", run_text(r, "watch", "clouds"));
    snprintf(pid, sizeof(pid), "--pid=%d", (int)getpid());
    snprintf(look, sizeof(look), "--every=%g", runconf_number(r->conf, "watch", "every_s"));
    if (*run_text(r, "watch", "clouds"))
        along->watch = spawn_own(r, "watch", clouds, pid, look);
    return TRAINER_OK;
}

static void
end(pid_t pid, int signal_number)
{
    if (pid > 0 && kill(pid, signal_number) == 0)
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
}

void
run_along_end(struct run *r, const struct run_along *along)
{
    char remote[1100], copy[1100];
    const char *engine = run_text(r, "sync", "engine");
    end(along->watch, SIGKILL);
    if (along->sync == 0)
        return;
    end(along->sync, SIGTERM);
    snprintf(remote, sizeof(remote), "--remote=%s", run_text(r, "sync", "remote"));
    snprintf(copy, sizeof(copy), "--copy-command=%s", engine);
    pid_t last = spawn_own(r, "sync", remote, strcmp(engine, "rclone") == 0 ? NULL : copy, NULL);
    if (last && child_wait(last) != TRAINER_OK)
        run_say(r, "the last copy to %s failed: trainer sync --remote=...", run_text(r, "sync", "remote"));
}
