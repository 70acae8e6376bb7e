#include "server/http/http.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/log.h"
#include "server/token.h"
#include "tests/unit/fake_funnel.h"

/*
 * The service and its clients in one thread: a client writes to its socket,
 * then the loop turns until the answer is there or a minute is over.
 */

#define LIMIT_NS (60 * INT64_C(1000000000))

struct rig {
    uv_loop_t loop;
    struct config config;
    struct store *store;
    struct funnel *funnel;
    struct http *http;
    bool is_stopped;
    char directory[32];
};

struct client {
    struct rig *rig;
    int fd;
    char *text; /* what came so far */
    size_t size;
    bool is_ended;
};

static int
rig_start(void **state, const char *header_limit)
{
    struct rig *r = calloc(1, sizeof(*r));
    char store[64], flag[64], limit[64];
    struct error err = { 0 };

    strcpy(r->directory, "/tmp/test-http-XXXXXX");
    if (!mkdtemp(r->directory))
        return -1;
    snprintf(flag, sizeof(flag), "--store=%s/db", r->directory);
    snprintf(store, sizeof(store), "%s/db", r->directory);
    snprintf(limit, sizeof(limit), "--header-limit-ms=%s", header_limit);
    char *argv[] = { "verifierd",         "--listen=127.0.0.1:0", flag, "--wait-limit-s=60", limit,
                     "--events-kept=512", "--heartbeat-ms=100",   NULL };
    log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    uv_loop_init(&r->loop);
    if (config_load(7, argv, &r->config, &err) != 0 ||
        store_open(&r->loop, store, NULL, 1000, &r->store, &err) != 0 ||
        funnel_new(&r->loop, &r->config, r->store, &r->funnel, &err) != 0 ||
        http_new(&r->loop, &r->config, r->funnel, r->store, NULL, &r->http, &err) != 0) {
        print_error("%s\n", err.text);
        return -1;
    }
    *state = r;
    return 0;
}

static int
rig_open(void **state)
{
    return rig_start(state, "60000");
}

static int
rig_open_hasty(void **state)
{
    return rig_start(state, "300");
}

static void
stopped_cb(void *arg)
{
    *(bool *)arg = true;
}

static void
drained_cb(void *arg)
{
    struct rig *r = arg;
    http_stop(r->http, stopped_cb, &r->is_stopped);
}

static void
wake_cb(uv_timer_t *timer)
{
    (void)timer;
}

/* One turn that waits for at most 20 ms. */
static void
turn(struct rig *r)
{
    uv_timer_t timer;
    uv_timer_init(&r->loop, &timer);
    uv_timer_start(&timer, wake_cb, 20, 0);
    uv_run(&r->loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(&r->loop, UV_RUN_NOWAIT);
}

static void
rig_stop(struct rig *r)
{
    int64_t end_ns = clock_monotonic_ns() + LIMIT_NS;
    http_drain(r->http);
    funnel_drain(r->funnel, 0, drained_cb, r);
    while (!r->is_stopped && clock_monotonic_ns() < end_ns)
        turn(r);
    assert_true(r->is_stopped);
}

static int
rig_close(void **state)
{
    struct rig *r = *state;
    static const char *const names[] = { "db",      "db-wal",    "db-shm",        "db-lock",
                                         "db.lock", "db.tokens", "db.tokens.lock" };
    char path[64];

    if (!r->is_stopped)
        rig_stop(r);
    http_free(r->http);
    funnel_free(r->funnel);
    store_close(r->store);
    uv_run(&r->loop, UV_RUN_DEFAULT);
    int rc = uv_loop_close(&r->loop);
    config_release(&r->config);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", r->directory, names[i]);
        unlink(path);
    }
    rmdir(r->directory);
    free(r);
    return rc; /* anything left open in the loop is a failure */
}

static void
client_open(struct client *c, struct rig *r)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    *c = (struct client){ .rig = r, .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) };
    at.sin_port = htons((uint16_t)atoi(strrchr(http_url(r->http), ':') + 1));
    assert_int_equal(connect(c->fd, (struct sockaddr *)&at, sizeof(at)), 0);
}

static void
client_close(struct client *c)
{
    close(c->fd);
    free(c->text);
    *c = (struct client){ .fd = -1 };
}

