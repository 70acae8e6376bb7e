#include "server/store/pgsql/link.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <uthash.h>

#include "common/log.h"
#include "server/store/pack.h"

/*
 * Theory of operation. The connection is in libpq's pipeline mode, so that what need not be waited for (BEGIN, SAVEPOINT,
 * RELEASE, the preparation of a statement) travels with the statement behind it: one round trip for each question. A
 * question ends with a sync, and its answers are read before the next one, so neither side's buffers can fill up while
 * both write. An error skips what stands between it and the sync.
 */

struct pg_statement {
    char *sql;
    char name[16];
    bool is_prepared, is_busy;
    UT_hash_handle hh;
};

/* --- columns --- */

char *
pg_column_text(const PGresult *rows, int row, int column)
{
    return PQgetisnull(rows, row, column) ? NULL : PQgetvalue(rows, row, column);
}

int64_t
pg_column_int(const PGresult *rows, int row, int column)
{
    return strtoll(PQgetvalue(rows, row, column), NULL, 10);
}

bool
pg_column_bool(const PGresult *rows, int row, int column)
{
    return PQgetvalue(rows, row, column)[0] == 't';
}

void
pg_column_name(const PGresult *rows, int row, int column, char *out, size_t size)
{
    snprintf(out, size, "%s", PQgetvalue(rows, row, column));
}

static bool
row_is_null(const struct sql_row *row, int column)
{
    return PQgetisnull(row->answer, row->at, column);
}

static const char *
row_text_of(struct sql_row *row, int column)
{
    return PQgetvalue(row->answer, row->at, column);
}

static int64_t
row_whole(const struct sql_row *row, int column)
{
    return pg_column_int(row->answer, row->at, column);
}

static double
row_real_of(const struct sql_row *row, int column)
{
    return strtod(PQgetvalue(row->answer, row->at, column), NULL);
}

static int
row_unpack(const struct sql_row *row, int column, char **out, size_t *size, struct error *err)
{
    const char *text = pg_column_text(row->answer, row->at, column + 1);
    unsigned char *packed = NULL;
    size_t packed_size = 0;

    *out = NULL;
    if (text && !(packed = PQunescapeBytea((const unsigned char *)text, &packed_size)))
        return error_set(err, ERR_NOMEM, "no memory for stored bytes");
    int rc = unpack(packed, packed_size, row_whole(row, column), out, size, err);
    PQfreemem(packed);
    return rc;
}

static const struct sql_row_ops row_ops = {
    .is_null = row_is_null, .text = row_text_of, .whole = row_whole, .real = row_real_of, .unpack = row_unpack
};

/* --- what went wrong --- */

/* libpq's texts end with a newline, and some have several lines. */
static void
one_line(const char *text, char *out, size_t size)
{
    size_t n = 0;

    for (; *text && n + 2 < size; text++) {
        if (*text != '\n' && *text != '\t')
            out[n++] = *text;
        else if (n > 0 && out[n - 1] != ' ' && text[1])
            out[n++] = ' ';
    }
    out[n] = '\0';
}

static int
fail_link(struct pg_link *l, const char *what, struct error *err)
{
    char text[200];

    l->is_lost = true;
    if (l->is_hung)
        return error_set(err, ERR_UNAVAILABLE, "%s: the server hangs", what);
    one_line(l->conn ? PQerrorMessage(l->conn) : "not connected", text, sizeof(text));
    return error_set(err, ERR_UNAVAILABLE, "%s: %s", what, *text ? text : "the connection ended");
}

/* The server refused it. */
static int
fail_answer(struct pg_link *l, const PGresult *r, const char *what, struct error *err)
{
    /* It is going down, or has become a standby: another connection may do. */
    static const char ends[] = "57P01 57P02 57P03 25006";
    /* Two transactions wait for each other: either has to begin anew. */
    static const char undone[] = "40001 40P01 55P03";
    const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
    const char *told = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
    enum err_code code = ERR_STORE;

    if (!state || PQstatus(l->conn) == CONNECTION_BAD)
        return fail_link(l, what, err);
    if (strstr(ends, state)) {
        l->is_lost = true;
        code = ERR_UNAVAILABLE;
    }
    if (strstr(undone, state)) {
        l->is_undone = true;
        code = ERR_UNAVAILABLE;
    }
    if (strcmp(state, "23505") == 0)
        code = ERR_CONFLICT;
    error_set(err, code, "%s: %s (PostgreSQL code %s)", what, told ? told : "no reason given", state);
    if (err && strcmp(state, "53100") == 0)
        err->sys_errno = ENOSPC;
    return (int)code;
}

static void
note_cb(void *arg, const PGresult *r)
{
    struct pg_link *l = arg;
    const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);

    l->is_warned = l->is_warned || (state && strncmp(state, "01", 2) == 0);
}

/* --- the connection --- */

static void
forget_prepared(struct pg_link *l)
{
    for (struct pg_statement *s = l->statements; s; s = s->hh.next)
        s->is_prepared = false;
    l->ndeferred = 0;
}

