#include "tests/unit/postgres.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <libpq-fe.h>

#include "common/clock.h"

/* One server for the program: making one takes a second, a database in it some milliseconds. */
static struct {
    char dir[40];
    pid_t pid, owner;
    int databases;
} server;

#define START_NS INT64_C(60000000000)

static void
end_server(int signal)
{
    if (server.pid > 0 && getpid() == server.owner) {
        kill(server.pid, signal);
        waitpid(server.pid, NULL, 0);
        server.pid = 0;
    }
}

static void
remove_server(void)
{
    char command[96];

    if (getpid() != server.owner)
        return;
    end_server(SIGINT);
    snprintf(command, sizeof(command), "rm -rf %s", server.dir);
    if (system(command) != 0)
        fprintf(stderr, "%s stays behind\n", server.dir);
}

static void
make_url(const char *database, char url[POSTGRES_URL_SIZE])
{
    snprintf(url, POSTGRES_URL_SIZE, "postgresql:///%s?host=%s&user=verifierd", database, server.dir);
}

static bool
is_up(void)
{
    char url[POSTGRES_URL_SIZE];

    make_url("postgres", url);
    return PQping(url) == PQPING_OK;
}

void
postgres_start(void)
{
    int64_t until_ns = clock_monotonic_ns() + START_NS;

    if (server.dir[0] == '\0') {
        snprintf(server.dir, sizeof(server.dir), "/tmp/postgres-test-XXXXXX");
        assert_non_null(mkdtemp(server.dir));
        server.owner = getpid();
        atexit(remove_server);
    }
    server.pid = fork();
    assert_true(server.pid >= 0);
    if (server.pid == 0) {
        execl("server/deploy/postgres", "postgres", server.dir, "fsync=off", NULL);
        _exit(127);
    }
    while (!is_up()) {
        if (waitpid(server.pid, NULL, WNOHANG) != 0 || clock_monotonic_ns() > until_ns)
            fail_msg("PostgreSQL does not start in %s: install it (apt-get install postgresql, or make "
                     "setup-test)",
                     server.dir);
        usleep(20000);
    }
}

void
postgres_crash(void)
{
    end_server(SIGQUIT);
}

static PGresult *
run(const char *url, const char *sql)
{
    PGconn *conn = PQconnectdb(url);
    PGresult *r = PQexec(conn, sql);
    ExecStatusType status = PQresultStatus(r);

    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        fail_msg("%s: %s", sql, PQerrorMessage(conn));
    PQfinish(conn);
    return r;
}

void
postgres_new(char url[POSTGRES_URL_SIZE])
{
    char name[32], sql[64];

    if (server.pid == 0)
        postgres_start();
    snprintf(name, sizeof(name), "t%d", server.databases++);
    snprintf(sql, sizeof(sql), "CREATE DATABASE %s", name);
    make_url("postgres", url);
    PQclear(run(url, sql));
    make_url(name, url);
}

long long
postgres_number(const char *url, const char *sql)
{
    PGresult *r = run(url, sql);
    long long number = PQntuples(r) > 0 ? strtoll(PQgetvalue(r, 0, 0), NULL, 10) : 0;

    PQclear(r);
    return number;
}
