#include "client/trainer/rows.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/auto.h"
#include "common/buffer.h"

/* The state of the reading. text holds one row, ROW_MAX + 1 bytes of it at most. */
struct reader {
    FILE *file;
    const char *path;
    struct buffer text;
    size_t number; /* of the row that was read last */
};

static bool
is_blank(int c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static int
keep(struct reader *r, int c)
{
    char byte = (char)c;
    return r->text.size > ROW_MAX ? 0 : buffer_append(&r->text, &byte, 1);
}

static int
hand_on(struct reader *r, rows_cb *cb, void *arg, struct error *err)
{
    json_error_t why;
    char fault[sizeof(why.text) + 16];

    r->number++;
    if (r->text.size > ROW_MAX) {
        snprintf(fault, sizeof(fault), "longer than %d bytes", ROW_MAX);
        return cb(arg, r->number, NULL, fault, err);
    }
    AUTO_JSON json_t *row = json_loadb(r->text.data, r->text.size, JSON_DECODE_ANY, &why);
    snprintf(fault, sizeof(fault), "not JSON: %s", why.text);
    return cb(arg, r->number, row, row ? NULL : fault, err);
}

static int
read_lines(struct reader *r, rows_cb *cb, void *arg, struct error *err)
{
    int c = 0, rc = 0;

    while (rc == 0 && c != EOF) {
        bool has_row = false;
        buffer_clear(&r->text);
        while (rc == 0 && (c = getc_unlocked(r->file)) != EOF && c != '\n') {
            has_row = has_row || !is_blank(c);
            rc = keep(r, c);
        }
        if (rc != 0)
            return error_set(err, rc, "out of memory");
        if (has_row && !ferror(r->file))
            rc = hand_on(r, cb, arg, err);
        else if (c != EOF)
            r->number++; /* rows are numbered as an editor numbers lines */
    }
    return rc;
}

/* One element, up to the comma or bracket behind it, which *end gets; EOF: there is none. */
static int
read_element(struct reader *r, int *end)
{
    bool is_text = false, is_escaped = false;
    int c, depth = 0, rc = 0;

    buffer_clear(&r->text);
    while (rc == 0 && (c = getc_unlocked(r->file)) != EOF) {
        if (is_text) {
            is_text = is_escaped || c != '"';
            is_escaped = !is_escaped && c == '\\';
        } else if (depth <= 0 && (c == ',' || c == ']')) {
            *end = c;
            return 0;
        } else {
            is_text = c == '"';
            depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        }
        if (r->text.size > 0 || !is_blank(c))
            rc = keep(r, c);
    }
    *end = EOF;
    return rc;
}

/* Behind its bracket. */
static int
read_array(struct reader *r, rows_cb *cb, void *arg, struct error *err)
{
    int end = ',', rc = 0;

    while (rc == 0 && end == ',') {
        rc = read_element(r, &end);
        if (rc != 0)
            return error_set(err, rc, "out of memory");
        if (end == EOF && !ferror(r->file))
            return error_set(err, ERR_INPUT, "%s ends inside its array, after row %zu", r->path, r->number);
        if (end == ']' && r->text.size == 0)
            return 0;
        rc = end == EOF ? 0 : hand_on(r, cb, arg, err);
    }
    return rc;
}

/* The byte order mark that editors of Windows put first. No JSON begins with its first byte. */
static void
skip_mark(FILE *file)
{
    int c = getc_unlocked(file);

    for (int i = 0; c == 0xEF && i < 2; i++)
        getc_unlocked(file);
    if (c != EOF && c != 0xEF)
        ungetc(c, file);
}

int
rows_each(const char *path, rows_cb *cb, void *arg, struct error *err)
{
    struct reader r = { .path = path, .text = BUFFER_INIT };
    int c, rc;

    r.file = fopen(path, "r");
    if (!r.file)
        return error_set(err, ERR_SYS, "cannot read %s", path);
    skip_mark(r.file);
    while ((c = getc_unlocked(r.file)) != EOF && is_blank(c))
        r.number += c == '\n';
    if (c == '[') {
        r.number = 0;
        rc = read_array(&r, cb, arg, err);
    } else {
        if (c != EOF)
            ungetc(c, r.file);
        rc = read_lines(&r, cb, arg, err);
    }
    if (rc == 0 && ferror(r.file))
        rc = error_set(err, ERR_SYS, "cannot read %s", path);
    fclose(r.file);
    buffer_release(&r.text);
    return rc;
}
