#include "server/harness/native/harness.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static _Thread_local char last_error[512];

const char *
harness_error(void)
{
    return last_error;
}

int64_t
harness_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int
harness_fail(int code, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(last_error, sizeof(last_error), format, args);
    va_end(args);
    return -code;
}

int
harness_fail_errno(const char *format, ...)
{
    int code = errno != 0 ? errno : EIO;
    va_list args;
    size_t used;

    va_start(args, format);
    vsnprintf(last_error, sizeof(last_error), format, args);
    va_end(args);
    used = strlen(last_error);
    snprintf(last_error + used, sizeof(last_error) - used, ": %s", strerror(code));
    return -code;
}
