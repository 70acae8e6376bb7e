#include "server/workers/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <utlist.h>

#include "common/auto.h"
#include "common/log.h"
#include "server/workers/handle.h"

/*
 * Theory of operation. A packet is read whole or refused; its descriptors are
 * collected before anything in it is parsed, so that none leaks when it is
 * refused. A packet that cannot be sent at once waits in a bounded list. The
 * struct outlives channel_free() until libuv has closed the poll handle, so a
 * callback may free its own channel.
 */

#define QUEUE_MAX 1024
#define PACKETS_EACH_TURN 32
#define PACKETS_LEFT 1024 /* more than the buffer of a socket holds, however small they are */

struct packet {
    struct packet *prev, *next;
    char *bytes;
    size_t size;
    int fds[WORKER_FDS_MAX];
    size_t n_fds;
};

struct channel {
    uv_poll_t poll;
    int fd;
    channel_message_cb *on_message;
    channel_gone_cb *on_gone;
    void *arg;
    struct packet *queue;
    size_t queued;
    bool is_closing;
};

int
message_take_fd(struct message *m, const char *name)
{
    for (size_t i = 0; i < m->n_fds; i++)
        if (m->fds[i] >= 0 && strcmp(m->names[i], name) == 0)
            return fd_take(&m->fds[i]);
    return -1;
}

const char *
message_text(const struct message *m, const char *key)
{
    return json_string_value(json_object_get(m->body, key));
}

static void
close_all(int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (fds[i] >= 0)
            close(fd_take(&fds[i]));
}

static void
packet_free(struct packet *p)
{
    close_all(p->fds, p->n_fds);
    free(p->bytes);
    free(p);
}

void
channel_free(struct channel *c)
{
    struct packet *p, *next;

    if (!c || c->is_closing)
        return;
    c->is_closing = true;
    DL_FOREACH_SAFE(c->queue, p, next)
    packet_free(p);
    c->queue = NULL;
    uv_close((uv_handle_t *)&c->poll, handle_free_cb);
    close(c->fd);
}

static void
end(struct channel *c, const struct error *why)
{
    uv_poll_stop(&c->poll);
    c->on_gone(c->arg, why);
}

/* --- receiving --- */

static size_t
collect_fds(struct msghdr *header, int fds[WORKER_FDS_MAX])
{
    size_t n = 0;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c; c = CMSG_NXTHDR(header, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t here = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < here; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            if (n < WORKER_FDS_MAX)
                fds[n++] = fd;
            else
                close(fd);
        }
    }
    return n;
}

