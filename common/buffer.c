#include "common/buffer.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

void
buffer_release(struct buffer *b)
{
    free(b->data);
    *b = (struct buffer)BUFFER_INIT;
}

void
buffer_clear(struct buffer *b)
{
    b->size = 0;
    b->is_short = false;
    if (b->data)
        b->data[0] = '\0';
}

int
buffer_reserve(struct buffer *b, size_t extra)
{
    size_t need = b->size + extra + 1;
    b->is_short = b->is_short || extra >= SIZE_MAX / 2 - b->size;
    if (b->is_short || need <= b->capacity)
        return b->is_short ? ERR_NOMEM : 0;
    /* Doubling keeps appends cheap; the first block holds a typical line. */
    size_t capacity = b->capacity < 128 ? 128 : b->capacity * 2;
    if (capacity < need)
        capacity = need;
    char *grown = realloc(b->data, capacity);
    b->is_short = !grown;
    if (!grown)
        return ERR_NOMEM;
    grown[b->size] = '\0';
    b->data = grown;
    b->capacity = capacity;
    return 0;
}

int
buffer_append(struct buffer *b, const void *bytes, size_t n)
{
    if (buffer_reserve(b, n) < 0)
        return ERR_NOMEM;
    if (n > 0)
        memcpy(b->data + b->size, bytes, n);
    b->size += n;
    b->data[b->size] = '\0';
    return 0;
}

int
buffer_add(struct buffer *b, const char *text)
{
    return buffer_append(b, text, strlen(text));
}

int
buffer_printf(struct buffer *b, const char *format, ...)
{
    size_t room =
        !b->is_short && b->capacity > b->size ? b->capacity - b->size : 0; /* with that of the NUL */
    va_list args;

    /* Mostly there is room, and it is written at once. */
    va_start(args, format);
    int n = vsnprintf(room > 0 ? b->data + b->size : NULL, room, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= room) {
        if (room > 0)
            b->data[b->size] = '\0';
        if (n < 0 || buffer_reserve(b, (size_t)n) < 0)
            return ERR_NOMEM;
        va_start(args, format);
        vsnprintf(b->data + b->size, (size_t)n + 1, format, args);
        va_end(args);
    }
    b->size += (size_t)n;
    return 0;
}

int
buffer_read(struct buffer *b, FILE *from, const char *name, size_t most, struct error *err)
{
    size_t limit = b->size + most, n = 1;

    while (n > 0 && b->size <= limit) {
        if (buffer_reserve(b, 65536) != 0)
            return error_set(err, ERR_NOMEM, "no memory to read %s", name);
        n = fread(b->data + b->size, 1, 65536, from);
        b->size += n;
        b->data[b->size] = '\0';
    }
    if (ferror(from))
        return error_set(err, ERR_SYS, "cannot read %s", name);
    return b->size <= limit ? 0 : error_set(err, ERR_INPUT, "%s: has more than %zu bytes", name, most);
}

int
buffer_read_file(struct buffer *b, const char *path, size_t most, struct error *err)
{
    FILE *from = fopen(path, "re");

    if (!from)
        return error_set(err, ERR_SYS, "cannot read %s", path);
    int rc = buffer_read(b, from, path, most, err);
    fclose(from);
    return rc;
}

char *
buffer_take(struct buffer *b, size_t *size)
{
    if (size)
        *size = 0;
    if (buffer_reserve(b, 0) < 0)
        return NULL;
    char *data = b->data;
    if (size)
        *size = b->size;
    *b = (struct buffer)BUFFER_INIT;
    return data;
}
