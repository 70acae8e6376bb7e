/*
 * durable_load.c - the same submissions twice, for durable.py: posted to a
 * daemon over a few connections, or inserted into a bare SQLite table.
 *
 *   durable_load http PORT TASK N CONNECTIONS FIRST ID_FILE
 *   durable_load bare FILE TASK N ROWS_PER_COMMIT FIRST
 *
 * FIRST numbers the first submission: runs with different numbers share no
 * source. Prints "key value" lines. http writes the id of every submission
 * that was acknowledged to ID_FILE.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sqlite3.h>

#include "common/buffer.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/ids.h"
#include "tests/bench/durable_source.h"

#define CONNECTIONS_MAX 1024

static void
die(const char *what)
{
    fprintf(stderr, "durable_load: %s: %s\n", what, errno != 0 ? strerror(errno) : "failed");
    exit(1);
}

/* --- over HTTP --- */

struct connection {
    int fd;
    int64_t began_ns;
    char answer[65536];
    size_t got;
};

struct load {
    int port;
    const char *task;
    struct buffer *requests;
    long next, end;
    long acknowledged, refused;
    double *latency_ms;
    FILE *ids;
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
send_all(int fd, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t n = send(fd, bytes, size, MSG_NOSIGNAL);
        if (n < 0)
            die("send");
        bytes += n;
        size -= (size_t)n;
    }
}

/* Requests are written before the clock starts: what is measured is the daemon. */
static struct buffer
make_request(const struct load *l, long number)
{
    struct buffer source = BUFFER_INIT, body = BUFFER_INIT, request = BUFFER_INIT;

    write_source(&source, number, "\\n");
    buffer_printf(&body, "{\"task\":\"%s\",\"client\":\"bench\",\"candidate\":\"%s\"}", l->task, source.data);
    buffer_printf(&request,
                  "POST /v1/submissions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
                  "Content-Length: %zu\r\n\r\n",
                  l->port, body.size);
    buffer_append(&request, body.data, body.size);
    buffer_release(&source);
    buffer_release(&body);
    return request;
}

static void
post_next(struct load *l, struct connection *c)
{
    const struct buffer *request = &l->requests[l->next++];

    c->got = 0;
    c->began_ns = clock_monotonic_ns();
    send_all(c->fd, request->data, request->size);
}

/* The whole answer is there: its header, and as many bytes as that promises. */
static bool
is_complete(const struct connection *c)
{
    const char *end = strstr(c->answer, "\r\n\r\n");
    const char *length = strcasestr(c->answer, "\r\nContent-Length:");

    if (end == NULL)
        return false;
    if (length == NULL || length > end)
        die("an answer without Content-Length");
    return c->got >= (size_t)(end + 4 - c->answer) + strtoul(length + 17, NULL, 10);
}

static void
note_answer(struct load *l, const struct connection *c)
{
    const char *id = strstr(c->answer, "\"id\":");

    if (strncmp(c->answer, "HTTP/1.1 202", 12) != 0 || id == NULL) {
        if (l->refused++ == 0)
            fprintf(stderr, "durable_load: first refusal: %.300s\n", c->answer);
        return;
    }
    id = strchr(id + 5, '"') + 1;
    fprintf(l->ids, "%.36s\n", id);
    l->latency_ms[l->acknowledged++] = (double)(clock_monotonic_ns() - c->began_ns) / 1e6;
}