static void
client_read(struct client *c)
{
    char bytes[65536];
    ssize_t n = recv(c->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    c->is_ended = c->is_ended || n == 0;
    if (n <= 0)
        return;
    c->text = realloc(c->text, c->size + (size_t)n + 1);
    memcpy(c->text + c->size, bytes, (size_t)n);
    c->size += (size_t)n;
    c->text[c->size] = '\0';
}

/* The body of the answer that came, or NULL: it is not whole yet. */
static char *
client_body(const struct client *c)
{
    char *end = c->text ? strstr(c->text, "\r\n\r\n") : NULL;
    char *length = end ? strstr(c->text, "Content-Length: ") : NULL;
    if (!length || strlen(end + 4) < (size_t)atoi(length + 16))
        return NULL;
    return end + 4;
}

/* Turn the loop until the whole answer is there; its status. */
static int
client_answer(struct client *c)
{
    int64_t end_ns = clock_monotonic_ns() + LIMIT_NS;
    while (!client_body(c) && !c->is_ended) {
        assert_true(clock_monotonic_ns() < end_ns);
        turn(c->rig);
        client_read(c);
    }
    assert_non_null(client_body(c));
    return atoi(c->text + strlen("HTTP/1.1 "));
}

static void
client_send(struct client *c, const char *method, const char *path, const char *headers, const char *body)
{
    AUTO_FREE char *text = NULL;
    free(c->text);
    c->text = NULL;
    c->size = 0;
    int size = asprintf(&text, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s%s", method, path, headers,
                        body ? "" : "\r\n");
    if (body) {
        free(text);
        size = asprintf(&text,
                        "%s %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Type: "
                        "application/json\r\nContent-Length: %zu\r\n\r\n%s",
                        method, path, headers, strlen(body), body);
    }
    assert_int_equal(send(c->fd, text, (size_t)size, 0), size);
}

static int
ask(struct rig *r, struct client *c, const char *method, const char *path, const char *headers,
    const char *body)
{
    client_open(c, r);
    client_send(c, method, path, headers, body);
    return client_answer(c);
}

/* The id of a new submission. */
static void
submit(struct rig *r, const char *metadata, char id[ID_SIZE])
{
    struct client c;
    char body[128];
    snprintf(body, sizeof(body), "{\"candidate\":\"x\",\"metadata\":%s}", metadata);
    assert_int_equal(ask(r, &c, "POST", "/v1/submissions", "", body), 202);
    AUTO_JSON json_t *document = json_loads(client_body(&c), 0, NULL);
    snprintf(id, ID_SIZE, "%s", json_string_value(json_object_get(document, "id")));
    client_close(&c);
}

/* Turn the loop until so many requests wait. */
static void
wait_held(struct rig *r, int n)
{
    char text[32];
    struct client c;
    int64_t end_ns = clock_monotonic_ns() + LIMIT_NS;
    bool is_so = false;

    snprintf(text, sizeof(text), "\"held\":%d,", n);
    while (!is_so) {
        assert_true(clock_monotonic_ns() < end_ns);
        assert_int_equal(ask(r, &c, "GET", "/v1/status", "", NULL), 200);
        is_so = strstr(c.text, text) != NULL;
        client_close(&c);
    }
}

/* --- tests --- */

#define POST_SUBMISSION "POST", "/v1/submissions"

static void
refusals_of_the_funnel_become_problems(void **state)
{
    static const struct {
        enum funnel_refusal refusal;
        int status;
        const char *code, *more; /* both parts of the answer */
    } rows[] = {
        { FUNNEL_BAD, 400, "\"bad_body\"", "\"errors\"" },
        { FUNNEL_NO_TASK, 404, "\"unknown_task\"", "\"retryable\":false" },
        { FUNNEL_TOO_LARGE, 413, "\"too_large\"", "\"retryable\":false" },
        { FUNNEL_FULL, 429, "\"queue_full\"", "Retry-After: 7\r\n" },
        { FUNNEL_UNAVAILABLE, 503, "\"unavailable\"", "Retry-After: 7\r\n" },
        { FUNNEL_UNRUNNABLE, 422, "\"reference_fails\"", "\"traceback\":\"Traceback: it broke\"" },
    };
    struct rig *r = *state;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct client c;
        char body[96];
        snprintf(body, sizeof(body), "{\"candidate\":\"x\",\"metadata\":{\"refuse\":%d}}",
                 (int)rows[i].refusal);
        assert_int_equal(ask(r, &c, "POST", "/v1/submissions", "", body), rows[i].status);
        assert_non_null(strstr(c.text, "Content-Type: application/problem+json"));
        assert_non_null(strstr(c.text, rows[i].code));
        assert_non_null(strstr(c.text, rows[i].more));
        const char *first = strstr(c.text, "Retry-After");
        assert_true(!first || !strstr(first + 1, "Retry-After"));
        client_close(&c);
    }
}

static void
a_verdict_is_sent_as_it_is_stored(void **state)
{
    struct rig *r = *state;
    struct client c;
    char id[ID_SIZE], path[96], expect[256];

    submit(r, "{\"ms\":20}", id);
    snprintf(path, sizeof(path), "/v1/submissions/%s?wait=50", id);
    assert_int_equal(ask(r, &c, "GET", path, "", NULL), 200);
    snprintf(expect, sizeof(expect), FAKE_VERDICT, id);
    assert_string_equal(client_body(&c), expect);
    client_close(&c);
    snprintf(path, sizeof(path), "/v1/submissions/%s/log", id);
    assert_int_equal(ask(r, &c, "GET", path, "", NULL), 200);
    assert_string_equal(client_body(&c), "printed\n");
    client_close(&c);
    snprintf(path, sizeof(path), "/v1/submissions/%s/source", id);
    assert_int_equal(ask(r, &c, "GET", path, "", NULL), 200);
    assert_string_equal(client_body(&c), "x");
    client_close(&c);
}

