#include "common/http_client.h"

#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <curl/curl.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/program.h"

#define BODY_MAX ((size_t)256 * 1024 * 1024) /* an answer longer than this is a mistake, not an answer */
#define CONNECT_LIMIT_S 10L

struct http_client {
    CURL *curl;
    char *base_url;            /* without trailing slashes */
    char *token;               /* NULL: none */
    bool (*is_stopping)(void); /* NULL: never */
    bool is_distrusted;
    int64_t stall_ns; /* of the transfer under way; 0: it may stand still */
    int64_t heard_ns; /* when its last bytes came */
    curl_off_t heard; /* and the bytes received by then */
    bool is_stalled;
};

static bool
is_loopback(const char *url)
{
    static const char *const hosts[] = { "http://127.", "http://localhost", "http://[::1]" };
    for (size_t i = 0; i < ARRAY_LEN(hosts); i++)
        if (strncasecmp(url, hosts[i], strlen(hosts[i])) == 0)
            return true;
    return false;
}

void
http_client_free(struct http_client *c)
{
    if (!c)
        return;
    if (c->curl)
        curl_easy_cleanup(c->curl);
    free(c->base_url);
    free(c->token);
    free(c);
}

int
http_client_new(const char *base_url, const char *token, struct http_client **out, struct error *err)
{
    *out = NULL;
    if (strncasecmp(base_url, "http://", 7) != 0 && strncasecmp(base_url, "https://", 8) != 0)
        return error_set(err, ERR_INPUT, "\"%s\" is not an http:// or https:// address", base_url);
    struct http_client *c = calloc(1, sizeof(*c));
    if (!c)
        return error_set(err, ERR_NOMEM, "out of memory");
    size_t size = strlen(base_url);
    while (size > 0 && base_url[size - 1] == '/')
        size--;
    c->base_url = strndup(base_url, size);
    c->token = token ? strdup(token) : NULL;
    c->curl = curl_easy_init();
    if (!c->base_url || (token && !c->token) || !c->curl) {
        http_client_free(c);
        return error_set(err, ERR_NOMEM, "out of memory");
    }
    *out = c;
    return 0;
}

void
http_client_stop_when(struct http_client *c, bool (*is_stopping)(void))
{
    c->is_stopping = is_stopping;
}

void
http_answer_release(struct http_answer *a)
{
    buffer_release(&a->body);
    *a = (struct http_answer){ 0, -1, BUFFER_INIT };
}

void
http_client_secure(void *curl)
{
    const char *bundle = program_environment("CURL_CA_BUNDLE", NULL);
    const char *file = bundle ? bundle : program_environment("SSL_CERT_FILE", NULL);
    const char *directory = bundle ? NULL : program_environment("SSL_CERT_DIR", NULL);

#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
#else /* Ubuntu 22.04 */
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    if (file)
        curl_easy_setopt(curl, CURLOPT_CAINFO, file);
    if (directory)
        curl_easy_setopt(curl, CURLOPT_CAPATH, directory);
}

int
http_client_cacert(const char *path, struct error *err)
{
    char whole[PATH_MAX]; /* programs started from here may have another working directory */

    if (!realpath(path, whole) || access(whole, R_OK) != 0)
        return error_set(err, ERR_SYS, "--cacert %s", path);
    return setenv("CURL_CA_BUNDLE", whole, 1) == 0 ? 0 : error_set(err, ERR_NOMEM, "out of memory");
}

bool
http_client_is_distrusted(const struct http_client *c)
{
    return c->is_distrusted;
}

static size_t
receive_cb(char *bytes, size_t one, size_t n, void *arg)
{
    struct buffer *body = arg;
    if (one * n > BODY_MAX - body->size || buffer_append(body, bytes, one * n) < 0)
        return 0; /* curl then ends the transfer with CURLE_WRITE_ERROR */
    return one * n;
}

/*
 * Every second or oftener. Not 0: the transfer ends. curl's own low-speed limit has a mean over five seconds in whole
 * bytes a second, which for a heartbeat of three bytes is 0.
 */
static int
look_cb(void *arg, curl_off_t total, curl_off_t heard, curl_off_t c, curl_off_t d)
{
    struct http_client *client = arg;
    const int64_t now_ns = clock_monotonic_ns();
    (void)total, (void)c, (void)d;
    if (heard != client->heard)
        client->heard_ns = now_ns;
    client->heard = heard;
    client->is_stalled = client->stall_ns > 0 && now_ns - client->heard_ns > client->stall_ns;
    return client->is_stalled || (client->is_stopping && client->is_stopping());
}

static int add_header(struct curl_slist **list, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static int
add_header(struct curl_slist **list, const char *format, ...)
{
    AUTO_FREE char *line = NULL;
    va_list args;

    va_start(args, format);
    int n = vasprintf(&line, format, args);
    va_end(args);
    struct curl_slist *longer = n < 0 ? NULL : curl_slist_append(*list, line);
    *list = longer ? longer : *list;
    return longer ? 0 : ERR_NOMEM;
}

static int
make_headers(const struct http_client *c, bool has_body, const char *key, struct curl_slist **list)
{
    int rc = add_header(list, "Accept: application/json");

    if (rc == 0 && has_body)
        rc = add_header(list, "Content-Type: application/json");
    /* Without this curl asks for "100 Continue" first and waits a second for servers that do not answer it. */
    if (rc == 0 && has_body)
        rc = add_header(list, "Expect:");
    if (rc == 0 && key)
        rc = add_header(list, "Idempotency-Key: \"%s\"", key);
    if (rc == 0 && c->token)
        rc = add_header(list, "Authorization: Bearer %s", c->token);
    return rc;
}

static void
set_options(struct http_client *c, const char *method, const char *url, const struct curl_slist *headers,
            double timeout_s, struct buffer *body)
{
    CURL *curl = c->curl;
    curl_easy_reset(curl); /* keeps the connection, forgets the last request */
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "verifier");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, CONNECT_LIMIT_S);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)(timeout_s * 1000));
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, receive_cb);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, body);
    http_client_secure(curl);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, look_cb);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, c);
    if (is_loopback(c->base_url))
        curl_easy_setopt(curl, CURLOPT_NOPROXY, "*"); /* a proxy's loopback is another machine */
}

