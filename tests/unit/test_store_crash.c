/*
 * test_store_crash.c - a writer killed at any moment, and a disk that is
 * full: what was acknowledged stays, what was not leaves no trace.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/auto.h"
#include "common/buffer.h"
#include "common/clock.h"
#include "server/store/private.h"
#include "server/store/store.h"
#include "tests/unit/store_rig.h"

/* --- kill -9 --- */

#define ROUNDS 10
#define IN_FLIGHT 16
#define ACKS_MAX 200000

/* What the child tells: this submission is durable in this state. */
struct ack {
    char id[ID_SIZE];
    char state;
};

struct child {
    struct rig *rig;
    int pipe_fd;
};

/* One submission on its way through queued, running and done; then the next. */
struct life {
    struct child *child;
    struct submission_row row;
    struct store_claim claim;
};

static void on_durable(void *arg, int code, const struct error *err);

static int
take_next_step(struct life *l)
{
    struct store *s = l->child->rig->store;
    struct store_source source = { .text = l->row.id, .size = ID_SIZE - 1 };

    switch (l->row.state) {
    case SUBMISSION_QUEUED:
        return store_claim(s, store_lease(s), NULL, l->row.id, &l->claim, on_durable, l, NULL);
    case SUBMISSION_RUNNING:
        l->row.verdict = (char *)"{\"class\":\"ok\"}";
        l->row.state = SUBMISSION_DONE;
        l->row.claim = l->claim.number;
        return store_finish(s, &l->row, l->row.id, ID_SIZE - 1, on_durable, l, NULL);
    default:
        l->row = rig_row();
        l->claim.number = 0;
        snprintf(l->row.source_hash, sizeof l->row.source_hash, "sha256:%s", l->row.id);
        return store_add_submissions(s, NULL, NULL, &l->row, &source, 1, on_durable, l, NULL);
    }
}

static void
on_durable(void *arg, int code, const struct error *err)
{
    struct life *l = arg;
    struct ack ack;

    (void)err;
    if (code != 0)
        _exit(3);
    if (l->row.state == SUBMISSION_QUEUED && l->row.attempts++ > 0)
        l->row.state = SUBMISSION_RUNNING; /* the second report is that of the begin */
    memcpy(ack.id, l->row.id, ID_SIZE);
    ack.state = (char)l->row.state;
    if (write(l->child->pipe_fd, &ack, sizeof ack) != sizeof ack || take_next_step(l) != 0)
        _exit(4);
}

static void
write_until_killed(const char *path, int pipe_fd)
{
    static struct rig rig;
    struct child child = { &rig, pipe_fd };
    struct life lives[IN_FLIGHT];

    if (uv_loop_init(&rig.loop) != 0 || store_open(&rig.loop, path, NULL, 1000, &rig.store, &rig.err) < 0) {
        fprintf(stderr, "child: %s\n", rig.err.text);
        _exit(2);
    }
    for (int i = 0; i < IN_FLIGHT; i++) {
        lives[i] = (struct life){ .child = &child, .row = { .state = SUBMISSION_DONE } };
        if (take_next_step(&lives[i]) != 0)
            _exit(5);
    }
    uv_run(&rig.loop, UV_RUN_DEFAULT);
    _exit(6); /* it never runs out of work */
}

struct acks {
    struct ack list[ACKS_MAX];
    size_t bytes;
};

/* Read reports until deadline_ns, or to the end where it is 0. Returns false at the end. */
static bool
read_acks(int fd, struct acks *acks, int64_t deadline_ns)
{
    for (;;) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int64_t left_ms = deadline_ns == 0 ? -1 : (deadline_ns - clock_monotonic_ns()) / 1000000;
        ssize_t n;

        if (deadline_ns != 0 && left_ms <= 0)
            return true;
        if (poll(&p, 1, (int)left_ms) <= 0)
            continue;
        assert_true(acks->bytes < sizeof acks->list);
        n = read(fd, (char *)acks->list + acks->bytes, sizeof acks->list - acks->bytes);
        assert_true(n >= 0);
        if (n == 0)
            return false;
        acks->bytes += (size_t)n;
    }
}

