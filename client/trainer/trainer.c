#include "client/trainer/trainer.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>

static volatile sig_atomic_t is_stopping;

bool
trainer_is_stopping(void)
{
    return is_stopping != 0;
}

static void
stop(int signal_number)
{
    (void)signal_number;
    is_stopping = 1;
}

void
trainer_catch_signals(void)
{
    struct sigaction action = { .sa_handler = stop };
    action.sa_flags = 0; /* calls are interrupted, so that they look */
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

int
trainer_complain(enum trainer_exit code, const char *format, ...)
{
    va_list args;

    fputs("trainer: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return (int)code;
}