static int
explain(CURLcode code, const struct http_client *c, const char *details, struct error *err)
{
    const char *why = c->is_stalled                       ? "it stands still"
                      : code == CURLE_ABORTED_BY_CALLBACK ? "interrupted"
                      : details[0]                        ? details
                                                          : curl_easy_strerror(code);
    const char *remedy =
        c->is_distrusted ? " (--cacert FILE or CURL_CA_BUNDLE says whose certificates to believe)" : "";
    enum err_code name = c->is_stalled                        ? ERR_TIMEOUT
                         : code == CURLE_OPERATION_TIMEDOUT   ? ERR_TIMEOUT
                         : code == CURLE_URL_MALFORMAT        ? ERR_INPUT
                         : code == CURLE_UNSUPPORTED_PROTOCOL ? ERR_INPUT
                         : code == CURLE_OUT_OF_MEMORY        ? ERR_NOMEM
                                                              : ERR_UNAVAILABLE;
    return error_set(err, name, "%s: %s%s", c->base_url, why, remedy);
}

static int
perform(struct http_client *c, struct http_answer *out, struct error *err)
{
    char details[CURL_ERROR_SIZE] = "";
    curl_off_t retry_after = 0;

    c->heard = 0;
    c->heard_ns = clock_monotonic_ns();
    c->is_stalled = false;
    curl_easy_setopt(c->curl, CURLOPT_ERRORBUFFER, details);
    CURLcode code = curl_easy_perform(c->curl);
    curl_easy_setopt(c->curl, CURLOPT_ERRORBUFFER, NULL);
    c->is_distrusted = code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE;
    if (code != CURLE_OK)
        return explain(code, c, details, err);
    curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &out->status);
    curl_easy_getinfo(c->curl, CURLINFO_RETRY_AFTER, &retry_after);
    if (retry_after > 0)
        out->retry_after_s = (double)retry_after;
    return 0;
}

/* The request's options, but for its body. headers: curl_slist_free_all(), also on failure. */
static int
begin(struct http_client *c, const char *method, const char *path, const char *key, bool has_body,
      double timeout_s, struct http_answer *out, struct curl_slist **headers, struct error *err)
{
    AUTO_BUFFER struct buffer url = BUFFER_INIT;

    *out = (struct http_answer){ 0, -1, BUFFER_INIT };
    *headers = NULL;
    if (buffer_printf(&url, "%s%s", c->base_url, path) < 0 || make_headers(c, has_body, key, headers) < 0)
        return error_set(err, ERR_NOMEM, "out of memory");
    set_options(c, method, url.data, *headers, timeout_s, &out->body);
    return 0;
}

int
http_client_call(struct http_client *c, const char *method, const char *path, const char *key,
                 const char *body, size_t body_size, double timeout_s, struct http_answer *out,
                 struct error *err)
{
    struct curl_slist *headers;
    int code = begin(c, method, path, key, body != NULL, timeout_s, out, &headers, err);

    if (code == 0 && body) {
        curl_easy_setopt(c->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body_size);
        curl_easy_setopt(c->curl, CURLOPT_POSTFIELDS, body);
        curl_easy_setopt(c->curl, CURLOPT_CUSTOMREQUEST, method);
    }
    code = code == 0 ? perform(c, out, err) : code;
    curl_slist_free_all(headers);
    if (code < 0)
        http_answer_release(out);
    return code;
}

/* --- bodies of any size --- */

struct download {
    CURL *curl;
    http_sink_cb *sink;
    void *arg;
    struct buffer *refusal;
    bool is_refused_by_sink;
};

static size_t
download_cb(char *bytes, size_t one, size_t n, void *arg)
{
    struct download *d = arg;
    long status = 0;

    curl_easy_getinfo(d->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status < 200 || status > 299)
        return receive_cb(bytes, one, n, d->refusal);
    d->is_refused_by_sink = !d->sink(d->arg, bytes, one * n);
    return d->is_refused_by_sink ? 0 : one * n;
}

int
http_client_download(struct http_client *c, const char *path, int stall_s, http_sink_cb *sink, void *arg,
                     struct http_answer *out, struct error *err)
{
    struct curl_slist *headers;
    struct download d = { c->curl, sink, arg, &out->body, false };
    int code = begin(c, "GET", path, NULL, false, 0, out, &headers, err);

    curl_easy_setopt(c->curl, CURLOPT_WRITEFUNCTION, download_cb);
    curl_easy_setopt(c->curl, CURLOPT_WRITEDATA, &d);
    curl_easy_setopt(c->curl, CURLOPT_TCP_KEEPALIVE, 1L);
    c->stall_ns = stall_s * INT64_C(1000000000);
    code = code == 0 ? perform(c, out, err) : code;
    c->stall_ns = 0;
    curl_slist_free_all(headers);
    if (code < 0)
        http_answer_release(out);
    if (d.is_refused_by_sink)
        return error_set(err, ERR_SYS, "write what was received");
    return code;
}
