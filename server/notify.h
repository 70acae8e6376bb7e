/* notify.h - what systemd is told of the daemon (sd_notify(3)), where systemd started it. Loop thread only. */
#ifndef SERVER_NOTIFY_H
#define SERVER_NOTIFY_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <uv.h>

#include "common/error.h"

struct notify {
    int fd; /* < 0: nobody wants to know */
    struct sockaddr_un to;
    socklen_t to_size;
    uv_timer_t watchdog;
    bool is_watched;
};

/*
 * As NOTIFY_SOCKET and WATCHDOG_USEC say. With a watchdog the loop reports itself twice in each of its periods, so that a
 * daemon whose loop hangs is started again; that timer does not hold the loop. 0, ERR_INPUT (what they say cannot be) or
 * ERR_SYS. Memory of the caller's: it stays until the loop has run after notify_stop().
 */
int notify_start(struct notify *n, uv_loop_t *loop, struct error *err);
/* "READY=1", "STOPPING=1": sd_notify(3) lists them. What cannot be sent is logged. */
void notify_say(const struct notify *n, const char *state);
void notify_stop(struct notify *n);

#endif
