/*
 * audit.h - the administrators' actions: one JSON line for each, only
 * appended, and on disk before the response. The file lies in the directory of
 * the tokens (their name with .audit added), so that `verifierd token` and the
 * daemon write the same one. Any thread, any process.
 */
#ifndef SERVER_AUDIT_H
#define SERVER_AUDIT_H

#include <jansson.h>

#include "common/error.h"

/*
 * {"time","who","action","object","request_id"}
 *   tokens      the file of tokens
 *   who         a client, "operator" (no tokens), "uid N"
 *   object      the object of the action; NULL: none
 *   request_id  of HTTP; NULL: none
 * 0, ERR_SYS or ERR_NOMEM. Waits for the disk: for actions of administrators, which are rare.
 */
int audit_write(const char *tokens, const char *who, const char *action, const char *object,
                const char *request_id, struct error *err);

/* The last ones, limit at most, newest first: an array, empty where there is no file. Given. NULL: ERR_SYS, ERR_NOMEM. */
json_t *audit_read(const char *tokens, int limit, struct error *err);

#endif
