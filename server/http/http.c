#include "server/http/http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/log.h"
#include "server/http/notices.h"
#include "server/http/exchange.h"
#include "server/http/intake.h"
#include "server/http/running_keys.h"
#include "server/http/streams.h"

/*
 * Theory of operation. MHD runs without a thread of its own; its epoll
 * descriptor is watched by the loop, and MHD_run() does what is ready.
 *
 * In this mode MHD 0.9.75 does not wake its thread when a connection is
 * resumed, and its timeout ignores pending resumes; nor does it listen again
 * after its connection limit until it is run once more. So before the loop
 * sleeps, prepare_cb() runs MHD for as long as something was resumed or
 * closed, a bounded number of times, and sets the timer to MHD's timeout.
 *
 * MHD_stop_daemon() aborts when a connection is suspended: http_stop() has
 * every exchange answered first.
 */

#define RUNS_PER_TURN 8
#define LISTEN_BACKLOG 1024
#define STOP_GRACE_MS 1000

/* The tokens are read once for all requests that are ready. */
static void
run_mhd(struct http *h)
{
    for (int i = 0; i < RUNS_PER_TURN; i++) {
        h->must_run = false;
        keyring_refresh(h->keyring);
        MHD_run(h->daemon);
        if (!h->must_run)
            return;
    }
}

static void
timer_cb(uv_timer_t *timer)
{
    run_mhd(timer->data);
}

static void
poll_cb(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    run_mhd(poll->data);
}

static void
prepare_cb(uv_prepare_t *prepare)
{
    struct http *h = prepare->data;
    MHD_UNSIGNED_LONG_LONG ms;

    watchdog_turn(&h->watchdog);
    if (h->must_run)
        run_mhd(h);
    if (h->must_run)
        uv_timer_start(&h->timer, timer_cb, 0, 0);
    else if (MHD_get_timeout(h->daemon, &ms) == MHD_YES)
        uv_timer_start(&h->timer, timer_cb, ms, 0);
    else
        uv_timer_stop(&h->timer);
}

/* Decoding is ours (target.h), which refuses what MHD would let pass. */
static size_t
keep_escapes_cb(void *cls, struct MHD_Connection *mhd, char *text)
{
    (void)cls;
    (void)mhd;
    return strlen(text);
}

static void __attribute__((format(printf, 2, 0))) mhd_log_cb(void *cls, const char *format, va_list args)
{
    static const char refusal[] = "Error processing request (HTTP response code is %u";
    char text[256];

    if (strncmp(format, refusal, sizeof(refusal) - 1) == 0) {
        va_list copy;
        va_copy(copy, args);
        exchange_refused_by_mhd(cls, va_arg(copy, unsigned));
        va_end(copy);
    }
    /* One line for each client that aborts: nothing that an operator has to see. */
    vsnprintf(text, sizeof(text), format, args);
    text[strcspn(text, "\r\n")] = '\0';
    log_debug("http", "%s", text);
}

/* --- listening --- */

static int
listen_bind(int fd, const char *host, uint16_t port, int family)
{
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port) };
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
    int on = 1;

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (family == AF_INET) {
        inet_pton(AF_INET, host, &v4.sin_addr);
        return bind(fd, (struct sockaddr *)&v4, sizeof(v4));
    }
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    inet_pton(AF_INET6, host, &v6.sin6_addr);
    return bind(fd, (struct sockaddr *)&v6, sizeof(v6));
}

static int
listen_url(struct http *h, int fd, const char *host, int family, struct error *err)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } bound = { 0 };
    socklen_t size = sizeof(bound);

    if (getsockname(fd, &bound.any, &size) != 0)
        return error_set(err, ERR_SYS, "read the address listened on");
    if (family == AF_INET)
        snprintf(h->url, sizeof(h->url), "http://%s:%u", host, ntohs(bound.v4.sin_port));
    else
        snprintf(h->url, sizeof(h->url), "http://[%s]:%u", host, ntohs(bound.v6.sin6_port));
    return 0;
}