/* Read what is there. Returns true when the answer is complete. */
static bool
receive(struct connection *c)
{
    ssize_t n = recv(c->fd, c->answer + c->got, sizeof c->answer - 1 - c->got, 0);

    if (n <= 0)
        die("the daemon closed a connection");
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

static void
run_load(struct load *l, struct connection *connections, int n)
{
    struct pollfd fds[CONNECTIONS_MAX];
    int busy = 0;

    for (int i = 0; i < n; i++) {
        connections[i].fd = dial(l->port);
        fds[i] = (struct pollfd){ .fd = connections[i].fd, .events = POLLIN };
        if (l->next < l->end) {
            post_next(l, &connections[i]);
            busy++;
        }
    }
    while (busy > 0) {
        if (poll(fds, (nfds_t)n, 30000) <= 0)
            die("no answer within 30 s");
        for (int i = 0; i < n; i++) {
            if (fds[i].revents == 0 || !receive(&connections[i]))
                continue;
            note_answer(l, &connections[i]);
            if (l->next < l->end)
                post_next(l, &connections[i]);
            else
                busy--;
        }
    }
}

static int
over_http(char **argv)
{
    static struct connection connections[CONNECTIONS_MAX];
    long n = atol(argv[4]), first = atol(argv[6]);
    int together = atoi(argv[5]);
    struct load l = { .port = atoi(argv[2]), .task = argv[3], .end = n };
    int64_t began_ns;
    double seconds;

    l.ids = fopen(argv[7], "w");
    l.latency_ms = calloc((size_t)n, sizeof *l.latency_ms);
    l.requests = calloc((size_t)n, sizeof *l.requests);
    if (l.ids == NULL || l.latency_ms == NULL || l.requests == NULL || together < 1 ||
        together > CONNECTIONS_MAX)
        die("set up");
    for (long i = 0; i < n; i++)
        l.requests[i] = make_request(&l, first + i);
    began_ns = clock_monotonic_ns();
    run_load(&l, connections, together);
    seconds = (double)(clock_monotonic_ns() - began_ns) / 1e9;
    if (fclose(l.ids) != 0)
        die("write ids");
    qsort(l.latency_ms, (size_t)l.acknowledged, sizeof *l.latency_ms, compare_doubles);
    printf("acknowledged %ld\nrefused %ld\nseconds %.3f\nrate %.0f\n", l.acknowledged, l.refused, seconds,
           (double)l.acknowledged / seconds);
    for (long i = 0; i < n; i++)
        buffer_release(&l.requests[i]);
    free(l.requests);
    if (l.acknowledged > 0)
        printf("p50_ms %.2f\np99_ms %.2f\n", l.latency_ms[l.acknowledged / 2],
               l.latency_ms[l.acknowledged * 99 / 100]);
    free(l.latency_ms);
    return l.refused == 0 ? 0 : 1;
}

/* --- bare --- */

static void
exec_sql(sqlite3 *db, const char *sql)
{
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        fprintf(stderr, "durable_load: %s: %s\n", sql, sqlite3_errmsg(db));
        exit(1);
    }
}

static void
insert_bare(sqlite3 *db, sqlite3_stmt *stmt, const char *task, const struct buffer *source)
{
    static const char request[] = "{\"task\":\"\",\"client\":\"bench\",\"policy\":\"strict\"}";
    char id[ID_SIZE], hash[HASH_TEXT_SIZE];

    id_new(id);
    hash_text(source->data, source->size, hash);
    sqlite3_bind_text(stmt, 1, id, -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, 2, task, -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, 3, hash, -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, 4, request, -1, SQLITE_STATIC);
    sqlite3_bind_blob64(stmt, 5, source->data, source->size, SQLITE_STATIC);
    if (sqlite3_step(stmt) != SQLITE_DONE) {
        fprintf(stderr, "durable_load: insert: %s\n", sqlite3_errmsg(db));
        exit(1);
    }
    sqlite3_reset(stmt);
}

static int
bare(char **argv)
{
    long n = atol(argv[4]), first = atol(argv[6]);
    int together = atoi(argv[5]);
    struct buffer *sources = calloc((size_t)n, sizeof *sources);
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt;
    int64_t began_ns;
    double seconds;

    if (sources == NULL || sqlite3_open(argv[2], &db) != SQLITE_OK)
        die(argv[2]);
    exec_sql(db, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
                 "CREATE TABLE IF NOT EXISTS row (id TEXT PRIMARY KEY, task TEXT, hash TEXT, request TEXT, "
                 "source BLOB)");
    if (sqlite3_prepare_v2(db, "INSERT INTO row VALUES (?1, ?2, ?3, ?4, ?5)", -1, &stmt, NULL) != SQLITE_OK)
        die("prepare");
    for (long i = 0; sources != NULL && i < n; i++)
        write_source(&sources[i], first + i, "\n");
    began_ns = clock_monotonic_ns();
    for (long i = 0; i < n; i++) {
        if (i % together == 0)
            exec_sql(db, "BEGIN IMMEDIATE");
        insert_bare(db, stmt, argv[3], &sources[i]);
        if (i % together == together - 1 || i == n - 1)
            exec_sql(db, "COMMIT");
    }
    seconds = (double)(clock_monotonic_ns() - began_ns) / 1e9;
    printf("seconds %.3f\nrate %.0f\n", seconds, (double)n / seconds);
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    for (long i = 0; i < n; i++)
        buffer_release(&sources[i]);
    free(sources);
    return 0;
}

int
main(int argc, char **argv)
{
    if (argc == 8 && strcmp(argv[1], "http") == 0)
        return over_http(argv);
    if (argc == 7 && strcmp(argv[1], "bare") == 0)
        return bare(argv);
    fputs("usage: durable_load http PORT TASK N CONNECTIONS FIRST ID_FILE\n"
          "       durable_load bare FILE TASK N ROWS_PER_COMMIT FIRST\n",
          stderr);
    return 2;
}
