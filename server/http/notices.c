#include "server/http/notices.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <curl/curl.h>
#include <sodium.h>
#include <utlist.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/http_client.h"
#include "common/ids.h"
#include "common/log.h"

/*
 * Theory of operation. The loop's thread puts a notice into `inbox` and wakes the sender, which alone has curl's
 * handles and the list `waiting`. A receiver may be slow or away: several are called at once, each for TRY_MS at most,
 * and again after a delay, TRIES times in all. A notice is in memory alone: one that is lost in a stop or a crash is
 * not sent again, and the client finds the end of the group by GET /v1/groups/{id}.
 */
#define TRIES 5
#define TRY_MS 5000L
#define AT_ONCE 8
#define PAUSE_FIRST_NS INT64_C(1000000000) /* five times as long before each next try */
#define IDLE_MS 60000
#define KEY_MIN 16
#define KEY_MAX 256
#define SIGNATURE_SIZE 64

struct notice {
    struct notice *prev, *next;
    char group[ID_SIZE], ended[CLOCK_TEXT_SIZE];
    char *url;
    int tries;
    int64_t due_ns; /* monotonic */
    CURL *easy;     /* while it is asked */
    struct curl_slist *headers;
    char body[160];
};

struct notices {
    char *hosts;
    char key[KEY_MAX + 1];
    CURLM *multi;
    pthread_t thread;
    bool is_started;
    pthread_mutex_t mutex; /* protects the fields below */
    struct notice *inbox;
    struct notices_counts counts;
    bool is_stopping;
};

/* --- where to --- */

/* "host:port" of a URL, lower case as the host is written; false: it is not one of http or https. */
static bool
read_url(const char *url, char *host, size_t size, bool *is_preset_port)
{
    char *scheme = NULL, *name = NULL, *port = NULL, *user = NULL;
    CURLU *u = curl_url();
    bool is_good = u && strlen(url) <= NOTICE_URL_MAX &&
                   curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
                   curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                   curl_url_get(u, CURLUPART_HOST, &name, 0) == CURLUE_OK &&
                   curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK &&
                   curl_url_get(u, CURLUPART_USER, &user, 0) != CURLUE_OK &&
                   (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0);

    if (is_good) {
        snprintf(host, size, "%s:%s", name, port);
        *is_preset_port = strcmp(port, strcmp(scheme, "http") == 0 ? "80" : "443") == 0;
    }
    curl_free(scheme);
    curl_free(name);
    curl_free(port);
    curl_free(user);
    curl_url_cleanup(u);
    return is_good;
}

int
notices_check(const struct notices *n, const char *url, struct error *err)
{
    char host[NOTICE_URL_MAX + 8], *at = NULL;
    bool is_preset_port;

    if (!n)
        return error_set(err, ERR_INPUT, "is not allowed: the operator names no host (notify_hosts)");
    if (!read_url(url, host, sizeof(host), &is_preset_port))
        return error_set(err, ERR_INPUT,
                         "is not an address of http or https, without a user, of %d bytes at most",
                         NOTICE_URL_MAX);
    AUTO_FREE char *hosts = strdup(n->hosts);
    size_t name = (size_t)(strrchr(host, ':') - host);
    for (char *one = hosts ? strtok_r(hosts, " ", &at) : NULL; one; one = strtok_r(NULL, " ", &at))
        if (strcasecmp(one, host) == 0 ||
            (is_preset_port && strlen(one) == name && strncasecmp(one, host, name) == 0))
            return 0;
    return error_set(err, ERR_INPUT, "is not allowed: %.200s is none of the operator's notify_hosts", host);
}

/* --- the message --- */

