#include "client/trainer/trainer.h"

#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "common/clock.h"

#define TOLD_EVERY_NS INT64_C(10000000000)

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

void
trainer_pause(double seconds)
{
    for (; seconds > 0 && !trainer_is_stopping(); seconds -= 0.2) {
        const struct timespec step = { 0, seconds > 0.2 ? 200000000 : (long)(seconds * 1e9) };
        nanosleep(&step, NULL);
    }
}

void
trainer_tell_wait(const char *format, ...)
{
    static _Atomic int64_t told_ns; /* 0: never; all threads wait for the same services */
    int64_t before_ns = atomic_load(&told_ns), now_ns = clock_monotonic_ns();
    char text[400];
    va_list args;

    if ((before_ns && now_ns - before_ns < TOLD_EVERY_NS) ||
        !atomic_compare_exchange_strong(&told_ns, &before_ns, now_ns))
        return;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(stderr, "trainer: waiting: %s\n", text);
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