/* Before pipeline mode: what every session is set to. */
static int
set_up(struct pg_link *l, const char *node, struct error *err)
{
    const char *const values[] = { node };
    int rc =
        pg_script(l,
                  "SET search_path = verifierd; SET client_encoding = 'UTF8'; SET bytea_output = 'hex';"
                  "SET client_min_messages = warning; SET lock_timeout = " PG_LOCK_TIMEOUT ";"
                  "SET idle_in_transaction_session_timeout = '5s';"
                  /* Each statement reads few rows, in order, and may be planned while a table is empty. */
                  "SET jit = off; SET enable_bitmapscan = off; SET enable_seqscan = off",
                  err);
    if (rc < 0)
        return rc;
    PGresult *r = PQexecParams(l->conn, "SELECT set_config('verifierd.node', $1, false)", 1, NULL, values,
                               NULL, NULL, 0);
    rc = PQresultStatus(r) == PGRES_TUPLES_OK ? 0 : fail_answer(l, r, "set up the session", err);
    PQclear(r);
    return rc;
}

int
pg_link_open(struct pg_link *l, const char *where, const char *node, struct error *err)
{
    /* Defaults before the URL, which may override them. */
    static const char *const keys[] = {
        "connect_timeout",           "tcp_user_timeout", "keepalives_idle",
        "keepalives_interval",       "keepalives_count", "target_session_attrs",
        "fallback_application_name", "dbname",           NULL
    };
    const char *const values[] = { "5", "15000", "10", "5", "3", "read-write", "verifierd", where, NULL };

    PQfinish(l->conn);
    forget_prepared(l);
    l->is_undone = l->is_warned = l->is_hung = false;
    l->conn = PQconnectdbParams(keys, values, 1);
    if (PQstatus(l->conn) != CONNECTION_OK)
        return fail_link(l, "connect", err);
    PQsetNoticeReceiver(l->conn, note_cb, l);
    l->is_lost = false;
    int rc = set_up(l, node, err);
    if (rc < 0)
        l->is_lost = true;
    return rc;
}

void
pg_link_close(struct pg_link *l)
{
    struct pg_statement *s, *next;

    HASH_ITER(hh, l->statements, s, next)
    {
        HASH_DEL(l->statements, s);
        free(s->sql);
        free(s);
    }
    PQfinish(l->conn);
    memset(l, 0, sizeof(*l));
}

int
pg_script(struct pg_link *l, const char *sql, struct error *err)
{
    PQexitPipelineMode(l->conn);
    PGresult *r = PQexec(l->conn, sql);
    ExecStatusType status = PQresultStatus(r);
    int rc =
        status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK ? 0 : fail_answer(l, r, "run a script", err);
    PQclear(r);
    return rc;
}

/* --- questions --- */

void
pg_defer(struct pg_link *l, const char *sql)
{
    l->deferred[l->ndeferred++] = sql;
}

static struct pg_statement *
find_statement(struct pg_link *l, const char *sql)
{
    struct pg_statement *s;

    HASH_FIND_STR(l->statements, sql, s);
    if (s || !(s = calloc(1, sizeof(*s))))
        return s;
    s->sql = strdup(sql);
    if (!s->sql) {
        free(s);
        return NULL;
    }
    snprintf(s->name, sizeof(s->name), "s%d", l->nstatements++);
    HASH_ADD_KEYPTR(hh, l->statements, s->sql, strlen(s->sql), s);
    return s;
}

static bool
send_statement(struct pg_link *l, const struct pg_statement *s, const struct sql_value *values, size_t n)
{
    const char *texts[PG_VALUES_MAX];
    char numbers[PG_VALUES_MAX][32];
    int sizes[PG_VALUES_MAX], formats[PG_VALUES_MAX];

    for (size_t i = 0; i < n; i++) {
        const struct sql_value *v = &values[i];
        texts[i] = v->kind == SQL_NULL ? NULL : v->text ? v->text : numbers[i];
        sizes[i] = (int)v->size;
        formats[i] = v->kind == SQL_BYTES;
        if (v->kind == SQL_INT)
            snprintf(numbers[i], sizeof(numbers[i]), "%" PRId64, v->whole);
        else if (v->kind == SQL_REAL)
            snprintf(numbers[i], sizeof(numbers[i]), "%.17g", v->real);
    }
    for (int i = 0; i < l->ndeferred; i++)
        if (!PQsendQueryParams(l->conn, l->deferred[i], 0, NULL, NULL, NULL, NULL, 0))
            return false;
    if (!s->is_prepared && !PQsendPrepare(l->conn, s->name, s->sql, 0, NULL))
        return false;
    return PQsendQueryPrepared(l->conn, s->name, (int)n, texts, sizes, formats, 0) && PQpipelineSync(l->conn);
}

