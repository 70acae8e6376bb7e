/* access.h - which caller may do what. Private to http/. Loop thread. */
#ifndef HTTP_ACCESS_H
#define HTTP_ACCESS_H

#include "server/http/exchange.h"

/*
 * Identifies the caller and checks that it may use the route; false: the problem (401, 403) was sent. takes_basic: a
 * token may also come as Basic credentials.
 */
bool access_check(struct exchange *x, const struct route *route, bool takes_basic);
/* Whether the caller may know of a submission of this client (NULL: of none). */
bool access_sees_client(const struct exchange *x, const char *client);
/* Whether the caller receives the whole verdict, and not only what disclosure.h leaves of it. */
bool access_sees_detail(const struct exchange *x);
/* A submission's document as the caller may have it: document is taken, the result given. */
json_t *access_view(const struct exchange *x, json_t *document);
/* Keep in the audit trail what the caller does to an object (NULL: none); a trail that cannot be written is logged. */
void access_note(const struct exchange *x, const char *action, const char *object);
/* Replace the client in the body of a new submission or group by the caller's name. */
void access_stamp(struct exchange *x);

#endif
