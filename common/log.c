/*
 * Each line leaves in one write(2), so that lines of several threads and of
 * the workers that share stderr do not mix.
 */
#include "common/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/buffer.h"
#include "common/clock.h"
#include "common/error.h"
#include "common/utf8.h"

static _Atomic int max_level = LOG_LEVEL_INFO;
static _Atomic int line_format = LOG_FORMAT_JSON;

static const char *const level_name[] = {
    [LOG_LEVEL_ERROR] = "error",
    [LOG_LEVEL_WARN] = "warn",
    [LOG_LEVEL_INFO] = "info",
    [LOG_LEVEL_DEBUG] = "debug",
};

void
log_setup(enum log_level max, enum log_format format)
{
    atomic_store(&max_level, (int)max);
    atomic_store(&line_format, (int)format);
}

bool
log_shows(enum log_level level)
{
    return (int)level <= atomic_load(&max_level);
}

/* Append one character as it stands in a JSON string; a stray byte becomes U+FFFD. */
static int
add_escaped(struct buffer *line, const char *s, size_t size)
{
    unsigned char c = (unsigned char)s[0];
    if (size == 0)
        return buffer_add(line, "\\ufffd");
    if (c == '"' || c == '\\')
        return buffer_printf(line, "\\%c", c);
    if (c == '\n')
        return buffer_add(line, "\\n");
    if (c == '\t')
        return buffer_add(line, "\\t");
    if (c < 0x20 || c == 0x7f)
        return buffer_printf(line, "\\u%04x", c);
    return buffer_append(line, s, size);
}

static int
add_json_text(struct buffer *line, const char *text)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n;) {
        size_t step = utf8_char_size(text + i, n - i);
        if (add_escaped(line, text + i, step) < 0)
            return -1;
        i += step ? step : 1;
    }
    return 0;
}

/* For people: control characters would move their cursor or forge a line, so they become '?'. */
static int
add_plain_text(struct buffer *line, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (buffer_append(line, c < 0x20 || c == 0x7f ? "?" : text, 1) < 0)
            return -1;
    }
    return 0;
}

struct line {
    const char *level, *subject, *msg;
    const struct log_field *fields;
    size_t n;
};

static int
add_member(struct buffer *line, const char *name, const char *value)
{
    if (!value)
        return 0;
    if (buffer_printf(line, "\"%s\":\"", name) < 0 || add_json_text(line, value) < 0)
        return -1;
    return buffer_add(line, "\",");
}

static int
make_json(struct buffer *line, const struct line *l)
{
    char now[CLOCK_TEXT_SIZE];
    clock_text(clock_wall_ms(), now);
    if (buffer_printf(line, "{\"time\":\"%s\",\"level\":\"%s\",", now, l->level) < 0 ||
        add_member(line, "subject", l->subject) < 0)
        return -1;
    for (size_t i = 0; i < l->n; i++)
        if (add_member(line, l->fields[i].name, l->fields[i].value) < 0)
            return -1;
    if (buffer_add(line, "\"msg\":\"") < 0 || add_json_text(line, l->msg) < 0)
        return -1;
    return buffer_add(line, "\"}\n");
}

static int
make_text(struct buffer *line, const struct line *l)
{
    char now[CLOCK_TEXT_SIZE];
    clock_text(clock_wall_ms(), now);
    if (buffer_printf(line, "%.12s %-5s ", now + 11, l->level) < 0)
        return -1;
    if (l->subject && (add_plain_text(line, l->subject) < 0 || buffer_add(line, ": ") < 0))
        return -1;
    if (add_plain_text(line, l->msg) < 0)
        return -1;
    for (size_t i = 0; i < l->n; i++)
        if (l->fields[i].value && (buffer_printf(line, " %s=", l->fields[i].name) < 0 ||
                                   add_plain_text(line, l->fields[i].value) < 0))
            return -1;
    return buffer_add(line, "\n");
}

static void
write_line(const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t n = write(STDERR_FILENO, bytes, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* stderr is closed: there is no other place to report that */
        bytes += n;
        size -= (size_t)n;
    }
}

__attribute__((format(printf, 5, 0))) static void
write_va(enum log_level level, const char *subject, const struct log_field *fields, size_t n,
         const char *format, va_list args)
{
    if (!log_shows(level))
        return;
    int saved = errno;
    AUTO_FREE char *msg = NULL;
    AUTO_BUFFER struct buffer line = BUFFER_INIT;

    if (vasprintf(&msg, format, args) < 0)
        msg = NULL;
    bool is_json = atomic_load(&line_format) == LOG_FORMAT_JSON;
    const struct line parts = { level_name[level], subject, msg, fields, n };
    if (msg && (is_json ? make_json : make_text)(&line, &parts) == 0) {
        write_line(line.data, line.size);
    } else {
        static const char lost[] = "{\"level\":\"error\",\"msg\":\"a log line was lost: out of memory\"}\n";
        write_line(lost, sizeof(lost) - 1);
    }
    errno = saved;
}

void
log_write_with(enum log_level level, const char *subject, const struct log_field *fields, size_t n,
               const char *format, ...)
{
    va_list args;

    va_start(args, format);
    write_va(level, subject, fields, n, format, args);
    va_end(args);
}

void
log_write(enum log_level level, const char *subject, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    write_va(level, subject, NULL, 0, format, args);
    va_end(args);
}

const char *
log_for_client(const char *subject, const struct error *err)
{
    if (err->code != ERR_STORE && err->code != ERR_SYS)
        return err->text;
    log_error(subject, "%s", err->text);
    return "the daemon could not do it, and its log has the reason";
}
