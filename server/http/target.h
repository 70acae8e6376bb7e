/* target.h - what a request asks for: the path in segments, the query in pairs. Pure. */
#ifndef HTTP_TARGET_H
#define HTTP_TARGET_H

#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"

#define TARGET_SEGMENTS 8
#define TARGET_PAIRS 16

/* Decoded; all strings are views into text. "/" has no segment, "/a/" has "a" and "". */
struct target {
    char *text; /* owned */
    const char *segments[TARGET_SEGMENTS];
    size_t segments_count;
    struct target_pair {
        const char *name, *value;
        bool is_used; /* some handler knows the name */
    } pairs[TARGET_PAIRS];
    size_t pairs_count;
};

/*
 * Take apart a raw request target ("/v1/tasks/a%20b?limit=3"). Returns 0,
 * ERR_INPUT (no leading slash, a control character or a byte beyond ASCII, a
 * broken or NUL escape, too many parts, a name given twice) or ERR_NOMEM.
 * On failure out is empty.
 */
int target_parse(const char *raw, struct target *out, struct error *err);
void target_release(struct target *t);

/* The value of a query parameter, or NULL. View. */
const char *target_value(const struct target *t, const char *name);

/*
 * The wait of "Prefer: wait=N" (RFC 7240) in whole seconds, or -1 when the
 * header asks for no waiting or is malformed, which the RFC says to ignore.
 */
long prefer_wait_s(const char *header);

/*
 * Whether a header If-None-Match (RFC 9110, section 13.1.2) names the tag, which has its quotes: by itself, in a list,
 * weak or not, or as "*".
 */
bool is_tag_known(const char *header, const char *tag);

#define TRACE_SIZE 33
/*
 * The trace that a header traceparent (W3C Trace Context, level 1) belongs to: 32 hexadecimal digits. False: it is
 * malformed, which the standard says to ignore.
 */
bool traceparent_trace(const char *header, char trace[TRACE_SIZE]);

/*
 * The value of an Idempotency-Key header: 1 to size - 1 visible ASCII characters but quotes and backslashes, in double
 * quotes (as the draft requires) or without (as most clients send it). False: it is malformed.
 */
bool idempotency_key(const char *value, char *out, size_t size);

#endif
