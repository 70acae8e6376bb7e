/*
 * http_load.c - the same GET again and again over connections that are kept, for daemon.py; and the empty
 * libmicrohttpd handler that it is held against.
 *
 *   http_load get PORT PATH N CONNECTIONS
 *   http_load bare
 *
 * get prints "key value" lines. bare prints its port and serves until its input ends.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <microhttpd.h>

#include "common/clock.h"

#define CONNECTIONS_MAX 1024
#define ANSWER_MAX (1024 * 1024)

static void
die(const char *what)
{
    fprintf(stderr, "http_load: %s: %s\n", what, errno != 0 ? strerror(errno) : "failed");
    exit(1);
}

/* --- the handler --- */

static enum MHD_Result
answer_cb(void *cls, struct MHD_Connection *connection, const char *url, const char *method,
          const char *version, const char *upload, size_t *upload_size, void **con_cls)
{
    static char is_begun;

    (void)url;
    (void)method;
    (void)version;
    (void)upload;
    (void)upload_size;

    /* An answer to the header alone ends the connection. */
    if (!*con_cls) {
        *con_cls = &is_begun;
        return MHD_YES;
    }
    return MHD_queue_response(connection, MHD_HTTP_OK, cls);
}

static int
serve_bare(void)
{
    static char body[] = "{}";
    struct MHD_Response *response =
        MHD_create_response_from_buffer(sizeof(body) - 1, body, MHD_RESPMEM_PERSISTENT);
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    struct MHD_Daemon *daemon =
        MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL, answer_cb, response,
                         MHD_OPTION_SOCK_ADDR, &at, MHD_OPTION_CONNECTION_LIMIT, 4096u, MHD_OPTION_END);
    const union MHD_DaemonInfo *info = daemon ? MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT) : NULL;
    char byte;

    if (!info)
        die("start");
    printf("port %u\n", info->port);
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    MHD_stop_daemon(daemon);
    MHD_destroy_response(response);
    return 0;
}

/* --- the load --- */

struct connection {
    int fd;
    int64_t began_ns;
    char *answer;
    size_t got;
};

static int
dial(int port)
{
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)port),
                              .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0)
        die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static void
ask(struct connection *c, const char *request, size_t size)
{
    c->got = 0;
    c->began_ns = clock_monotonic_ns();
    if (send(c->fd, request, size, MSG_NOSIGNAL) != (ssize_t)size)
        die("send");
}

static bool
is_complete(const struct connection *c)
{
    const char *end = strstr(c->answer, "\r\n\r\n");
    const char *length = strcasestr(c->answer, "\r\nContent-Length:");

    if (!end)
        return false;
    if (!length || length > end || strncmp(c->answer, "HTTP/1.1 200", 12) != 0) {
        fprintf(stderr, "http_load: %.300s\n", c->answer);
        exit(1);
    }
    return c->got >= (size_t)(end + 4 - c->answer) + strtoul(length + 17, NULL, 10);
}

/* True when the answer is there as a whole. */
static bool
receive(struct connection *c)
{
    ssize_t n = recv(c->fd, c->answer + c->got, ANSWER_MAX - 1 - c->got, 0);

    if (n <= 0)
        die("the server closed a connection");
    c->got += (size_t)n;
    c->answer[c->got] = '\0';
    return is_complete(c);
}

static int
compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int
get(char **argv)
{
    static struct connection connections[CONNECTIONS_MAX];
    struct epoll_event events[256];
    char request[1024];
    long n = atol(argv[4]), sent = 0, done = 0;
    int together = atoi(argv[5]), port = atoi(argv[2]), epoll = epoll_create1(EPOLL_CLOEXEC);
    double *latency_ms = calloc((size_t)(n > 0 ? n : 1), sizeof *latency_ms);
    size_t size = (size_t)snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n",
                                   argv[3], port);

    if (!latency_ms || epoll < 0 || n < 1 || together < 1 || together > CONNECTIONS_MAX ||
        size >= sizeof request)
        die("set up");
    for (int i = 0; i < together; i++) {
        struct epoll_event event = { .events = EPOLLIN, .data = { .u32 = (uint32_t)i } };
        connections[i].fd = dial(port);
        connections[i].answer = malloc(ANSWER_MAX);
        if (!connections[i].answer || epoll_ctl(epoll, EPOLL_CTL_ADD, connections[i].fd, &event) < 0)
            die("set up");
    }
    /*
     * Where cores are scarce an ordinary client preempts the server at each answer, and what is measured is the
     * kernel's queue: one that works through batches waits until the server has no more to do.
     */
    if (sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){ 0 }) < 0)
        die("sched_setscheduler");
    int64_t began_ns = clock_monotonic_ns();
    for (int i = 0; i < together && sent < n; i++, sent++)
        ask(&connections[i], request, size);
    while (done < n) {
        int ready = epoll_wait(epoll, events, 256, 30000);
        if (ready <= 0)
            die("no answer within 30 s");
        for (int i = 0; i < ready; i++) {
            struct connection *c = &connections[events[i].data.u32];
            if (!receive(c))
                continue;
            latency_ms[done++] = (double)(clock_monotonic_ns() - c->began_ns) / 1e6;
            if (sent < n) {
                ask(c, request, size);
                sent++;
            }
        }
    }
    double seconds = (double)(clock_monotonic_ns() - began_ns) / 1e9;
    qsort(latency_ms, (size_t)n, sizeof *latency_ms, compare_doubles);
    printf("rate %.0f\np50_ms %.3f\np99_ms %.3f\n", (double)n / seconds, latency_ms[n / 2],
           latency_ms[n * 99 / 100]);
    for (int i = 0; i < together; i++) {
        close(connections[i].fd);
        free(connections[i].answer);
    }
    close(epoll);
    free(latency_ms);
    return 0;
}

int
main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[1], "get") == 0)
        return get(argv);
    if (argc == 2 && strcmp(argv[1], "bare") == 0)
        return serve_bare();
    fputs("usage: http_load get PORT PATH N CONNECTIONS\n       http_load bare\n", stderr);
    return 2;
}