static int
decode(struct message *m, const char *bytes, size_t size, struct error *err)
{
    json_error_t why;

    m->body = json_loadb(bytes, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (!json_is_object(m->body))
        return error_set(err, ERR_PROTOCOL, "a packet is no JSON object: %s",
                         m->body ? "another type" : why.text);
    json_t *names = json_object_get(m->body, "fds");
    if (json_array_size(names) != m->n_fds)
        return error_set(err, ERR_PROTOCOL, "%zu descriptors came, and %zu are named", m->n_fds,
                         json_array_size(names));
    for (size_t i = 0; i < m->n_fds; i++) {
        m->names[i] = json_string_value(json_array_get(names, i));
        if (!m->names[i])
            return error_set(err, ERR_PROTOCOL, "a descriptor's name is no string");
    }
    return 0;
}

/* Reads and hands on one packet. False: stop for this turn. */
static bool
receive_one(struct channel *c)
{
    static char bytes[WORKER_MESSAGE_MAX + 1]; /* loop thread only, and decoded before the callback runs */
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int) * WORKER_FDS_MAX)];
    } control;
    struct iovec iov = { bytes, sizeof(bytes) };
    struct msghdr header = { .msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.space,
                             .msg_controllen = sizeof(control.space) };
    struct message m = { 0 };
    struct error err = { 0 };

    ssize_t size = recvmsg(c->fd, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (size > 0)
        m.n_fds = collect_fds(&header, m.fds);
    if (size < 0)
        error_set(&err, ERR_SYS, "receive");
    else if (size == 0)
        error_set(&err, ERR_UNAVAILABLE, "the other end has closed");
    else if (size > WORKER_MESSAGE_MAX || (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
        error_set(&err, ERR_PROTOCOL, "a packet is larger than allowed");
    else
        decode(&m, bytes, (size_t)size, &err);
    if (err.code == ERR_NONE)
        c->on_message(c->arg, &m);
    close_all(m.fds, m.n_fds);
    json_decref(m.body);
    if (err.code != ERR_NONE && !c->is_closing)
        end(c, &err);
    return err.code == ERR_NONE && !c->is_closing;
}

void
channel_drain(struct channel *c)
{
    for (int i = 0; i < PACKETS_LEFT && !c->is_closing && receive_one(c); i++)
        ;
}

/* --- sending --- */

static int
send_now(struct channel *c, const struct packet *p)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int) * WORKER_FDS_MAX)];
    } control;
    struct iovec iov = { p->bytes, p->size };
    struct msghdr header = { .msg_iov = &iov, .msg_iovlen = 1 };

    if (p->n_fds > 0) {
        memset(&control, 0, sizeof(control));
        header.msg_control = control.space;
        header.msg_controllen = CMSG_SPACE(sizeof(int) * p->n_fds);
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int) * p->n_fds);
        memcpy(CMSG_DATA(rights), p->fds, sizeof(int) * p->n_fds);
    }
    return sendmsg(c->fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

static void poll_cb(uv_poll_t *poll, int status, int events);

static void
watch(struct channel *c)
{
    uv_poll_start(&c->poll, UV_READABLE | (c->queue ? UV_WRITABLE : 0), poll_cb);
}

static void
flush(struct channel *c)
{
    while (c->queue) {
        struct packet *p = c->queue;
        int rc = send_now(c, p);
        if (rc == -EAGAIN || rc == -EINTR || rc == -ENOBUFS)
            return;
        /* The end of a peer is detected at the reading side, with its last messages. */
        DL_DELETE(c->queue, p);
        c->queued--;
        packet_free(p);
    }
    watch(c);
}

static void
poll_cb(uv_poll_t *poll, int status, int events)
{
    struct channel *c = poll->data;

    if (status == 0 && (events & UV_WRITABLE))
        flush(c);
    if (status != 0 || (events & (UV_READABLE | UV_DISCONNECT)))
        for (int i = 0; i < PACKETS_EACH_TURN && receive_one(c); i++)
            ;
}

static int
pack(json_t *body, const struct channel_fd *fds, struct packet *p, struct error *err)
{
    if (p->n_fds > 0) {
        json_t *names = json_array();
        for (size_t i = 0; i < p->n_fds; i++)
            json_array_append_new(names, json_string(fds[i].name));
        json_object_set_new(body, "fds", names);
    }
    p->bytes = json_dumps(body, JSON_COMPACT);
    if (!p->bytes)
        return error_set(err, ERR_NOMEM, "a message cannot be written as JSON");
    p->size = strlen(p->bytes);
    if (p->size > WORKER_MESSAGE_MAX)
        return error_set(err, ERR_INPUT, "a message of %zu bytes is too large", p->size);
    return 0;
}

int
channel_send(struct channel *c, json_t *body, const struct channel_fd *fds, size_t n_fds, struct error *err)
{
    AUTO_JSON json_t *owned = body;
    struct packet *p = calloc(1, sizeof(*p));

    if (!p) {
        for (size_t i = 0; i < n_fds; i++)
            close(fds[i].fd);
        return error_set(err, ERR_NOMEM, "no memory for a message");
    }
    p->n_fds = n_fds;
    for (size_t i = 0; i < n_fds; i++)
        p->fds[i] = fds[i].fd;
    int rc = pack(owned, fds, p, err);
    if (rc == 0 && c->is_closing)
        rc = error_set(err, ERR_UNAVAILABLE, "the channel is closed");
    if (rc == 0 && c->queued >= QUEUE_MAX)
        rc = error_set(err, ERR_FULL, "%zu messages wait and none is read", c->queued);
    int sent = rc == 0 && !c->queue ? send_now(c, p) : -EAGAIN;
    if (rc == 0 && (sent == -EAGAIN || sent == -EINTR || sent == -ENOBUFS)) {
        DL_APPEND(c->queue, p);
        c->queued++;
        watch(c);
        return 0;
    }
    packet_free(p);
    if (rc == 0 && sent < 0) {
        errno = -sent;
        rc = error_set(err, ERR_SYS, "send");
    }
    return rc;
}

int
channel_new(uv_loop_t *loop, int fd, channel_message_cb *on_message, channel_gone_cb *on_gone, void *arg,
            struct channel **out, struct error *err)
{
    struct channel *c = calloc(1, sizeof(*c));
    int rc = c ? uv_poll_init(loop, &c->poll, fd) : UV_ENOMEM;

    *out = NULL;
    if (rc != 0) {
        free(c);
        close(fd);
        return error_set(err, ERR_NOMEM, "watch a channel: %s", uv_strerror(rc));
    }
    c->poll.data = c;
    c->fd = fd;
    c->on_message = on_message;
    c->on_gone = on_gone;
    c->arg = arg;
    watch(c);
    *out = c;
    return 0;
}

static int
add_member(struct buffer *line, const char *key, const json_t *value)
{
    if (json_is_integer(value))
        return buffer_printf(line, " %s=%lld", key, (long long)json_integer_value(value));
    if (json_is_real(value))
        return buffer_printf(line, " %s=%.1f", key, json_real_value(value));
    return json_is_string(value) ? buffer_printf(line, " %s=%.200s", key, json_string_value(value)) : 0;
}

void
channel_log(const char *worker, const char *direction, json_t *body)
{
    static const char *const keys[] = { "op",        "ev",        "child", "role",    "job",
                                        "reference", "candidate", "stage", "outcome", "class",
                                        "rule",      "done",      "of",    "run_ms",  "code",
                                        "signal",    "over",      "why",   "cpu_ms",  "max_rss_kb" };
    AUTO_BUFFER struct buffer line = BUFFER_INIT;

    if (!log_shows(LOG_LEVEL_DEBUG))
        return;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        add_member(&line, keys[i], json_object_get(body, keys[i]));
    log_debug(worker, "%s%s", direction, line.data ? line.data : "");
}

/* --- descriptors other than channels --- */

int
channel_pair(int fds[2], struct error *err)
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
        return error_set(err, ERR_SYS, "socketpair");
    return 0;
}

