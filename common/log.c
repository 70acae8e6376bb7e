/*
 * Each line leaves in one write(2), so that lines of several threads and of
 * the workers that share stderr do not mix. A reader that does not read is
 * waited for once; then lines are lost, and counted, until it reads again: the
 * loop would stand still with it. Longer lines leave in parts for that, where
 * stderr is no file: a pipe that can be written takes PIPE_BUF bytes at once.
 */
#include "common/log.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/buffer.h"
#include "common/clock.h"
#include "common/error.h"
#include "common/utf8.h"

#define READER_LIMIT_MS 100

static _Atomic int max_level = LOG_LEVEL_INFO;
static _Atomic int line_format = LOG_FORMAT_JSON;
/* Guards what follows, and what poll() promises to one writer. */
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;
static long lines_lost; /* since the last that was written */
static bool is_cut;     /* the last line has no end */

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

/* For people: control characters would move their cursor or forge a line, so they become '?'. */
static void
add_plain_text(struct buffer *line, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        buffer_append(line, c < 0x20 || c == 0x7f ? "?" : text, 1);
    }
}

struct line {
    const char *level, *subject, *msg;
    const struct log_field *fields;
    size_t n;
};

/* A byte that is no UTF-8 becomes '?'. */
static int
add_member(json_t *object, const char *name, const char *value)
{
    AUTO_FREE char *text = value ? strdup(value) : NULL;

    if (text)
        utf8_clean(text);
    return value ? json_object_set_new(object, name, json_string(text)) : 0;
}

static int
make_json(struct buffer *line, const struct line *l)
{
    char now[CLOCK_TEXT_SIZE];
    clock_text(clock_wall_ms(), now);
    AUTO_JSON json_t *object = json_pack("{s:s, s:s}", "time", now, "level", l->level);
    int rc = add_member(object, "subject", l->subject);
    for (size_t i = 0; i < l->n; i++)
        rc |= add_member(object, l->fields[i].name, l->fields[i].value);
    rc |= add_member(object, "msg", l->msg);
    AUTO_FREE char *text = rc == 0 ? json_dumps(object, JSON_COMPACT) : NULL;
    return text ? buffer_printf(line, "%s\n", text) : -1;
}

static int
make_text(struct buffer *line, const struct line *l)
{
    char now[CLOCK_TEXT_SIZE];
    clock_text(clock_wall_ms(), now);
    buffer_printf(line, "%.12s %-5s ", now + 11, l->level);
    if (l->subject) {
        add_plain_text(line, l->subject);
        buffer_add(line, ": ");
    }
    add_plain_text(line, l->msg);
    for (size_t i = 0; i < l->n; i++) {
        if (!l->fields[i].value)
            continue;
        buffer_printf(line, " %s=", l->fields[i].name);
        add_plain_text(line, l->fields[i].value);
    }
    return buffer_add(line, "\n");
}

/* False: nobody reads it. */
static bool
write_all(const char *bytes, size_t size)
{
    struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };
    struct stat st;
    bool is_file = fstat(STDERR_FILENO, &st) == 0 && S_ISREG(st.st_mode);

    for (const char *start = bytes; size > 0;) {
        int found = is_file ? 1 : poll(&p, 1, lines_lost > 0 ? 0 : READER_LIMIT_MS);
        if (found < 0 && errno == EINTR)
            continue;
        if (found == 0) {
            is_cut = is_cut || bytes != start;
            return false;
        }
        ssize_t n = write(STDERR_FILENO, bytes, is_file || size < PIPE_BUF ? size : PIPE_BUF);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return true; /* stderr is closed: there is no other place to report that */
        bytes += n;
        size -= (size_t)n;
    }
    is_cut = false;
    return true;
}

static void
write_line(const char *bytes, size_t size)
{
    char text[96];

    pthread_mutex_lock(&writing);
    if (lines_lost > 0) {
        snprintf(text, sizeof(text),
                 "%s{\"level\":\"error\",\"msg\":\"%ld log lines were lost: nobody read them\"}\n",
                 is_cut ? "\n" : "", lines_lost);
        if (write_all(text, strlen(text)))
            lines_lost = 0;
    }
    if (lines_lost > 0 || !write_all(bytes, size))
        lines_lost++;
    pthread_mutex_unlock(&writing);
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
    return err->sys_errno == ENOSPC ? "a disk of the daemon is full"
                                    : "the daemon could not do it, and its log has the reason";
}
