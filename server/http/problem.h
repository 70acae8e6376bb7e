/* problem.h - errors as clients see them: problem details (RFC 9457), one table row for each kind. */
#ifndef HTTP_PROBLEM_H
#define HTTP_PROBLEM_H

#include <stdbool.h>

#include <jansson.h>

enum problem {
    PROBLEM_FRAMING,
    PROBLEM_ADDRESS,
    PROBLEM_PARAMETER,
    PROBLEM_HEADER,
    PROBLEM_BODY,
    PROBLEM_UNAUTHORIZED,
    PROBLEM_FORBIDDEN,
    PROBLEM_UNKNOWN_TASK,
    PROBLEM_NOT_FOUND,
    PROBLEM_METHOD,
    PROBLEM_TIMEOUT,
    PROBLEM_FINISHED,
    PROBLEM_UNFINISHED,
    PROBLEM_NAME_TAKEN,
    PROBLEM_IN_USE,
    PROBLEM_KEY_RUNNING,
    PROBLEM_SWEEPING,
    PROBLEM_TOO_LARGE,
    PROBLEM_TYPE,
    PROBLEM_HOST,
    PROBLEM_KEY_REUSED,
    PROBLEM_REFERENCE,
    PROBLEM_FULL,
    PROBLEM_QUOTA_RATE,
    PROBLEM_QUOTA_QUEUED,
    PROBLEM_QUOTA_GPU,
    PROBLEM_INTERNAL,
    PROBLEM_UNAVAILABLE,
    PROBLEM_NOT_READY,
    PROBLEM_CONNECTIONS,
    PROBLEM_COUNT,
};

struct problem_kind {
    unsigned status;   /* of HTTP */
    const char *code;  /* stable, for programs */
    const char *title; /* the same for every problem of the kind */
    bool is_retryable; /* the same request may succeed later */
};

extern const struct problem_kind problem_kinds[PROBLEM_COUNT];

/*
 * The document: type, title, status, detail, instance, code, request_id,
 * retryable. All arguments are borrowed. Given; NULL when there is no memory.
 */
json_t *problem_document(enum problem problem, const char *instance, const char *request_id,
                         const char *detail);

#endif