/* The server accepts no other connection either: otherwise only the statement is slow. */
static bool
is_hung(const struct pg_link *l)
{
    static const char *const keys[] = { "host", "port", "user", "dbname", "connect_timeout", NULL };
    const char *const values[] = {
        PQhost(l->conn), PQport(l->conn), PQuser(l->conn), PQdb(l->conn), "5", NULL
    };

    if (PQpingParams(keys, values, 0) != PQPING_NO_RESPONSE)
        return false;
    log_error("store", "the database at %s hangs: the connection is given up", PQhost(l->conn));
    return true;
}

/* PQgetResult() with a time limit: alone it would wait for ever for a server that hangs or is gone. */
static PGresult *
get_result(struct pg_link *l)
{
    while (!l->is_hung && PQisBusy(l->conn)) {
        struct pollfd one = { .fd = PQsocket(l->conn), .events = POLLIN };
        int n = poll(&one, 1, PG_PATIENCE_MS);
        l->is_hung = n == 0 && is_hung(l);
        if (n > 0 && !PQconsumeInput(l->conn))
            break; /* PQgetResult() has what went wrong */
    }
    return l->is_hung ? NULL : PQgetResult(l->conn);
}

/* The result of the next statement sent; NULL: there is none. */
static PGresult *
next_answer(struct pg_link *l)
{
    PGresult *last = NULL, *r;

    while ((r = get_result(l))) {
        PQclear(last);
        last = r;
    }
    return last;
}

static bool
is_good(const PGresult *r)
{
    ExecStatusType status = PQresultStatus(r);
    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

/* Of n answers the last, or the first that is an error. */
static PGresult *
read_answers(struct pg_link *l, struct pg_statement *s, int n, bool is_preparing)
{
    PGresult *kept = NULL;

    for (int i = 0; i < n; i++) {
        PGresult *r = next_answer(l);
        if (is_preparing && i == n - 2 && r)
            s->is_prepared = is_good(r);
        if (kept && !is_good(kept)) {
            PQclear(r);
            continue;
        }
        PQclear(kept);
        kept = r;
        if (!kept)
            return NULL;
    }
    PGresult *sync = get_result(l);
    if (PQresultStatus(sync) != PGRES_PIPELINE_SYNC)
        l->is_lost = true;
    PQclear(sync);
    return kept;
}

static int
ask_statement(struct pg_link *l, const char *what, struct pg_statement *s, const struct sql_value *values,
              size_t n, PGresult **out, struct error *err)
{
    bool is_preparing = !s->is_prepared;
    int answers = l->ndeferred + is_preparing + 1;

    if (PQpipelineStatus(l->conn) == PQ_PIPELINE_OFF && !PQenterPipelineMode(l->conn))
        return fail_link(l, what, err);
    if (!send_statement(l, s, values, n))
        return fail_link(l, what, err);
    l->ndeferred = 0;
    AUTO_RESULT PGresult *r = read_answers(l, s, answers, is_preparing);
    if (!r)
        return fail_link(l, what, err);
    if (!is_good(r))
        return fail_answer(l, r, what, err);
    if (l->is_lost)
        return fail_link(l, what, err);
    *out = r;
    r = NULL;
    return 0;
}

int
pg_ask(struct pg_link *l, const char *what, const char *sql, const struct sql_value *values, size_t n,
       PGresult **out, struct error *err)
{
    *out = NULL;
    if (!l->conn || l->is_lost)
        return error_set(err, ERR_UNAVAILABLE, "%s: the connection to the database is lost", what);
    struct pg_statement *s = find_statement(l, sql);
    if (!s)
        return error_set(err, ERR_NOMEM, "no memory for a statement");
    return ask_statement(l, what, s, values, n, out, err);
}

int
pg_run(struct pg_link *l, const char *what, const char *sql, const struct sql_value *values, size_t n,
       int64_t *changed, struct error *err)
{
    AUTO_RESULT PGresult *r = NULL;
    int rc = pg_ask(l, what, sql, values, n, &r, err);

    if (rc == 0 && changed)
        *changed = strtoll(PQcmdTuples(r), NULL, 10);
    return rc;
}

int
pg_each(struct pg_link *l, const char *what, const char *sql, const struct sql_value *values, size_t nvalues,
        sql_row_cb *row_cb, void *arg, size_t *n, struct error *err)
{
    AUTO_RESULT PGresult *rows = NULL;
    struct pg_statement *s = find_statement(l, sql);

    if (!s)
        return error_set(err, ERR_NOMEM, "no memory for a statement");
    if (s->is_busy)
        return error_set(err, ERR_STORE, "a list was asked for from its own callback");
    int rc = pg_ask(l, what, sql, values, nvalues, &rows, err);
    if (rc < 0)
        return rc;
    s->is_busy = true;
    struct sql_row row = { .ops = &row_ops, .answer = rows };
    bool is_wanted = true;
    for (; is_wanted && row.at < PQntuples(rows); row.at++)
        is_wanted = row_cb(arg, &row);
    s->is_busy = false;
    if (n)
        *n = (size_t)row.at;
    return 0;
}