/*
 * Let a child write, kill it ms after its start (or after its first report,
 * which a busy machine may delay), and collect all that it had reported.
 */
static void
kill_a_writer(struct rig *r, int ms, bool is_from_first, struct acks *acks)
{
    int ends[2], status;
    pid_t pid;

    assert_int_equal(pipe(ends), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(ends[0]);
        write_until_killed(r->path, ends[1]);
    }
    close(ends[1]);
    while (is_from_first && acks->bytes == 0)
        assert_true(read_acks(ends[0], acks, clock_monotonic_ns() + 2000000));
    assert_true(read_acks(ends[0], acks, clock_monotonic_ns() + (int64_t)ms * 1000000));
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_false(read_acks(ends[0], acks, 0));
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status)); /* it was writing to the end, and had not failed */
}

/* Whatever was acknowledged is there, in that state or a later one of its life. */
static void
check_acks(struct rig *r, const struct acks *acks)
{
    struct submission_row row;

    assert_int_equal(acks->bytes % sizeof(struct ack), 0);
    for (size_t i = 0; i < acks->bytes / sizeof(struct ack); i++) {
        const struct ack *ack = &acks->list[i];
        AUTO_BUFFER struct buffer text = BUFFER_INIT;

        assert_int_equal(reader_get_submission(store_reader(r->store), ack->id, &row, &r->err), 0);
        if (ack->state == SUBMISSION_RUNNING && row.state == SUBMISSION_QUEUED)
            assert_true(row.is_lost && row.attempts == 1 &&
                        row.claim == 2); /* its claim was durable, and is taken back */
        else
            assert_true((int)row.state >= ack->state);
        if (ack->state == SUBMISSION_DONE) {
            assert_string_equal(row.verdict, "{\"class\":\"ok\"}");
            assert_int_equal(reader_get_log(store_reader(r->store), ack->id, &text, &r->err), 0);
        } else {
            assert_int_equal(reader_get_source(store_reader(r->store), row.source_hash, &text, &r->err), 0);
        }
        assert_string_equal(text.data, ack->id);
        submission_row_release(&row);
    }
}

static void
check_integrity(struct rig *r)
{
    sqlite3 *db = rig_raw(r);
    sqlite3_stmt *stmt;

    assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &stmt, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    assert_string_equal((const char *)sqlite3_column_text(stmt, 0), "ok");
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    assert_int_equal(rig_number(r, "SELECT count(*) FROM submission LEFT JOIN blob ON hash = source_hash"
                                   " WHERE hash IS NULL"),
                     0);
    assert_int_equal(rig_number(r, "SELECT (SELECT sum(n) FROM tally WHERE what < 4) -"
                                   " (SELECT count(*) FROM submission)"),
                     0);
}

static unsigned
seed_of_the_day(void)
{
    const char *given = getenv("VERIFIERD_TEST_SEED");
    unsigned seed = given != NULL ? (unsigned)strtoul(given, NULL, 10) : 20261121U;

    print_message("seed %u (VERIFIERD_TEST_SEED)\n", seed);
    return seed;
}

static void
a_killed_writer_loses_nothing_acknowledged(void **state)
{
    struct rig *r = *state;
    struct acks *acks = calloc(1, sizeof *acks);
    size_t total = 0;

    assert_non_null(acks);
    srandom(seed_of_the_day());
    for (int round = 0; round < ROUNDS; round++) {
        store_close(r->store);
        r->store = NULL;
        acks->bytes = 0;
        kill_a_writer(r, 5 + (int)(random() % 195), round % 2 == 1, acks);
        rig_open(r);
        check_acks(r, acks);
        check_integrity(r);
        total += acks->bytes / sizeof(struct ack);
    }
    print_message("%zu acknowledged in %d rounds, all there\n", total, ROUNDS);
    assert_true(total >= ROUNDS / 2); /* children did get to write */
    free(acks);
}

