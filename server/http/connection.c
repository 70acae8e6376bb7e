#include "server/http/connection.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/auto.h"

/*
 * Theory of operation. MHD's own timeout is an idle timer, which never fires
 * for a client that sends slowly, so every connection has one absolute
 * deadline, set anew for each thing that it waits for. A deadline ends the
 * connection by shutdown(): the descriptor stays MHD's, which then reads its
 * end of file.
 *
 * MHD does not watch a suspended connection; while a request is held, or a
 * stream has nothing to send, a handle of ours watches only for the client's
 * disconnection. (The submission goes on without the client.) That handle is
 * stopped before the connection is resumed, and closed before MHD closes the
 * descriptor.
 */

/*
 * Bounds the kernel's send buffer: output that a client does not read would otherwise grow to megabytes there. The
 * kernel doubles this value.
 */
#define OUTPUT_BYTES (64 * 1024)

static void
connection_closed_cb(uv_handle_t *handle)
{
    struct connection *c = handle->data;
    if (--c->handles_open == 0)
        free(c);
}

/*
 * Whether the connection may stay. One above the limit gets a refusal before it has sent anything: that costs no more
 * than closing it, and a client left in the kernel's queue would get no reason.
 */
static bool
enter(struct connection *c)
{
    struct http *h = c->http;

    c->is_counted = h->connections < (unsigned)h->config->connections;
    if (c->is_counted) {
        h->connections++;
        return true;
    }
    h->connections_refused++;
    connection_refuse(c, PROBLEM_CONNECTIONS, "the daemon has as many connections as it takes");
    return false;
}

static void
connection_open(struct http *h, struct MHD_Connection *mhd, void **context)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct connection *c = calloc(1, sizeof(*c));
    int output_bytes = OUTPUT_BYTES;

    *context = c;
    if (!c || !info)
        return; /* exchange_access_cb() refuses a connection that has none */
    c->http = h;
    c->fd = info->connect_fd;
    if (uv_poll_init(h->loop, &c->gone, c->fd) != 0) {
        free(c);
        *context = NULL;
        return;
    }
    setsockopt(c->fd, SOL_SOCKET, SO_SNDBUF, &output_bytes, sizeof(output_bytes));
    uv_timer_init(h->loop, &c->timer);
    c->gone.data = c;
    c->timer.data = c;
    c->handles_open = 2;
    if (enter(c))
        connection_arm(c, DEADLINE_HEADER, h->config->header_limit_ms);
}

/* MHD ends a connection after refusing a header, too, and leaves the rest of it unread. */
static bool
has_unread(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

static void
connection_close(struct connection *c)
{
    if (c->must_linger || has_unread(c->fd))
        linger_begin(&c->http->lingers, c->fd);
    c->http->must_run = true;
    if (c->is_counted)
        c->http->connections--;
    uv_close((uv_handle_t *)&c->gone, connection_closed_cb);
    uv_close((uv_handle_t *)&c->timer, connection_closed_cb);
}

void
connection_notify_cb(void *cls, struct MHD_Connection *mhd, void **context,
                     enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        connection_open(cls, mhd, context);
    else if (*context)
        connection_close(*context);
}

struct connection *
connection_of(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

static void
deadline_cb(uv_timer_t *timer)
{
    struct connection *c = timer->data;
    c->http->overdue_cb(c);
}

void
connection_arm(struct connection *c, enum deadline deadline, int64_t ms)
{
    c->deadline = deadline;
    /* The loop's clock stands still within a turn; a slow turn must not shorten a deadline. */
    uv_update_time(c->http->loop);
    uv_timer_start(&c->timer, deadline_cb, (uint64_t)ms, 0);
}

void
connection_disarm(struct connection *c)
{
    uv_timer_stop(&c->timer);
}

static void
gone_cb(uv_poll_t *poll, int status, int events)
{
    struct connection *c = poll->data;

    if (status == 0 && !(events & UV_DISCONNECT))
        return;
    uv_poll_stop(&c->gone);
    c->http->gone_cb(c);
}

void
connection_watch(struct connection *c)
{
    uv_poll_start(&c->gone, UV_DISCONNECT, gone_cb);
}

void
connection_unwatch(struct connection *c)
{
    uv_poll_stop(&c->gone);
}

void
connection_shutdown(struct connection *c)
{
    c->is_dead = true;
    connection_disarm(c);
    shutdown(c->fd, SHUT_RDWR);
}

void
connection_refuse(struct connection *c, enum problem problem, const char *detail)
{
    const struct problem_kind *kind = &problem_kinds[problem];
    AUTO_BUFFER struct buffer answer = BUFFER_INIT;
    char request_id[ID_SIZE];

    id_new(request_id);
    AUTO_JSON json_t *document =
        problem_document(problem, c->uri ? c->uri : "", c->request_id ? c->request_id : request_id, detail);
    AUTO_FREE char *text = document ? json_dumps(document, JSON_COMPACT) : NULL;
    if (text &&
        buffer_printf(&answer,
                      "HTTP/1.1 %u %s\r\nConnection: close\r\nContent-Type: application/problem+json\r\n"
                      "%sContent-Length: %zu\r\n\r\n%s",
                      kind->status, MHD_get_reason_phrase_for(kind->status),
                      kind->status == 503 ? "Retry-After: 1\r\n" : "", strlen(text), text) == 0) {
        /* Nothing else is on its way out, so this fits the socket's buffer whole. */
        c->http->requests++;
        c->http->answers[kind->status]++;
        if (send(c->fd, answer.data, answer.size, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)answer.size)
            c->must_linger = true;
    }
    connection_shutdown(c);
}