/* out: given, close() */
static int
listen_open(struct http *h, int *out, struct error *err)
{
    char host[CONFIG_HOST_SIZE];
    uint16_t port;

    if (config_split_listen(h->config->listen, host, &port, err) != 0)
        return ERR_INPUT;
    int family = strchr(host, ':') ? AF_INET6 : AF_INET;
    AUTO_FD int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set(err, ERR_SYS, "make a socket");
    if (listen_bind(fd, host, port, family) != 0 || listen(fd, LISTEN_BACKLOG) != 0)
        return error_set(err, ERR_SYS, "listen on %s", h->config->listen);
    int rc = listen_url(h, fd, host, family, err);
    if (rc == 0)
        *out = fd_take(&fd);
    return rc;
}

/* --- life --- */

static void
overdue_cb(struct connection *c)
{
    switch (c->deadline) {
    case DEADLINE_HEADER:
        connection_refuse(c, PROBLEM_TIMEOUT, "the header of the request did not arrive in time");
        break;
    case DEADLINE_BODY:
        connection_refuse(c, PROBLEM_TIMEOUT, "the body of the request did not arrive in time");
        break;
    case DEADLINE_HOLD:
        exchange_hold_end(c->exchange);
        break;
    case DEADLINE_WORK:
        exchange_overdue(c->exchange);
        break;
    case DEADLINE_BEAT:
        stream_beat(c->exchange->stream);
        break;
    case DEADLINE_ANSWER:
        if (c->exchange && c->exchange->stream) {
            stream_drop(c->exchange->stream);
            break;
        }
        connection_shutdown(c);
        break;
    case DEADLINE_IDLE:
        connection_shutdown(c);
        break;
    }
}

static void
gone_cb(struct connection *c)
{
    if (c->exchange && c->exchange->phase == EXCHANGE_HELD)
        exchange_hold_end(c->exchange);
    if (c->exchange && c->exchange->stream)
        stream_gone(c->exchange->stream);
}

static int
start_mhd(struct http *h, struct error *err)
{
    AUTO_FD int fd = -1;
    int rc = listen_open(h, &fd, err);
    if (rc != 0)
        return rc;
    h->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, exchange_access_cb, h,
        MHD_OPTION_EXTERNAL_LOGGER, mhd_log_cb, h, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)h->config->connections + HTTP_REFUSED_MOST, MHD_OPTION_CONNECTION_TIMEOUT, 0U,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_CONNECTION_MEMORY, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes_cb, NULL, MHD_OPTION_URI_LOG_CALLBACK, exchange_uri_cb, h,
        MHD_OPTION_NOTIFY_COMPLETED, exchange_completed_cb, h, MHD_OPTION_NOTIFY_CONNECTION,
        connection_notify_cb, h, MHD_OPTION_END);
    if (!h->daemon)
        return error_set(err, ERR_UNAVAILABLE, "libmicrohttpd does not start on %s", h->url);
    fd_take(&fd);
    return 0;
}

static void
start_handles(struct http *h, int epoll_fd)
{
    uv_poll_init(h->loop, &h->poll, epoll_fd);
    watchdog_init(&h->watchdog, h->loop);
    uv_prepare_init(h->loop, &h->prepare);
    uv_timer_init(h->loop, &h->timer);
    h->poll.data = h;
    h->prepare.data = h;
    h->timer.data = h;
    h->handles_open = 3;
    uv_poll_start(&h->poll, UV_READABLE, poll_cb);
    uv_prepare_start(&h->prepare, prepare_cb);
}

static void
event_cb(void *arg, const struct funnel_event *event)
{
    struct http *h = arg;

    streams_event_cb(h, event);
    if (event->notify_url)
        notices_group_ended(h->notices, event->group, event->notify_url);
}

int
http_new(uv_loop_t *loop, const struct config *config, struct funnel *funnel, struct store *store,
         struct retention *retention, struct http **out, struct error *err)
{
    struct http *h = calloc(1, sizeof(*h));