static void
a_post_that_waits_gets_the_verdict_or_the_state(void **state)
{
    struct rig *r = *state;
    struct client c;
    const char *quick = "{\"candidate\":\"x\",\"metadata\":{\"ms\":10}}";
    const char *never = "{\"candidate\":\"x\"}";

    assert_int_equal(ask(r, &c, "POST", "/v1/submissions?wait=50", "", quick), 200);
    assert_non_null(strstr(client_body(&c), "as_stored"));
    assert_null(strstr(c.text, "Location"));
    client_close(&c);
    assert_int_equal(ask(r, &c, "POST", "/v1/submissions?wait=0.05", "", never), 202);
    assert_non_null(strstr(client_body(&c), "\"state\":\"queued\""));
    assert_non_null(strstr(c.text, "Location: /v1/submissions/"));
    client_close(&c);
    assert_int_equal(ask(r, &c, "POST", "/v1/submissions", "Prefer: wait=1\r\n", never), 202);
    assert_non_null(strstr(c.text, "Preference-Applied: wait=1\r\n"));
    client_close(&c);
    assert_int_equal(ask(r, &c, "POST", "/v1/submissions", "Prefer: wait=999\r\n", quick), 200);
    assert_non_null(strstr(c.text, "Preference-Applied: wait=60\r\n"));
    client_close(&c);
}

static void
a_large_body_is_parsed_beside_the_loop(void **state)
{
    struct rig *r = *state;
    struct client c;
    AUTO_FREE char *body = malloc(200 * 1024);

    int used = sprintf(body, "{\"candidate\":\"");
    memset(body + used, 'x', 150 * 1024);
    strcpy(body + used + 150 * 1024, "\"}");
    assert_int_equal(ask(r, &c, "POST", "/v1/submissions", "", body), 202);
    client_close(&c);
    strcpy(body + used + 150 * 1024, "\"");
    assert_int_equal(ask(r, &c, "POST", "/v1/submissions", "", body), 400);
    client_close(&c);
}

static void
stopping_answers_what_is_held(void **state)
{
    struct rig *r = *state;
    struct client c[20];
    char id[ID_SIZE], path[96];

    submit(r, "{}", id);
    snprintf(path, sizeof(path), "/v1/submissions/%s?wait=60", id);
    for (size_t i = 0; i < ARRAY_LEN(c); i++) {
        client_open(&c[i], r);
        client_send(&c[i], "GET", path, "", NULL);
    }
    wait_held(r, ARRAY_LEN(c));
    rig_stop(r);
    for (size_t i = 0; i < ARRAY_LEN(c); i++) {
        client_read(&c[i]);
        assert_non_null(client_body(&c[i]));
        assert_non_null(strstr(client_body(&c[i]), "\"queued\""));
        client_close(&c[i]);
    }
}

/* Keeps the store's threads from reading until it is let go of. */
struct blockade {
    uv_sem_t gate;
    uv_timer_t timer;
    int held; /* threads that have not been let go of */
};

static void
block_cb(void *arg, struct store_reader *reader)
{
    (void)reader;
    uv_sem_wait(&((struct blockade *)arg)->gate);
}

static void
unblocked_cb(void *arg)
{
    ((struct blockade *)arg)->held--;
}

static void
let_go_cb(uv_timer_t *timer)
{
    struct blockade *b = timer->data;

    for (int i = 0; i < 2; i++)
        uv_sem_post(&b->gate);
    uv_close((uv_handle_t *)timer, NULL);
}

static void
block(struct rig *r, struct blockade *b, uint64_t ms)
{
    uv_sem_init(&b->gate, 0);
    b->held = 2;
    for (int i = 0; i < 2; i++)
        assert_int_equal(store_read(r->store, block_cb, unblocked_cb, b, NULL), 0);
    uv_timer_init(&r->loop, &b->timer);
    b->timer.data = b;
    uv_timer_start(&b->timer, let_go_cb, ms, 0);
}

static void
unblock(struct rig *r, struct blockade *b)
{
    while (b->held > 0)
        turn(r);
    uv_sem_destroy(&b->gate);
}

static void
stopping_answers_what_is_being_read(void **state)
{
    struct rig *r = *state;
    struct blockade b;
    struct client c;
    char id[ID_SIZE], path[96];

    submit(r, "{}", id);
    snprintf(path, sizeof(path), "/v1/submissions/%s", id);
    block(r, &b, 300);
    client_open(&c, r);
    client_send(&c, "GET", path, "", NULL);
    for (int i = 0; i < 3; i++)
        turn(r);
    client_read(&c);
    assert_null(c.text);
    rig_stop(r);
    client_read(&c);
    assert_non_null(strstr(client_body(&c), "\"queued\""));
    client_close(&c);
    unblock(r, &b);
}

/* Its connection ends once the reading has, and others are answered. */
static void
a_client_that_leaves_while_the_store_is_read_is_let_go(void **state)
{
    struct rig *r = *state;
    int64_t end_ns = clock_monotonic_ns() + LIMIT_NS / 2;
    struct blockade b;
    struct client gone, c;
    char id[ID_SIZE], path[96];

    submit(r, "{}", id);
    snprintf(path, sizeof(path), "/v1/submissions/%s", id);
    block(r, &b, 200);
    client_open(&gone, r);
    client_send(&gone, "GET", path, "", NULL);
    for (int i = 0; i < 3; i++)
        turn(r);
    client_close(&gone);
    client_open(&c, r);
    do {
        assert_true(clock_monotonic_ns() < end_ns);
        client_send(&c, "GET", "/v1/status", "", NULL);
        assert_int_equal(client_answer(&c), 200);
    } while (!strstr(c.text, "\"connections\":1,"));
    client_close(&c);
    unblock(r, &b);
}

