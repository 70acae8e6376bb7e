#include "common/clock.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

int64_t
clock_monotonic_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t
clock_wall_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void
clock_text(int64_t wall_ms, char out[CLOCK_TEXT_SIZE])
{
    /* The last millisecond of the year 9999: later ones would not fit the format. */
    const int64_t last_ms = INT64_C(253402300799999);
    struct tm parts;

    if (wall_ms < 0)
        wall_ms = 0;
    if (wall_ms > last_ms)
        wall_ms = last_ms;
    time_t seconds = (time_t)(wall_ms / 1000);
    gmtime_r(&seconds, &parts);
    strftime(out, CLOCK_TEXT_SIZE, "%Y-%m-%dT%H:%M:%S", &parts);
    size_t used = strlen(out);
    snprintf(out + used, CLOCK_TEXT_SIZE - used, ".%03uZ", (unsigned)(wall_ms % 1000));
}
