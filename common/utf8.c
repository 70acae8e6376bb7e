#include "common/utf8.h"

#include <string.h>

static bool
is_tail(unsigned char c)
{
    return (c & 0xc0) == 0x80;
}

/* Lead bytes that allow over-long forms, surrogates or values past U+10FFFF restrict the byte that follows them. */
static bool
second_is_allowed(unsigned char lead, unsigned char second)
{
    switch (lead) {
    case 0xe0:
        return second >= 0xa0;
    case 0xed:
        return second <= 0x9f;
    case 0xf0:
        return second >= 0x90;
    case 0xf4:
        return second <= 0x8f;
    default:
        return true;
    }
}

size_t
utf8_char_size(const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;
    if (n == 0)
        return 0;
    if (u[0] < 0x80)
        return 1;
    size_t want = u[0] >= 0xc2 && u[0] <= 0xdf   ? 2
                  : u[0] >= 0xe0 && u[0] <= 0xef ? 3
                  : u[0] >= 0xf0 && u[0] <= 0xf4 ? 4
                                                 : 0;
    if (want == 0 || n < want)
        return 0;
    for (size_t i = 1; i < want; i++)
        if (!is_tail(u[i]))
            return 0;
    return second_is_allowed(u[0], u[1]) ? want : 0;
}

size_t
utf8_cut(const char *text, size_t size)
{
    while (size > 0 && is_tail((unsigned char)text[size]))
        size--;
    return size;
}

bool
utf8_is_valid(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t step = utf8_char_size(s + i, n - i);
        if (step == 0)
            return false;
        i += step;
    }
    return true;
}

void
utf8_clean(char *text)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n;) {
        size_t step = utf8_char_size(text + i, n - i);
        if (step == 0) {
            text[i] = '?';
            step = 1;
        }
        i += step;
    }
}

size_t
utf8_length(const char *s, size_t n)
{
    size_t length = 0;

    for (size_t i = 0; i < n; i++)
        length += ((unsigned char)s[i] & 0xc0) != 0x80; /* all but the bytes that go on with a character */
    return length;
}