static void
a_conflict_in_the_store_is_told_without_its_words(void **state)
{
    struct rig *r = *state;
    struct client c;
    char id[ID_SIZE], path[96];

    submit(r, "{\"ms\":0}", id);
    snprintf(path, sizeof(path), "/v1/submissions/%s?wait=50", id);
    assert_int_equal(ask(r, &c, "GET", path, "", NULL), 200);
    client_close(&c);
    path[strlen(path) - strlen("?wait=50")] = '\0';
    assert_int_equal(ask(r, &c, "DELETE", path, "", NULL), 409);
    assert_null(strstr(client_body(&c), "UNIQUE"));
    assert_non_null(strstr(client_body(&c), id));
    client_close(&c);
}

static void
stopping_gives_up_what_the_funnel_never_answers(void **state)
{
    struct rig *r = *state;
    struct client c;

    client_open(&c, r);
    client_send(&c, "POST", "/v1/submissions", "", "{\"candidate\":\"x\",\"metadata\":{\"silent\":true}}");
    for (int i = 0; i < 5; i++)
        turn(r);
    client_read(&c);
    assert_null(c.text);
    rig_stop(r);
    client_read(&c);
    assert_non_null(client_body(&c));
    assert_non_null(strstr(c.text, "HTTP/1.1 503"));
    client_close(&c);
}

static void
a_failure_of_the_store_is_in_the_log_and_in_no_answer(void **state)
{
    struct rig *r = *state;
    struct client c;
    char path[64];
    sqlite3 *db;

    snprintf(path, sizeof(path), "%s/db", r->directory);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, "DROP TABLE task", NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s", sqlite3_errmsg(db));
    sqlite3_close(db);
    assert_int_equal(ask(r, &c, "GET", "/v1/tasks", "", NULL), 500);
    assert_non_null(strstr(client_body(&c), "\"internal\""));
    assert_null(strstr(client_body(&c), "SQLite"));
    assert_null(strstr(client_body(&c), "no such table"));
    client_close(&c);
}

static void
a_client_that_leaves_ends_its_wait(void **state)
{
    struct rig *r = *state;
    struct client held, c;
    char id[ID_SIZE], path[96];
    int64_t end_ns = clock_monotonic_ns() + LIMIT_NS / 2;

    submit(r, "{}", id);
    snprintf(path, sizeof(path), "/v1/submissions/%s?wait=60", id);
    client_open(&held, r);
    client_send(&held, "GET", path, "", NULL);
    wait_held(r, 1);
    client_close(&held);
    client_open(&c, r);
    do {
        assert_true(clock_monotonic_ns() < end_ns);
        client_send(&c, "GET", "/v1/status", "", NULL);
        assert_int_equal(client_answer(&c), 200);
    } while (!strstr(c.text, "\"held\":0,") || !strstr(c.text, "\"connections\":1,"));
    client_close(&c);
}

static void
expect_status(struct rig *r, const char *text)
{
    struct client c;

    assert_int_equal(ask(r, &c, "GET", "/v1/status", "", NULL), 200);
    assert_non_null(strstr(c.text, text));
    client_close(&c);
}

/* What is dear to make is kept for a tenth of a second, but never longer than its counts are right. */
static void
a_status_is_kept_while_its_counts_are_right(void **state)
{
    struct rig *r = *state;
    struct client c;
    int64_t begin_ns = clock_monotonic_ns();

    expect_status(r, "\"counts\":{\"figures\":0}");
    for (int i = 0; i < 50; i++)
        expect_status(r, "\"counts\":{\"figures\":0}");
    int64_t most = 1 + (clock_monotonic_ns() - begin_ns) / 100000000;
    assert_true(fake_funnel_figures_made(r->funnel) <= most);
    for (int i = 1; i <= 20; i++) {
        fake_funnel_count(r->funnel, true);
        char text[64];
        snprintf(text, sizeof(text), "\"counts\":{\"figures\":%d}", i);
        expect_status(r, text);
    }
    fake_funnel_count(r->funnel, false);
    int64_t end_ns = clock_monotonic_ns() + LIMIT_NS;
    bool is_seen = false;
    while (!is_seen && clock_monotonic_ns() < end_ns) {
        assert_int_equal(ask(r, &c, "GET", "/v1/status", "", NULL), 200);
        is_seen = strstr(c.text, "\"counts\":{\"figures\":21}") != NULL;
        client_close(&c);
    }
    assert_true(is_seen); /* what changes untold is seen all the same, later */
}

/* The value of a metric that has no labels. */
static double
metric(struct rig *r, const char *name)
{
    struct client c;
    char line[80];

    snprintf(line, sizeof(line), "\n%s ", name);
    assert_int_equal(ask(r, &c, "GET", "/metrics", "", NULL), 200);
    const char *at = strstr(c.text, line);
    if (!at)
        fail_msg("no %s in %s", name, c.text);
    double value = strtod(at + strlen(line), NULL);
    client_close(&c);
    return value;
}

static void
spin_cb(uv_timer_t *timer)
{
    int64_t end_ns = clock_monotonic_ns() + *(int64_t *)timer->data;

    while (clock_monotonic_ns() < end_ns)
        ;
}

static void
a_turn_that_blocks_the_loop_is_in_the_metrics(void **state)
{
    struct rig *r = *state;
    double before = metric(r, "verifierd_loop_turns_long_total");
    int64_t block_ns = 50000000;
    uv_timer_t timer;

    uv_timer_init(&r->loop, &timer);
    timer.data = &block_ns;
    uv_timer_start(&timer, spin_cb, 0, 0);
    turn(r);
    uv_close((uv_handle_t *)&timer, NULL);
    turn(r);
    assert_true(metric(r, "verifierd_loop_turns_long_total") >= before + 1);
    assert_true(metric(r, "verifierd_loop_turn_longest_seconds") >= 0.05);
}

