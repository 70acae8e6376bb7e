/*
 * Layout of a UUIDv7: 48 bits of milliseconds, version, 12 bits that count
 * within the millisecond, variant, 62 random bits. The counter starts at a
 * random value below 2048, so that there is room to count up; when it runs
 * over, or the wall clock steps back, the stamp runs ahead of the clock rather
 * than going back.
 */
#include "common/ids.h"

#include <string.h>

#include "common/clock.h"
#include "common/hash.h"

static struct {
    int64_t stamp_ms;
    unsigned counter;
} last; /* per process by contract: ids.h says loop thread only */

static void
next_stamp(void)
{
    int64_t now_ms = clock_wall_ms();
    if (now_ms > last.stamp_ms) {
        last.stamp_ms = now_ms;
        last.counter = (unsigned)(random_u64() & 0x7ff);
    } else if (++last.counter > 0xfff) {
        last.stamp_ms++;
        last.counter = 0;
    }
}

/* Each request has one; snprintf() would take as long as all the rest of it. */
void
id_new(char out[ID_SIZE])
{
    next_stamp();
    uint64_t random = random_u64();
    uint64_t halves[] = { (uint64_t)last.stamp_ms << 16 | 0x7000 | (last.counter & 0xfff),
                          UINT64_C(1) << 63 | random >> 2 };

    for (int i = 0; i < 32; i++) {
        if (i == 8 || i == 12 || i == 16 || i == 20)
            *out++ = '-';
        *out++ = "0123456789abcdef"[halves[i / 16] >> (60 - i % 16 * 4) & 0xf];
    }
    *out = '\0';
}

bool
id_is_valid(const char *text)
{
    if (!text || strlen(text) != ID_SIZE - 1)
        return false;
    for (int i = 0; i < ID_SIZE - 1; i++) {
        bool is_dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (is_dash ? text[i] != '-' : !strchr("0123456789abcdef", text[i]))
            return false;
    }
    return text[14] == '7' && strchr("89ab", text[19]) != NULL;
}
