/* http_client.h - JSON over HTTP for the command line and the trainer (libcurl). Blocking; one handle per thread. */
#ifndef COMMON_HTTP_CLIENT_H
#define COMMON_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "common/buffer.h"
#include "common/error.h"

struct http_client;

/*
 * base_url is copied ("http://127.0.0.1:8080", no trailing slash needed), token too, which may be NULL.
 * A loopback address is never asked through a proxy. 0, ERR_INPUT (not http or https) or ERR_NOMEM.
 */
int http_client_new(const char *base_url, const char *token, struct http_client **out, struct error *err);
void http_client_free(struct http_client *c);

/*
 * http and https only, after a redirect too; and the certificates, as for curl(1): CURL_CA_BUNDLE's, else those of
 * SSL_CERT_FILE and SSL_CERT_DIR, else the system's. Each client of this module has this already; curl: a CURL * made
 * elsewhere.
 */
void http_client_secure(void *curl);
/* As if CURL_CA_BUNDLE had been set to this file: --cacert. Also for programs started from here. 0 or ERR_SYS. */
int http_client_cacert(const char *path, struct error *err);

/* The last request failed for the server's certificate: the next one would, too. */
bool http_client_is_distrusted(const struct http_client *c);

/*
 * While is_stopping() is true, requests in progress end within about a second and new ones at once, as ERR_UNAVAILABLE.
 */
void http_client_stop_when(struct http_client *c, bool (*is_stopping)(void));

struct http_answer {
    long status;          /* HTTP status; 0 when no answer came */
    double retry_after_s; /* < 0: none */
    struct buffer body;
};
void http_answer_release(struct http_answer *a);

/*
 * One request. path begins with '/'; key: an Idempotency-Key, by which a request that comes twice is done once, NULL for
 * none; body NULL for none, else sent as application/json. Returns 0 for every HTTP response, whatever its status;
 * ERR_UNAVAILABLE (no connection), ERR_TIMEOUT, ERR_INPUT (no such address) or ERR_NOMEM otherwise. timeout_s 0: no limit.
 */
int http_client_call(struct http_client *c, const char *method, const char *path, const char *key,
                     const char *body, size_t body_size, double timeout_s, struct http_answer *out,
                     struct error *err);

/* False: the bytes could not be taken, and the transfer ends. */
typedef bool http_sink_cb(void *arg, const char *bytes, size_t size);

/*
 * GET a body of any size. A 2xx answer's bytes go to sink as they come, any other's into out->body. Returns as
 * http_client_call(), or ERR_SYS (sink would not take them); a transfer that breaks off is ERR_UNAVAILABLE, and one
 * of which no byte comes for stall_s seconds ERR_TIMEOUT.
 */
int http_client_download(struct http_client *c, const char *path, int stall_s, http_sink_cb *sink, void *arg,
                         struct http_answer *out, struct error *err);

#endif
