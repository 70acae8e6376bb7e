#include "client/trainer/child.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/trainer/trainer.h"

pid_t
child_spawn(const char *program, char *const *argv)
{
    const pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() == parent)
            execvp(program, argv);
        fprintf(stderr, "trainer: cannot start %s: %s\n", program, strerror(errno));
        _exit(TRAINER_CONFIG);
    }
    return pid;
}

/* The exit status from waitpid()'s value, or 128 + the signal. */
static int
child_status(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int
child_wait(pid_t pid)
{
    static const struct timespec look = { 0, 50000000 };
    int status = 0;
    bool is_told = false;
    pid_t ended;
    while ((ended = waitpid(pid, &status, WNOHANG)) == 0) {
        if (trainer_is_stopping() && !is_told) {
            kill(pid, SIGTERM);
            is_told = true;
        }
        nanosleep(&look, NULL);
    }
    return ended == pid ? child_status(status) : TRAINER_CONFIG;
}