/* Of the Standard Webhooks: "v1," and the base64 of HMAC-SHA256(key, "ID.SECONDS.BODY"). */
static void
sign(const char *key, const char *id, int64_t seconds, const char *body, char out[SIGNATURE_SIZE])
{
    unsigned char sum[crypto_auth_hmacsha256_BYTES];
    crypto_auth_hmacsha256_state state;
    char head[64];
    int size = snprintf(head, sizeof(head), "%s.%lld.", id, (long long)seconds);

    crypto_auth_hmacsha256_init(&state, (const unsigned char *)key, strlen(key));
    crypto_auth_hmacsha256_update(&state, (const unsigned char *)head, (unsigned long long)size);
    crypto_auth_hmacsha256_update(&state, (const unsigned char *)body, strlen(body));
    crypto_auth_hmacsha256_final(&state, sum);
    memcpy(out, "v1,", 3);
    sodium_bin2base64(out + 3, SIGNATURE_SIZE - 3, sum, sizeof(sum), sodium_base64_VARIANT_ORIGINAL);
}

static bool
add_header(struct notice *w, const char *name, const char *value)
{
    char line[160];

    snprintf(line, sizeof(line), "%s: %s", name, value);
    struct curl_slist *more = curl_slist_append(w->headers, line);
    w->headers = more ? more : w->headers;
    return more;
}

static bool
write_request(const struct notices *n, struct notice *w)
{
    char seconds[24], signature[SIGNATURE_SIZE];
    int64_t now_s = clock_wall_ms() / 1000;

    snprintf(w->body, sizeof(w->body),
             "{\"type\":\"group.ended\",\"timestamp\":\"%s\",\"data\":{\"id\":\"%s\"}}", w->ended, w->group);
    snprintf(seconds, sizeof(seconds), "%lld", (long long)now_s);
    sign(n->key, w->group, now_s, w->body, signature);
    return add_header(w, "Content-Type", "application/json") && add_header(w, "webhook-id", w->group) &&
           add_header(w, "webhook-timestamp", seconds) && add_header(w, "webhook-signature", signature);
}

/* --- sending: the thread's --- */

static size_t
ignore_cb(char *bytes, size_t size, size_t n, void *arg)
{
    (void)bytes;
    (void)arg;
    return size * n;
}

static void
end_try(struct notices *n, struct notice *w)
{
    if (w->easy) {
        curl_multi_remove_handle(n->multi, w->easy);
        curl_easy_cleanup(w->easy);
    }
    curl_slist_free_all(w->headers);
    w->easy = NULL;
    w->headers = NULL;
}

static void
notice_free(struct notices *n, struct notice *w)
{
    end_try(n, w);
    free(w->url);
    free(w);
}

static void
leave(struct notices *n, struct notice **waiting, struct notice *w, bool is_delivered)
{
    pthread_mutex_lock(&n->mutex);
    n->counts.waiting--;
    n->counts.delivered += is_delivered;
    n->counts.failed += !is_delivered;
    pthread_mutex_unlock(&n->mutex);
    DL_DELETE(*waiting, w);
    notice_free(n, w);
}

/* The descriptor must not be inherited by processes started while it is open. */
static curl_socket_t
open_cb(void *arg, curlsocktype purpose, struct curl_sockaddr *to)
{
    (void)arg;
    (void)purpose;
    return socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
}

/* It was refused or not taken, for this reason. */
static void
try_later(struct notices *n, struct notice **waiting, struct notice *w, const char *why)
{
    int64_t pause_ns = PAUSE_FIRST_NS;

    end_try(n, w);
    if (++w->tries == TRIES) {
        log_warn(w->group, "its end was not posted: %s, %d times", why, TRIES);
        leave(n, waiting, w, false);
        return;
    }
    for (int i = 1; i < w->tries; i++)
        pause_ns *= 5;
    w->due_ns = clock_monotonic_ns() + pause_ns;
}