/* From the first token on every call needs one, and the next request sees what became of the file. */
static void
calls_show_a_token(void **state)
{
    struct rig *r = *state;
    struct client c;
    struct error err = { 0 };
    char secret[TOKEN_TEXT_SIZE], one[128], two[260], id[ID_SIZE], path[96];
    struct token token = { .name = "t", .client = "fake", .scopes = SCOPE_SUBMIT };

    submit(r, "{\"ms\":10}", id); /* the fake funnel's client is "fake" where the body names none */
    assert_int_equal(ask(r, &c, "GET", "/v1/status", "", NULL), 200);
    client_close(&c);
    assert_int_equal(token_add(r->config.tokens, &token, secret, &err), 0);
    snprintf(one, sizeof(one), "Authorization: bearer %s\r\n", secret);
    snprintf(two, sizeof(two), "%s%s", one, one);
    snprintf(path, sizeof(path), "/v1/submissions/%s?wait=50", id);
    const struct {
        const char *method, *path, *headers, *body;
        int status;
        const char *more;
    } rows[] = {
        { "GET", path, "", NULL, 401, "WWW-Authenticate: Bearer realm=\"verifierd\"\r\n" },
        { "GET", path, "Authorization: Basic eDp5\r\n", NULL, 401, "error=\"invalid_token\"" },
        { "GET", path, two, NULL, 401, "error=\"invalid_token\"" },
        { "GET", path, one, NULL, 200, "\"done\"" },
        { "POST", "/v1/submissions", "", "{\"candidate\":\"x\"}", 401, "unauthorized" },
        { "POST", "/v1/submissions", one, "{\"candidate\":\"x\"}", 202, "\"id\"" },
        { "GET", "/metrics", one, NULL, 403, "scope=\"read\"" },
        { "GET", "/v1/nothing", "", NULL, 404, "not_found" },
        { "PUT", "/v1/status", "", NULL, 405, "Allow: GET, HEAD" },
        { "GET", "/v1/status?x=1", "", NULL, 401, "unauthorized" }, /* before all that the query tells */
        { "GET", "/v1/status?x=1", one, NULL, 400, "bad_parameter" },
        { "GET", "/healthz", "", NULL, 200, "ok" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int status = ask(r, &c, rows[i].method, rows[i].path, rows[i].headers, rows[i].body);
        if (status != rows[i].status || !strstr(c.text, rows[i].more))
            fail_msg("row %zu: %s", i, c.text);
        client_close(&c);
    }
    assert_int_equal(token_revoke(r->config.tokens, "t", &err), 0);
    assert_int_equal(ask(r, &c, "GET", path, one, NULL), 401);
    client_close(&c);
}

/* Where there is no room a body is not waited for, and one that comes all the same is dropped. */
static void
overload_is_answered_before_the_body(void **state)
{
    struct rig *r = *state;
    struct client c;

    fake_funnel_fill(r->funnel);
    client_open(&c, r);
    client_send(&c, "POST", "/v1/submissions",
                "Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 5000\r\n", NULL);
    assert_int_equal(client_answer(&c), 429);
    assert_non_null(strstr(c.text, "Retry-After: 5\r\n"));
    assert_null(strstr(c.text, "100 Continue"));
    client_close(&c);
    assert_int_equal(ask(r, &c, POST_SUBMISSION, "", "no JSON"), 429);
    client_send(&c, "GET", "/healthz", "", NULL); /* the connection stays */
    assert_int_equal(client_answer(&c), 200);
    client_close(&c);
    /* The same request may have been answered while there was room. */
    assert_int_equal(ask(r, &c, POST_SUBMISSION, "Idempotency-Key: k\r\n", "no JSON"), 400);
    client_close(&c);
}

static void
a_client_that_says_nothing_is_told_so(void **state)
{
    struct rig *r = *state;
    struct client c;

    client_open(&c, r);
    assert_int_equal(client_answer(&c), 408);
    assert_non_null(strstr(c.text, "\"request_timeout\""));
    client_close(&c);
}

static void
a_key_is_answered_once(void **state)
{
    struct rig *r = *state;
    struct client c;
    const char *one = "{\"candidate\":\"x\",\"metadata\":{\"ms\":10}}", *other = "{\"candidate\":\"y\"}";
    AUTO_FREE char *first = NULL;

    assert_int_equal(ask(r, &c, POST_SUBMISSION, "Idempotency-Key: \"k\"\r\n", one), 202);
    assert_null(strstr(c.text, "Idempotency-Replayed"));
    first = strdup(client_body(&c));
    client_close(&c);
    assert_int_equal(ask(r, &c, POST_SUBMISSION, "Idempotency-Key: k\r\n", one), 202);
    assert_non_null(strstr(c.text, "Idempotency-Replayed: true\r\n"));
    assert_non_null(strstr(c.text, "Location: /v1/submissions/"));
    assert_string_equal(client_body(&c), first);
    client_close(&c);
    assert_int_equal(ask(r, &c, "POST", "/v1/submissions?wait=50", "Idempotency-Key: k\r\n", one), 200);
    assert_non_null(strstr(client_body(&c), "as_stored"));
    client_close(&c);
    assert_int_equal(ask(r, &c, POST_SUBMISSION, "Idempotency-Key: k\r\n", other), 422);
    assert_non_null(strstr(client_body(&c), "\"key_reused\""));
    client_close(&c);
    /* A refusal is not kept: what was wrong may be mended under the same key. */
    assert_int_equal(ask(r, &c, POST_SUBMISSION, "Idempotency-Key: n\r\n", "{}"), 400);
    client_close(&c);
    assert_int_equal(ask(r, &c, POST_SUBMISSION, "Idempotency-Key: n\r\n", other), 202);
    client_close(&c);
    assert_int_equal(ask(r, &c, POST_SUBMISSION, "Idempotency-Key: a\r\nIdempotency-Key: a\r\n", one), 400);
    assert_non_null(strstr(client_body(&c), "\"bad_header\""));
    client_close(&c);
}

/* Both are read before either is stored. */
static void
two_equal_keys_at_the_same_moment_make_one_submission(void **state)
{
    struct rig *r = *state;
    struct client c[2];
    int accepted = 0;

    for (size_t i = 0; i < ARRAY_LEN(c); i++) {
        client_open(&c[i], r);
        client_send(&c[i], POST_SUBMISSION, "Idempotency-Key: k\r\n", "{\"candidate\":\"x\"}");
    }
    for (size_t i = 0; i < ARRAY_LEN(c); i++) {
        int status = client_answer(&c[i]);
        bool is_replay = strstr(c[i].text, "Idempotency-Replayed") != NULL;
        assert_true(status == 202 || (status == 409 && strstr(client_body(&c[i]), "\"key_in_flight\"")));
        accepted += status == 202 && !is_replay;
        client_close(&c[i]);
    }
    assert_int_equal(accepted, 1);
    assert_int_equal(ask(r, &c[0], "GET", "/v1/submissions", "", NULL), 200);
    AUTO_JSON json_t *list = json_loads(client_body(&c[0]), 0, NULL);
    assert_int_equal(json_array_size(json_object_get(list, "items")), 1);
    client_close(&c[0]);
}

static void
a_key_that_another_daemon_took_first_is_answered_with_what_it_made(void **state)
{
    struct rig *r = *state;
    const char *body = "{\"candidate\":\"x\",\"metadata\":{\"rival\":true}}";
    struct client c;

    assert_int_equal(ask(r, &c, POST_SUBMISSION, "Idempotency-Key: k\r\n", body), 202);
    assert_non_null(strstr(c.text, "Idempotency-Replayed: true\r\n"));
    client_close(&c);
    assert_int_equal(ask(r, &c, "GET", "/v1/submissions", "", NULL), 200);
    AUTO_JSON json_t *list = json_loads(client_body(&c), 0, NULL);
    assert_int_equal(json_array_size(json_object_get(list, "items")), 1);
    client_close(&c);
}

/* The funnel never answers the first request. */
static void
a_key_under_way_is_a_conflict(void **state)
{
    struct rig *r = *state;
    const char *silent = "{\"candidate\":\"x\",\"metadata\":{\"silent\":true}}";
    struct client first, c;

    client_open(&first, r);
    client_send(&first, POST_SUBMISSION, "Idempotency-Key: k\r\n", silent);
    for (int i = 0; i < 3; i++)
        turn(r);
    assert_int_equal(ask(r, &c, POST_SUBMISSION, "Idempotency-Key: k\r\n", silent), 409);
    assert_non_null(strstr(client_body(&c), "\"key_in_flight\""));
    assert_non_null(strstr(client_body(&c), "\"retryable\":true"));
    assert_non_null(strstr(c.text, "Retry-After: 1\r\n"));
    client_close(&c);
    assert_int_equal(ask(r, &c, POST_SUBMISSION, "Idempotency-Key: k\r\n", "{\"candidate\":\"y\"}"), 422);
    client_close(&c);
    assert_int_equal(ask(r, &c, POST_SUBMISSION, "Idempotency-Key: l\r\n", "{\"candidate\":\"y\"}"), 202);
    client_close(&c);
    rig_stop(r);
    assert_int_equal(client_answer(&first), 503);
    client_close(&first);
}

/* --- event streams --- */

/* Turn the loop until text has come. */
static void
client_expect(struct client *c, const char *text)
{
    int64_t end_ns = clock_monotonic_ns() + LIMIT_NS;
    while (!c->text || !strstr(c->text, text)) {
        if (clock_monotonic_ns() > end_ns || c->is_ended)
            fail_msg("no \"%s\" in: %s", text, c->text ? c->text : "");
        size_t had = c->size;
        client_read(c);
        if (c->size == had)
            turn(c->rig);
    }
}

#define LAST_CHUNK "\r\n0\r\n\r\n"

/* headers: whole lines */
static void
stream_open(struct rig *r, struct client *c, const char *path, const char *headers)
{
    client_open(c, r);
    client_send(c, "GET", path, headers, NULL);
    client_expect(c, "retry: 1000");
    assert_non_null(strstr(c->text, "Content-Type: text/event-stream\r\n"));
}

/* The id of the last event so far that has one, as a header for the next call. */
static void
last_event(const struct client *c, char header[80])
{
    const char *found = NULL;
    for (const char *at = c->text; at && (at = strstr(at, "\nid: ")); at += 5)
        found = at + 5;
    assert_non_null(found);
    snprintf(header, 80, "Last-Event-ID: %.*s\r\n", (int)strcspn(found, "\n"), found);
}

static size_t
count_of(const char *text, const char *word)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, word)); at += strlen(word))
        n++;
    return n;
}