static int
write_all(int fd, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, bytes, size);
        if (n < 0 && errno != EINTR)
            return -1;
        if (n > 0) {
            bytes += n;
            size -= (size_t)n;
        }
    }
    return 0;
}

int
memfd_make(const char *name, const void *bytes, size_t size, struct error *err)
{
    AUTO_FD int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || write_all(fd, bytes, size) != 0 || lseek(fd, 0, SEEK_SET) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0) {
        error_set(err, ERR_SYS, "memfd %s", name);
        return -1;
    }
    return fd_take(&fd);
}

int
memfd_read(int fd, size_t limit, struct buffer *out, struct error *err)
{
    struct stat info;
    size_t at = 0;

    /* Only memory may be read here: a pipe or a file on a slow disk would hold the loop. */
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &info) != 0)
        return error_set(err, ERR_PROTOCOL, "a descriptor is no sealed memory");
    if (info.st_size < 0 || (uint64_t)info.st_size > limit)
        return error_set(err, ERR_PROTOCOL, "a memfd has %lld bytes; %zu are allowed",
                         (long long)info.st_size, limit);
    size_t size = (size_t)info.st_size;
    if (buffer_reserve(out, size + 1) != 0)
        return error_set(err, ERR_NOMEM, "no memory for %zu bytes", size);
    while (at < size) {
        ssize_t n = pread(fd, out->data + out->size + at, size - at, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return error_set(err, ERR_SYS, "read a memfd");
        at += (size_t)n;
    }
    out->size += size;
    out->data[out->size] = '\0';
    return 0;
}
