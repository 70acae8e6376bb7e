#include "server/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"

static int
read_address(struct notify *n, const char *path, struct error *err)
{
    size_t size = strlen(path);

    n->to = (struct sockaddr_un){ .sun_family = AF_UNIX };
    if ((path[0] != '/' && path[0] != '@') || size >= sizeof(n->to.sun_path))
        return error_set(err, ERR_INPUT, "NOTIFY_SOCKET: \"%.40s\" is no path of a socket", path);
    memcpy(n->to.sun_path, path, size);
    if (path[0] == '@')
        n->to.sun_path[0] = '\0'; /* an abstract one */
    n->to_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size);
    return 0;
}

/* Half of the watchdog's period; 0: it does not watch us. */
static int
read_period(uint64_t *half_ms, struct error *err)
{
    const char *period = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    char *end;

    *half_ms = 0;
    if (!period || (pid && strtoll(pid, NULL, 10) != getpid()))
        return 0;
    errno = 0;
    unsigned long long usec = strtoull(period, &end, 10);
    if (errno != 0 || *end || usec < 2000)
        return error_set(err, ERR_INPUT, "WATCHDOG_USEC: \"%.40s\" is no number of microseconds", period);
    *half_ms = usec / 2000;
    return 0;
}

static void
watchdog_cb(uv_timer_t *timer)
{
    notify_say(timer->data, "WATCHDOG=1");
}

int
notify_start(struct notify *n, uv_loop_t *loop, struct error *err)
{
    const char *path = getenv("NOTIFY_SOCKET");
    uint64_t half_ms;

    *n = (struct notify){ .fd = -1 };
    if (!path || !path[0])
        return 0;
    if (read_address(n, path, err) != 0 || read_period(&half_ms, err) != 0)
        return ERR_INPUT;
    n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (n->fd < 0)
        return error_set(err, ERR_SYS, "make a socket for NOTIFY_SOCKET");
    if (half_ms == 0)
        return 0;
    n->is_watched = true;
    uv_timer_init(loop, &n->watchdog);
    n->watchdog.data = n;
    uv_timer_start(&n->watchdog, watchdog_cb, 0, half_ms);
    uv_unref((uv_handle_t *)&n->watchdog);
    return 0;
}

void
notify_say(const struct notify *n, const char *state)
{
    if (n->fd < 0)
        return;
    if (sendto(n->fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&n->to, n->to_size) < 0)
        log_warn(NULL, "systemd is not told %s", state);
}

void
notify_stop(struct notify *n)
{
    if (n->fd >= 0)
        close(n->fd);
    n->fd = -1;
    if (n->is_watched)
        uv_close((uv_handle_t *)&n->watchdog, NULL);
    n->is_watched = false;
}