static void
tell_stage(struct rig *r, const char *id, const char *client, const char *stage, bool is_begun)
{
    fake_funnel_tell(r->funnel, &(struct funnel_event){ FUNNEL_EVENT_STAGE, id, "", client, stage, is_begun,
                                                        1, NULL, NULL });
}

static void
a_stream_ends_with_the_verdict(void **state)
{
    struct rig *r = *state;
    struct client c;
    char id[ID_SIZE], path[96], last[80];

    submit(r, "{}", id);
    snprintf(path, sizeof(path), "/v1/submissions/%s/events", id);
    stream_open(r, &c, path, "");
    client_expect(&c, "event: open\n");
    tell_stage(r, id, "fake", "ast", true);
    client_expect(&c, "\"state\":\"running\",\"stage\":\"ast\"");
    assert_null(strstr(c.text, "event: verdict")); /* none is told before it is durable */
    fake_funnel_finish(r->funnel, id);
    client_expect(&c, LAST_CHUNK);
    const char *verdict = strstr(c.text, "event: verdict\n"), *end = strstr(c.text, "event: end\n");
    assert_true(verdict && end && verdict < end);
    assert_non_null(strstr(verdict, "\"as_stored\":true"));
    assert_non_null(strstr(end, "\"reason\":\"finished\""));
    last_event(&c, last);
    assert_string_equal(last, "Last-Event-ID: end\r\n");
    client_send(&c, "GET", path, last, NULL); /* on the same connection */
    client_expect(&c, "HTTP/1.1 204 ");
    client_close(&c);
    /* From the beginning again: what is finished is told at once. */
    stream_open(r, &c, path, "");
    client_expect(&c, LAST_CHUNK);
    assert_int_equal(count_of(c.text, "event: verdict\n"), 1);
    client_close(&c);
}