static void
begin_try(struct notices *n, struct notice **waiting, struct notice *w)
{
    w->easy = curl_easy_init();
    if (!w->easy || !write_request(n, w)) {
        try_later(n, waiting, w, "there was no memory");
        return;
    }
    http_client_secure(w->easy);
    curl_easy_setopt(w->easy, CURLOPT_URL, w->url);
    curl_easy_setopt(w->easy, CURLOPT_POSTFIELDS, w->body);
    curl_easy_setopt(w->easy, CURLOPT_HTTPHEADER, w->headers);
    curl_easy_setopt(w->easy, CURLOPT_OPENSOCKETFUNCTION, open_cb);
    curl_easy_setopt(w->easy, CURLOPT_WRITEFUNCTION, ignore_cb);
    curl_easy_setopt(w->easy, CURLOPT_TIMEOUT_MS, TRY_MS);
#if LIBCURL_VERSION_NUM >= 0x075700
    curl_easy_setopt(w->easy, CURLOPT_QUICK_EXIT, 1L); /* the end of a try waits for no resolver */
#endif
    curl_easy_setopt(w->easy, CURLOPT_FOLLOWLOCATION, 0L); /* an allowed host must not redirect to another */
    curl_easy_setopt(w->easy, CURLOPT_PROXY, "");
    curl_easy_setopt(w->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(w->easy, CURLOPT_PRIVATE, w);
    if (curl_multi_add_handle(n->multi, w->easy) != CURLM_OK)
        try_later(n, waiting, w, "there was no memory");
}

static void
take_answers(struct notices *n, struct notice **waiting)
{
    CURLMsg *message;
    int left;

    while ((message = curl_multi_info_read(n->multi, &left))) {
        CURLcode code = message->data.result;
        struct notice *w;
        long status = 0;
        char why[64];
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&w);
        curl_easy_getinfo(message->easy_handle, CURLINFO_RESPONSE_CODE, &status);
        snprintf(why, sizeof(why), "it answered %ld", status);
        if (code == CURLE_OK && status >= 200 && status < 300)
            leave(n, waiting, w, true);
        else
            try_later(n, waiting, w, code == CURLE_OK ? why : curl_easy_strerror(code));
    }
}

static int
count_asked(const struct notice *waiting)
{
    const struct notice *w;
    int n = 0;

    DL_FOREACH(waiting, w)
    {
        n += w->easy != NULL;
    }
    return n;
}

static void
begin_due(struct notices *n, struct notice **waiting)
{
    int64_t now_ns = clock_monotonic_ns();
    int asked = count_asked(*waiting);
    struct notice *w, *next;

    DL_FOREACH_SAFE(*waiting, w, next)
    {
        if (w->easy || w->due_ns > now_ns || asked >= AT_ONCE)
            continue;
        asked++;
        begin_try(n, waiting, w);
    }
}

/* How long there may be nothing to do but for those that are asked. */
static int
pause_ms(const struct notice *waiting)
{
    int64_t now_ns = clock_monotonic_ns(), left_ns = IDLE_MS * INT64_C(1000000);
    const struct notice *w;

    if (count_asked(waiting) >= AT_ONCE)
        return IDLE_MS; /* the end of one of them ends it */
    DL_FOREACH(waiting, w)
    {
        if (!w->easy && w->due_ns - now_ns < left_ns)
            left_ns = w->due_ns > now_ns ? w->due_ns - now_ns : 0;
    }
    return (int)(left_ns / 1000000) + 1;
}

/* False: it is to end. */
static bool
take_new(struct notices *n, struct notice **waiting)
{
    pthread_mutex_lock(&n->mutex);
    bool goes_on = !n->is_stopping;
    DL_CONCAT(*waiting, n->inbox);
    n->inbox = NULL;
    pthread_mutex_unlock(&n->mutex);
    return goes_on;
}

static void *
send_all(void *arg)
{
    struct notices *n = arg;
    struct notice *waiting = NULL, *w, *next;
    int running, left = 0;

    while (take_new(n, &waiting)) {
        begin_due(n, &waiting);
        curl_multi_perform(n->multi, &running);
        take_answers(n, &waiting);
        curl_multi_poll(n->multi, NULL, 0, pause_ms(waiting), NULL);
    }
    DL_FOREACH_SAFE(waiting, w, next)
    {
        left++;
        notice_free(n, w);
    }
    if (left > 0)
        log_warn("notices", "%d ends of groups were not posted", left);
    return NULL;
}

