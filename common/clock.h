/* clock.h - monotonic time for deadlines, wall time for display. */
#ifndef COMMON_CLOCK_H
#define COMMON_CLOCK_H

#include <stddef.h>
#include <stdint.h>

int64_t clock_monotonic_ns(void);
int64_t clock_wall_ms(void); /* milliseconds since 1970, UTC */

#define CLOCK_TEXT_SIZE 25 /* "2026-11-21T11:36:17.123Z" and NUL */
void clock_text(int64_t wall_ms, char out[CLOCK_TEXT_SIZE]);

#endif