static void
a_stream_is_taken_up_where_it_was_left(void **state)
{
    struct rig *r = *state;
    struct client c;
    char last[80], id[ID_SIZE];

    stream_open(r, &c, "/v1/events", "");
    client_expect(&c, "event: open\n");
    tell_stage(r, "one", NULL, "ast", true);
    client_expect(&c, "\"one\"");
    last_event(&c, last);
    client_close(&c);
    tell_stage(r, "two", NULL, "compile", false);
    submit(r, "{\"ms\":1}", id);
    stream_open(r, &c, "/v1/events", last);
    client_expect(&c, "event: verdict\n");
    assert_null(strstr(c.text, "\"one\""));
    assert_null(strstr(c.text, "event: gap"));
    assert_int_equal(count_of(c.text, "\"two\""), 1);
    assert_int_equal(count_of(c.text, "event: state\n"), 2); /* two, and the queued one */
    client_close(&c);
    /* Far more than is kept (--events-kept) happen: what was lost is told. */
    for (int i = 0; i < 600; i++)
        tell_stage(r, "many", NULL, "ast", true);
    stream_open(r, &c, "/v1/events?wait=0", last);
    client_expect(&c, LAST_CHUNK);
    assert_non_null(strstr(c.text, "event: gap\n"));
    assert_null(strstr(c.text, "\"many\""));
    assert_non_null(strstr(c.text, "\"reason\":\"wait\""));
    client_close(&c);
    stream_open(r, &c, "/v1/events?wait=0", "Last-Event-ID: of another daemon\r\n");
    client_expect(&c, "event: gap\n");
    client_close(&c);
}

/* How far a candidate came is not told to its submitter, nor shown by the ids. */
static void
a_submitter_is_not_told_of_stages(void **state)
{
    struct rig *r = *state;
    struct client c, again;
    struct error err = { 0 };
    char secret[TOKEN_TEXT_SIZE], header[128], last[80], then[80];
    struct token token = { .name = "t", .client = "fake", .scopes = SCOPE_SUBMIT };

    assert_int_equal(token_add(r->config.tokens, &token, secret, &err), 0);
    snprintf(header, sizeof(header), "Authorization: Bearer %s\r\n", secret);
    stream_open(r, &c, "/v1/events", header);
    client_expect(&c, "event: open\n");
    tell_stage(r, "mine", "fake", "ast", true);
    client_expect(&c, "\"state\":\"running\"");
    stream_open(r, &again, "/v1/events?wait=0", header);
    client_expect(&again, LAST_CHUNK);
    last_event(&again, last);
    client_close(&again);
    tell_stage(r, "mine", "fake", "compile", false);
    tell_stage(r, "theirs", "another", "ast", true);
    stream_open(r, &again, "/v1/events?wait=0", header);
    client_expect(&again, LAST_CHUNK);
    last_event(&again, then);
    client_close(&again);
    assert_string_equal(then, last);
    char verdict[] =
        "{\"id\":\"mine\",\"state\":\"done\",\"class\":\"hack\",\"stage\":\"full\",\"stages\":[]}";
    fake_funnel_tell(r->funnel, &(struct funnel_event){ FUNNEL_EVENT_VERDICT, "mine", "", "fake", NULL, false,
                                                        1, verdict, NULL });
    client_expect(&c, "\"class\":\"hack\"");
    assert_null(strstr(c.text, "compile"));
    assert_null(strstr(c.text, "full"));
    assert_null(strstr(c.text, "theirs"));
    assert_null(strstr(c.text, "\"ast\""));
    /* And from the moment that the token counts no more, nothing. */
    assert_int_equal(token_revoke(r->config.tokens, "t", &err), 0);
    client_expect(&c, "\"reason\":\"token\"");
    client_expect(&c, LAST_CHUNK);
    client_close(&c);
}

