/* buffer.h - a growing run of bytes. data is NUL-terminated whenever size > 0 or after init+append. */
#ifndef COMMON_BUFFER_H
#define COMMON_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct error;

struct buffer {
    char *data;      /* owned; NULL while empty and never grown */
    size_t size;     /* bytes in use, the terminating NUL not counted */
    size_t capacity; /* bytes allocated */
    bool is_short;   /* there was no memory for an append; since then none adds anything */
};

#define BUFFER_INIT       \
    {                     \
        NULL, 0, 0, false \
    }

void buffer_release(struct buffer *b); /* leaves it empty and usable */
void buffer_clear(struct buffer *b);   /* size 0, memory kept */
/* The next four return 0 or ERR_NOMEM. Of many appends is_short says at the end whether one of them failed. */
int buffer_reserve(struct buffer *b, size_t extra);
int buffer_append(struct buffer *b, const void *bytes, size_t n);
int buffer_add(struct buffer *b, const char *text); /* append a C string */
int buffer_printf(struct buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/*
 * Append the rest of a file, which is called name in errors. Returns 0, ERR_INPUT (it has more than most bytes),
 * ERR_NOMEM or ERR_SYS. buffer_read_file() opens the file at path.
 */
int buffer_read(struct buffer *b, FILE *from, const char *name, size_t most, struct error *err);
int buffer_read_file(struct buffer *b, const char *path, size_t most, struct error *err);
/* Given: free(); size may be NULL; b is empty after. "" if nothing was appended; NULL: no memory. */
char *buffer_take(struct buffer *b, size_t *size);

#define AUTO_BUFFER __attribute__((cleanup(buffer_release)))

#endif
