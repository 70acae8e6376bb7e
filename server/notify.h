/* notify.h - the daemon's reports to systemd (sd_notify(3)), if systemd started it. Loop thread only. */
#ifndef SERVER_NOTIFY_H
#define SERVER_NOTIFY_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <uv.h>

#include "common/error.h"

struct notify {
    int fd; /* < 0: no reports are wanted */
    struct sockaddr_un to;
    socklen_t to_size;
    uv_timer_t watchdog;
    bool is_watched;
};

/*
 * As NOTIFY_SOCKET and WATCHDOG_USEC request. With a watchdog the loop reports itself twice in each of its periods, so
 * that a daemon whose loop hangs is started again; that timer does not keep the loop alive. 0, ERR_INPUT (they are
 * malformed) or ERR_SYS. Memory of the caller's: it stays until the loop has run after notify_stop().
 */
int notify_start(struct notify *n, uv_loop_t *loop, struct error *err);
/* "READY=1", "STOPPING=1": sd_notify(3) lists them. A report that cannot be sent is logged. */
void notify_say(const struct notify *n, const char *state);
void notify_stop(struct notify *n);

#endif