static void
a_quiet_stream_beats(void **state)
{
    struct rig *r = *state;
    struct client c;

    stream_open(r, &c, "/v1/events", "");
    client_expect(&c, "\r\n:\n\n\r\n");
    client_close(&c);
    int64_t end_ns = clock_monotonic_ns() + LIMIT_NS;
    bool is_gone = false;
    while (!is_gone && clock_monotonic_ns() < end_ns) {
        ask(r, &c, "GET", "/v1/status", "", NULL);
        is_gone = strstr(c.text, "\"streams\":0,") != NULL;
        client_close(&c);
    }
    assert_true(is_gone); /* a client that left is noticed while there is nothing to tell it */
}

#define STREAMS 200
#define STALLED 20

/* One in ten does not read: it is dropped, the others are told everything, and memory is that of the ring. */
static void
readers_that_stall_are_dropped(void **state)
{
    struct rig *r = *state;
    static struct client all[STREAMS];
    char filler[501], verdict[700], name[32];
    struct client status;
    int small = 4096;

    memset(filler, 'x', sizeof(filler) - 1);
    filler[sizeof(filler) - 1] = '\0';
    for (int i = 0; i < STREAMS; i++) {
        stream_open(r, &all[i], "/v1/events", "");
        if (i < STALLED)
            setsockopt(all[i].fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    }
    for (int n = 0; n < 1500; n++) {
        snprintf(verdict, sizeof(verdict), "{\"id\":\"v%d\",\"client\":\"%s\"}", n, filler);
        fake_funnel_tell(r->funnel, &(struct funnel_event){ FUNNEL_EVENT_VERDICT, "x", "", NULL, NULL, false,
                                                            1, verdict, NULL });
        if (n % 50 != 49)
            continue;
        snprintf(name, sizeof(name), "\"v%d\"", n);
        for (int i = STALLED; i < STREAMS; i++) {
            client_expect(&all[i], name);
            all[i].size = 0; /* what was read needs not be kept */
        }
    }
    assert_int_equal(ask(r, &status, "GET", "/v1/status", "", NULL), 200);
    assert_non_null(strstr(status.text, "\"streams_dropped\":20,"));
    client_close(&status);
    for (int i = 0; i < STALLED; i++)
        client_close(&all[i]);
    for (int i = STALLED; i < STREAMS; i++) {
        assert_false(all[i].is_ended);
        client_close(&all[i]);
    }
}

static void
a_stream_ends_when_the_daemon_drains(void **state)
{
    struct rig *r = *state;
    struct client c;

    stream_open(r, &c, "/v1/events", "");
    client_expect(&c, "event: open\n");
    http_drain(r->http);
    client_expect(&c, "\"reason\":\"draining\"");
    client_expect(&c, LAST_CHUNK);
    rig_stop(r);
    client_close(&c);
}

#define RIG_TEST(f) cmocka_unit_test_setup_teardown(f, rig_open, rig_close)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(refusals_of_the_funnel_become_problems),
        RIG_TEST(a_verdict_is_sent_as_it_is_stored),
        RIG_TEST(a_post_that_waits_gets_the_verdict_or_the_state),
        RIG_TEST(a_large_body_is_parsed_beside_the_loop),
        RIG_TEST(stopping_answers_what_is_held),
        RIG_TEST(stopping_answers_what_is_being_read),
        RIG_TEST(a_client_that_leaves_while_the_store_is_read_is_let_go),
        RIG_TEST(a_conflict_in_the_store_is_told_without_its_words),
        RIG_TEST(stopping_gives_up_what_the_funnel_never_answers),
        RIG_TEST(a_failure_of_the_store_is_in_the_log_and_in_no_answer),
        RIG_TEST(a_client_that_leaves_ends_its_wait),
        RIG_TEST(a_status_is_kept_while_its_counts_are_right),
        RIG_TEST(a_turn_that_blocks_the_loop_is_in_the_metrics),
        RIG_TEST(calls_show_a_token),
        RIG_TEST(overload_is_answered_before_the_body),
        cmocka_unit_test_setup_teardown(a_client_that_says_nothing_is_told_so, rig_open_hasty, rig_close),
        RIG_TEST(a_key_is_answered_once),
        RIG_TEST(two_equal_keys_at_the_same_moment_make_one_submission),
        RIG_TEST(a_key_that_another_daemon_took_first_is_answered_with_what_it_made),
        RIG_TEST(a_key_under_way_is_a_conflict),
        RIG_TEST(a_stream_ends_with_the_verdict),
        RIG_TEST(a_stream_is_taken_up_where_it_was_left),
        RIG_TEST(a_submitter_is_not_told_of_stages),
        RIG_TEST(a_quiet_stream_beats),
        RIG_TEST(readers_that_stall_are_dropped),
        RIG_TEST(a_stream_ends_when_the_daemon_drains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
