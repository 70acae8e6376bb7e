/*
 * http.h - the HTTP service: libmicrohttpd inside the libuv loop.
 * Loop thread only; nothing blocks.
 */
#ifndef HTTP_H
#define HTTP_H

#include <uv.h>

#include "common/error.h"
#include "server/config.h"
#include "server/submission/funnel.h"

struct http;
struct retention;

/*
 * Listen on config->listen and serve.
 *   config, funnel, store, retention   borrowed for its life
 *   out                                given: http_stop(), and free with http_free() once that has called back
 * 0, ERR_SYS (err names the address), ERR_INPUT or ERR_NOMEM.
 */
int http_new(uv_loop_t *loop, const struct config *config, struct funnel *funnel, struct store *store,
             struct retention *retention, struct http **out, struct error *err);

/* "http://127.0.0.1:8080", with the port that was taken. View. */
const char *http_url(const struct http *h);

/* The settings have changed in place: later requests go by them; address and number of connections stay. */
void http_reload(struct http *h);

/* Take no new connections, and answer every held request with the present state. */
void http_drain(struct http *h);

/*
 * After http_drain() and once the funnel is drained: answer the requests that
 * still wait with 503, let the answers go out (a second at most), close all
 * connections. cb runs once, on a later turn of the loop.
 */
void http_stop(struct http *h, void (*cb)(void *arg), void *arg);
/* After http_stop() has called back. NULL is fine. */
void http_free(struct http *h);

#endif