    *out = NULL;
    if (!h)
        return error_set(err, ERR_NOMEM, "no memory for HTTP");
    h->loop = loop;
    h->config = config;
    h->funnel = funnel;
    h->store = store;
    h->retention = retention;
    h->lingers.loop = loop;
    h->overdue_cb = overdue_cb;
    h->gone_cb = gone_cb;
    h->started_ns = clock_monotonic_ns();
    h->events = events_new((size_t)config->events_kept);
    if (!h->events) {
        http_free(h);
        return error_set(err, ERR_NOMEM, "no memory for HTTP");
    }
    int rc = keyring_new(config->tokens, &h->keyring, err);
    if (rc == 0)
        rc = notices_new(config->notify_hosts, config->notify_key, &h->notices, err);
    if (rc == 0)
        rc = start_mhd(h, err);
    if (rc != 0) {
        http_free(h);
        return rc;
    }
    funnel_follow(funnel, event_cb, h);
    start_handles(h, MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd);
    *out = h;
    return 0;
}

const char *
http_url(const struct http *h)
{
    return h->url;
}

void
http_reload(struct http *h)
{
    keyring_refresh(h->keyring);
}

void
http_drain(struct http *h)
{
    struct exchange *x, *next;

    if (h->is_draining)
        return;
    h->is_draining = true;
    MHD_socket fd = MHD_quiesce_daemon(h->daemon);
    if (fd != MHD_INVALID_SOCKET)
        close(fd);
    for (x = h->exchanges; x; x = next) {
        next = x->next;
        if (x->phase == EXCHANGE_HELD)
            exchange_hold_end(x);
        if (x->stream)
            stream_end(x->stream, "draining");
    }
}

/* --- stopping --- */

static void
stop_handle_closed_cb(uv_handle_t *handle)
{
    struct http *h = handle->data;
    if (--h->handles_open == 0)
        h->stopped_cb(h->stopped_arg);
}

static void
stop_rest_cb(uv_timer_t *timer)
{
    struct http *h = timer->data;

    if (h->lingers.count > 0 || h->parses > 0) {
        uv_timer_start(timer, stop_rest_cb, 1, 0);
        return;
    }
    uv_close((uv_handle_t *)&h->poll, stop_handle_closed_cb);
    uv_close((uv_handle_t *)&h->prepare, stop_handle_closed_cb);
    uv_close((uv_handle_t *)&h->timer, stop_handle_closed_cb);
}

static void
stop_now(struct http *h)
{
    uv_poll_stop(&h->poll);
    uv_prepare_stop(&h->prepare);
    MHD_stop_daemon(h->daemon);
    h->daemon = NULL;
    linger_end_all(&h->lingers);
    uv_timer_start(&h->timer, stop_rest_cb, 0, 0);
}

/* Requests that only read are still answered, as long as the time allows. */
static void
give_up_all(struct http *h)
{
    bool is_late = clock_monotonic_ns() > h->stop_ns;
    struct exchange *x, *next;

    for (x = h->exchanges; x; x = next) {
        next = x->next;
        if (!x->is_reading || is_late)
            exchange_give_up(x);
    }
}

/* Runs while answers are sent. MHD is run from here alone: the timer is used for the stop now. */
static void
stop_wait_cb(uv_timer_t *timer)
{
    struct http *h = timer->data;

    give_up_all(h);
    run_mhd(h);
    if (h->suspended > 0 || h->must_run)
        return;
    if (h->exchanges_count == 0 || clock_monotonic_ns() > h->stop_ns)
        stop_now(h);
}

void
http_stop(struct http *h, void (*cb)(void *arg), void *arg)
{
    funnel_follow(h->funnel, NULL, NULL);
    h->stopped_cb = cb;
    h->stopped_arg = arg;
    h->stop_ns = clock_monotonic_ns() + STOP_GRACE_MS * INT64_C(1000000);
    uv_poll_stop(&h->poll);
    uv_prepare_stop(&h->prepare);
    uv_timer_start(&h->timer, stop_wait_cb, 0, 5);
}

void
http_free(struct http *h)
{
    struct running_key *k, *next;

    if (!h)
        return;
    HASH_ITER(hh, h->running_keys, k, next)
    {
        running_key_end(k);
    }
    keyring_free(h->keyring);
    events_free(h->events);
    notices_free(h->notices);
    json_decref(h->process);
    json_decref(h->disks);
    free(h->status.text);
    free(h);
}