/* --- a full disk: writes beyond a size fail (EFBIG) as they would with no space left --- */

static int64_t
wal_size(const struct rig *r)
{
    char path[160];
    struct stat s;

    snprintf(path, sizeof path, "%s-wal", r->path);
    assert_int_equal(stat(path, &s), 0);
    return s.st_size;
}

static void
limit_files(int64_t bytes)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < 0 ? limit.rlim_max : (rlim_t)bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void
a_full_disk_fails_the_write_and_passes(void **state)
{
    struct rig *r = *state;
    struct submission_row before = rig_row(), lost = rig_row(), later = rig_row(), found;
    int code;

    assert_int_equal(rig_add(r, &before, "x"), 0);
    limit_files(wal_size(r));
    code = rig_add(r, &lost, "y");
    limit_files(-1);
    assert_int_equal(code, ERR_STORE);
    assert_non_null(strstr(r->err.text, "disk I/O error"));
    assert_int_equal(reader_get_submission(store_reader(r->store), lost.id, &found, &r->err), ERR_NOTFOUND);
    assert_int_equal(rig_add(r, &later, "z"), 0);
    assert_int_equal(rig_add(r, &lost, "y"), 0); /* it left nothing that is in its own way */
    rig_reopen(r);
    check_integrity(r);
    assert_int_equal(rig_number(r, "SELECT count(*) FROM submission"), 3);
}

/* How often the text is in the file. */
static int
count_in(const char *path, const char *text)
{
    AUTO_BUFFER struct buffer all = BUFFER_INIT;
    char bytes[4096];
    int fd = open(path, O_RDONLY), n = 0;

    assert_true(fd >= 0);
    for (ssize_t size; (size = read(fd, bytes, sizeof bytes)) > 0;)
        assert_int_equal(buffer_append(&all, bytes, (size_t)size), 0);
    close(fd);
    for (const char *at = all.data; at && (at = strstr(at, text)) != NULL; at++)
        n++;
    return n;
}

/* Each who waited is told; the log is told once that it began and once that it is over. */
static void
a_full_disk_is_in_the_log_once(void **state)
{
    struct rig *r = *state;
    struct submission_row rows[4] = { rig_row(), rig_row(), rig_row(), rig_row() };
    int codes[4], was = dup(STDERR_FILENO);
    char path[160], begins[300], ends[300];

    snprintf(path, sizeof path, "%s.log", r->path);
    snprintf(begins, sizeof begins, "nothing can be written to %s: ", r->path);
    snprintf(ends, sizeof ends, "%s can be written again", r->path);
    int log = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    assert_true(was >= 0 && log >= 0 && dup2(log, STDERR_FILENO) >= 0);
    codes[0] = rig_add(r, &rows[0], "a");
    limit_files(wal_size(r));
    codes[1] = rig_add(r, &rows[1], "b");
    codes[2] = rig_add(r, &rows[2], "c");
    limit_files(-1);
    codes[3] = rig_add(r, &rows[3], "d");
    dup2(was, STDERR_FILENO);
    close(was);
    close(log);
    assert_true(codes[0] == 0 && codes[1] == ERR_STORE && codes[2] == ERR_STORE && codes[3] == 0);
    assert_int_equal(count_in(path, begins), 1);
    assert_int_equal(count_in(path, ends), 1);
    unlink(path);
}

/* Text that does not compress. */
static char *
noise(size_t size)
{
    char *text = malloc(size);
    uint64_t x = 88172645463325252U;

    assert_non_null(text);
    for (size_t i = 0; i < size; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        text[i] = (char)x;
    }
    return text;
}

