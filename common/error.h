/* error.h - one fixed-size error, filled once where the cause is known. */
#ifndef COMMON_ERROR_H
#define COMMON_ERROR_H

enum err_code {
    ERR_NONE = 0,
    ERR_INPUT = -1, /* the input of the caller or a client is wrong */
    ERR_NOMEM = -2,
    ERR_SYS = -3, /* a system call failed: sys_errno has the reason */
    ERR_NOTFOUND = -4,
    ERR_CONFLICT = -5, /* the thing exists already, or is in a state that forbids the call */
    ERR_FULL = -6,     /* a bound was reached: queue, connections, disk */
    ERR_STORE = -7,    /* the database refused or failed */
    ERR_PROTOCOL = -8, /* a peer broke the worker protocol */
    ERR_TIMEOUT = -9,
    ERR_UNAVAILABLE = -10, /* not now: draining, no worker, no connection */
};

struct error {
    enum err_code code;
    int sys_errno;  /* of ERR_SYS; ENOSPC of an ERR_STORE whose disk is full; else 0 */
    char text[256]; /* for people; always terminated */
};

/*
 * Fill err (which may be NULL) with a printf-style text, and return code, so
 * that `return error_set(...)` reads well. For ERR_SYS errno is read first and
 * its text appended. Any thread.
 */
int error_set(struct error *err, enum err_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Put "prefix: " before the text that is there; a text too long loses its end. */
void error_prefix(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
