/* routes.h - which handler a request is for. Private to http/. Loop thread. */
#ifndef HTTP_ROUTES_H
#define HTTP_ROUTES_H

#include "server/http/exchange.h"

/* The row, or NULL with the problem sent (404, 405, 400 for an unknown parameter). */
const struct route *route_find(struct exchange *x, const char *method);

#endif
