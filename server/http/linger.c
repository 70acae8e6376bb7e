#include "server/http/linger.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utlist.h>

#define LINGER_MS 2000
#define LINGER_BYTES (64 * 1024 * 1024)
#define LINGER_MOST 256

struct leftover {
    struct leftover *prev, *next;
    struct leftovers *all;
    int fd; /* owned */
    uv_poll_t poll;
    uv_timer_t timer;
    unsigned handles_open;
    size_t taken; /* bytes */
};

static void
linger_closed_cb(uv_handle_t *handle)
{
    struct leftover *l = handle->data;
    if (--l->handles_open > 0)
        return;
    DL_DELETE(l->all->list, l);
    l->all->count--;
    close(l->fd);
    free(l);
}

static void
linger_end(struct leftover *l)
{
    if (uv_is_closing((uv_handle_t *)&l->timer))
        return;
    uv_close((uv_handle_t *)&l->poll, linger_closed_cb);
    uv_close((uv_handle_t *)&l->timer, linger_closed_cb);
}

static void
linger_timer_cb(uv_timer_t *timer)
{
    linger_end(timer->data);
}

static void
linger_poll_cb(uv_poll_t *poll, int status, int events)
{
    struct leftover *l = poll->data;
    char bytes[16 * 1024];

    (void)events;
    ssize_t n = status < 0 ? 0 : recv(l->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        l->taken += (size_t)n;
    if (n <= 0 || l->taken > LINGER_BYTES)
        linger_end(l);
}

void
linger_begin(struct leftovers *all, int fd)
{
    struct leftover *l = all->count < LINGER_MOST ? calloc(1, sizeof(*l)) : NULL;
    if (!l)
        return;
    l->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (l->fd < 0 || uv_poll_init(all->loop, &l->poll, l->fd) != 0) {
        if (l->fd >= 0)
            close(l->fd);
        free(l);
        return;
    }
    uv_timer_init(all->loop, &l->timer);
    l->all = all;
    l->handles_open = 2;
    l->poll.data = l;
    l->timer.data = l;
    DL_APPEND(all->list, l);
    all->count++;
    shutdown(l->fd, SHUT_WR);
    uv_poll_start(&l->poll, UV_READABLE, linger_poll_cb);
    uv_timer_start(&l->timer, linger_timer_cb, LINGER_MS, 0);
}

void
linger_end_all(struct leftovers *all)
{
    struct leftover *l;
    DL_FOREACH(all->list, l)
    linger_end(l);
}