/* --- the loop's side --- */

void
notices_group_ended(struct notices *n, const char *group, const char *url)
{
    struct error err = { 0 };
    struct notice *w = NULL;

    if (notices_check(n, url, &err) < 0) { /* it was allowed when the group was made, or by another node */
        log_warn(group, "its end is not posted: notify_url %s", err.text);
        return;
    }
    pthread_mutex_lock(&n->mutex);
    if (n->counts.waiting < NOTICE_WAITING_MAX && (w = calloc(1, sizeof(*w))) && (w->url = strdup(url))) {
        snprintf(w->group, sizeof(w->group), "%s", group);
        clock_text(clock_wall_ms(), w->ended);
        n->counts.waiting++;
        DL_APPEND(n->inbox, w);
    } else {
        n->counts.failed++;
        free(w);
        w = NULL;
    }
    pthread_mutex_unlock(&n->mutex);
    if (!w)
        log_warn(group, "its end is not posted: too many wait");
    curl_multi_wakeup(n->multi);
}

void
notices_count(struct notices *n, struct notices_counts *out)
{
    *out = (struct notices_counts){ 0 };
    if (!n)
        return;
    pthread_mutex_lock(&n->mutex);
    *out = n->counts;
    pthread_mutex_unlock(&n->mutex);
}

static int
read_key(const char *path, char key[KEY_MAX + 1], struct error *err)
{
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    char text[KEY_MAX + 2];
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));

    if (n < 0)
        return error_set(err, ERR_SYS, "notify_key: read %s", path);
    size_t size = (size_t)n;
    while (size > 0 && strchr(" \t\r\n", text[size - 1]))
        size--;
    if (size < KEY_MIN || size > KEY_MAX || memchr(text, '\0', size))
        return error_set(err, ERR_INPUT, "notify_key: %s is not a key of %d to %d characters", path, KEY_MIN,
                         KEY_MAX);
    memcpy(key, text, size);
    key[size] = '\0';
    sodium_memzero(text, sizeof(text));
    return 0;
}

int
notices_check_key(const char *key_file, struct error *err)
{
    char key[KEY_MAX + 1];
    int rc = read_key(key_file, key, err);

    sodium_memzero(key, sizeof(key));
    return rc;
}

int
notices_new(const char *hosts, const char *key_file, struct notices **out, struct error *err)
{
    *out = NULL;
    if (!hosts || !*hosts)
        return 0;
    struct notices *n = calloc(1, sizeof(*n));
    if (!n)
        return error_set(err, ERR_NOMEM, "no memory for notices");
    pthread_mutex_init(&n->mutex, NULL);
    int rc = read_key(key_file, n->key, err);
    if (rc == 0 && (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK || !(n->hosts = strdup(hosts)) ||
                    !(n->multi = curl_multi_init()) || pthread_create(&n->thread, NULL, send_all, n) != 0))
        rc = error_set(err, ERR_NOMEM, "no memory for notices");
    if (rc < 0) {
        notices_free(n);
        return rc;
    }
    n->is_started = true;
    *out = n;
    return 0;
}

void
notices_free(struct notices *n)
{
    if (!n)
        return;
    pthread_mutex_lock(&n->mutex);
    n->is_stopping = true;
    pthread_mutex_unlock(&n->mutex);
    if (n->is_started) {
        curl_multi_wakeup(n->multi);
        pthread_join(n->thread, NULL);
    }
    curl_multi_cleanup(n->multi);
    pthread_mutex_destroy(&n->mutex);
    sodium_memzero(n->key, sizeof(n->key));
    free(n->hosts);
    free(n);
}
