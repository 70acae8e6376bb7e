/*
 * log.h - one line per event on stderr: JSON, or text on a terminal.
 * The subject is the submission, task or worker that the line is about, or
 * NULL. Never log submitted code or secrets. Any thread.
 */
#ifndef COMMON_LOG_H
#define COMMON_LOG_H

#include <stdbool.h>
#include <stddef.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };
enum log_format { LOG_FORMAT_JSON, LOG_FORMAT_TEXT };

void log_setup(enum log_level max, enum log_format format);
/* Whether a line of this level is written: where it costs something to make. */
bool log_shows(enum log_level level);
void log_write(enum log_level level, const char *subject, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A value of a line other than its message, for programs: in JSON a member, in text after the message. */
struct log_field {
    const char *name;  /* static: [a-z_]+, and none of time, level, subject, msg */
    const char *value; /* NULL: left out */
};

void log_write_with(enum log_level level, const char *subject, const struct log_field *fields, size_t n,
                    const char *format, ...) __attribute__((format(printf, 5, 6)));

#define log_error(subject, ...) log_write(LOG_LEVEL_ERROR, subject, __VA_ARGS__)
#define log_warn(subject, ...) log_write(LOG_LEVEL_WARN, subject, __VA_ARGS__)
#define log_info(subject, ...) log_write(LOG_LEVEL_INFO, subject, __VA_ARGS__)
#define log_debug(subject, ...) log_write(LOG_LEVEL_DEBUG, subject, __VA_ARGS__)

/*
 * The text of err for a client; it is logged if it is replaced: a text of a system call or the store names paths and
 * tables of this host. View of err, or static.
 */
struct error;
const char *log_for_client(const char *subject, const struct error *err);

#endif
