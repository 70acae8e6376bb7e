/* utf8.h - is it UTF-8, and make it so. What goes into JSON has to be. Pure. */
#ifndef COMMON_UTF8_H
#define COMMON_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the well-formed character (RFC 3629) at s, 1..4; 0 when there is none within n bytes. */
size_t utf8_char_size(const char *s, size_t n);
/* Characters of well-formed text of n bytes. */
size_t utf8_length(const char *s, size_t n);
/* The bytes of whole characters among the first size bytes of well-formed text, which is longer. */
size_t utf8_cut(const char *text, size_t size);
bool utf8_is_valid(const char *s, size_t n);
/* Replace each byte that belongs to no character by '?', in place. */
void utf8_clean(char *text);

#endif