static int
put(struct rig *r, const char *hash, const char *text, size_t size, struct outcome *o)
{
    struct submission_row row = rig_row();
    struct store_source source = { .text = text, .size = size };

    snprintf(row.source_hash, sizeof row.source_hash, "%s", hash);
    return store_add_submissions(r->store, NULL, NULL, &row, &source, 1, rig_done, o, &r->err);
}

/* The one write that does not fit costs the whole transaction; its neighbours must get in all the same. */
static void
a_write_too_large_for_the_disk_does_not_fail_its_neighbours(void **state)
{
    struct rig *r = *state;
    struct outcome plug = { 0 }, small[2] = { { 0 } }, large = { 0 };
    const size_t size =
        4 << 20; /* more than SQLite keeps in memory: it fails in the middle of the transaction */
    char *text = noise(size);
    sqlite3 *other = rig_raw(r);
    int codes[4];

    /* While another connection holds the lock, the writer waits with the plug, and the rest gathers behind it. */
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    codes[0] = put(r, "sha256:plug", "p", 1, &plug);
    for (int64_t give_up_ns = clock_monotonic_ns() + 20000000; clock_monotonic_ns() < give_up_ns;)
        uv_run(&r->loop, UV_RUN_NOWAIT);
    codes[1] = put(r, "sha256:small0", "a", 1, &small[0]);
    codes[2] = put(r, "sha256:large", text, size, &large);
    codes[3] = put(r, "sha256:small1", "b", 1, &small[1]);
    limit_files(wal_size(r) + 512 * 1024);
    assert_int_equal(sqlite3_exec(other, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    rig_wait(r);
    limit_files(-1);
    sqlite3_close(other);
    free(text);
    for (int i = 0; i < 4; i++)
        assert_int_equal(codes[i], 0);
    assert_int_equal(plug.code, 0);
    assert_int_equal(small[0].code, 0);
    assert_int_equal(large.code, ERR_STORE);
    assert_int_equal(small[1].code, 0);
    rig_reopen(r);
    check_integrity(r);
    assert_int_equal(rig_number(r, "SELECT count(*) FROM submission"), 3);
}

static bool
is_writable_next(struct rig *r)
{
    r->store->probed_ns = 0; /* as if a second had passed */
    store_is_writable(r->store);
    rig_wait(r);
    return store_is_writable(r->store);
}

/* Nobody has to lose a write for it to be known, nor to make one for it to be known that there is room again. */
static void
a_full_disk_is_known_before_a_write_and_so_is_its_end(void **state)
{
    struct rig *r = *state;
    struct outcome large = { 0 };
    struct store_figures before, after;
    int64_t version = rig_number(r, "PRAGMA user_version");
    char *text = noise(400000);

    assert_int_equal(put(r, "sha256:large", text, 400000, &large), 0);
    rig_wait(r);
    free(text);
    store_figures(r->store, &before);
    assert_true(is_writable_next(r));
    limit_files(128 * 1024);
    bool was_writable = is_writable_next(r);
    bool was_still = is_writable_next(r);
    limit_files(wal_size(r)); /* room for other files alone */
    bool was_healed_by_room_alone = is_writable_next(r);
    limit_files(-1);
    assert_false(was_writable || was_still || was_healed_by_room_alone);
    assert_true(is_writable_next(r));
    store_figures(r->store, &after);
    assert_int_equal(after.commits, before.commits); /* nothing was stored meanwhile */
    assert_int_equal(rig_number(r, "PRAGMA user_version"), version);
    check_integrity(r);
}

#define RIGGED(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        RIGGED(a_killed_writer_loses_nothing_acknowledged),
        RIGGED(a_full_disk_fails_the_write_and_passes),
        RIGGED(a_full_disk_is_in_the_log_once),
        RIGGED(a_full_disk_is_known_before_a_write_and_so_is_its_end),
        RIGGED(a_write_too_large_for_the_disk_does_not_fail_its_neighbours),
    };

    signal(SIGXFSZ, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
