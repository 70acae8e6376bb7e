/* test_scratch.c - directories that foreign code has had: removed and handed on without following anything. */
#include "server/workers/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/auto.h"
#include "server/workers/uids.h"

static char base[64], root[96], outside[96];

static void
put(const char *path, const char *text)
{
    AUTO_FD int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0640);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static const char *
in(const char *directory, const char *name)
{
    static char paths[4][SCRATCH_PATH_SIZE + 64];
    static int at;
    at = (at + 1) % 4;
    assert_true(snprintf(paths[at], sizeof(paths[at]), "%s/%s", directory, name) < (int)sizeof(paths[at]));
    return paths[at];
}

static int
set_up(void **state)
{
    struct error err;

    (void)state;
    snprintf(base, sizeof(base), "/tmp/test-scratch-XXXXXX");
    assert_non_null(mkdtemp(base));
    snprintf(root, sizeof(root), "%s/scratch", base);
    snprintf(outside, sizeof(outside), "%s/outside", base);
    assert_int_equal(mkdir(outside, 0700), 0);
    put(in(outside, "precious"), "precious");
    assert_int_equal(scratch_prepare(root, NULL, &err), 0);
    return 0;
}

static int
tear_down(void **state)
{
    struct error err;
    (void)state;
    assert_int_equal(scratch_remove_now(base, &err), 0);
    assert_int_not_equal(access(base, F_OK), 0);
    return 0;
}

static mode_t
mode_of(const char *path)
{
    struct stat info;
    assert_int_equal(lstat(path, &info), 0);
    return info.st_mode & 07777;
}

static void
make_mess(const char *directory)
{
    char where[SCRATCH_PATH_SIZE];

    snprintf(where, sizeof(where), "%s", directory); /* in() uses its memory again */
    assert_int_equal(mkdir(in(where, "closed"), 0700), 0);
    put(in(where, "closed/file"), "x");
    assert_int_equal(chmod(in(where, "closed"), 0), 0);
    assert_int_equal(symlink(outside, in(where, "way-out")), 0);
    assert_int_equal(symlink(in(outside, "precious"), in(where, "link")), 0);
    assert_int_equal(mkfifo(in(where, "fifo"), 0600), 0);
    assert_int_equal(link(in(outside, "precious"), in(where, "hard")), 0);
    put(in(where, "file"), "kept");
}

static void
dig(const char *where, int depth)
{
    int fd = open(where, O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < depth; i++) {
        assert_int_equal(mkdirat(fd, "d", 0700), 0);
        int below = openat(fd, "d", O_RDONLY | O_DIRECTORY);
        assert_true(below >= 0);
        close(fd);
        fd = below;
    }
    close(fd);
}

static void
a_directory_is_fresh_and_private(void **state)
{
    char one[SCRATCH_PATH_SIZE], two[SCRATCH_PATH_SIZE];
    struct error err;

    (void)state;
    assert_int_equal(scratch_make(root, "r1", SCRATCH_NO_UID, one, &err), 0);
    assert_int_equal(scratch_make(root, "r1", SCRATCH_NO_UID, two, &err), 0);
    assert_string_not_equal(one, two);
    assert_int_equal(mode_of(one), 0700);
    assert_int_equal(mode_of(root), 0711);
    assert_int_equal(scratch_make("/nowhere/at/all", "r1", SCRATCH_NO_UID, one, &err), ERR_SYS);
    assert_non_null(strstr(err.text, "/nowhere"));
    /* What cleans /tmp may remove the root of a daemon that was idle for days. */
    assert_int_equal(scratch_remove_now(root, &err), 0);
    assert_int_equal(scratch_make(root, "r1", SCRATCH_NO_UID, one, &err), 0);
    assert_int_equal(mode_of(one), 0700);
    assert_int_equal(mode_of(root), 0711);
}

static void
a_mess_is_removed_and_nothing_beyond_it(void **state)
{
    char one[SCRATCH_PATH_SIZE];
    struct error err = { 0 };

    (void)state;
    assert_int_equal(scratch_make(root, "r1", SCRATCH_NO_UID, one, &err), 0);
    make_mess(one);
    dig(one, 3000); /* a path longer than PATH_MAX, and more levels than there are descriptors */
    if (scratch_remove_now(one, &err) != 0)
        fail_msg("%s", err.text);
    assert_int_not_equal(access(one, F_OK), 0);
    assert_int_equal(access(in(outside, "precious"), F_OK), 0);
    assert_int_equal(scratch_remove_now(one, &err), 0); /* gone already: fine */
}

static void
the_root_is_emptied_at_start_and_must_be_ours(void **state)
{
    char one[SCRATCH_PATH_SIZE];
    struct error err = { 0 };

    (void)state;
    assert_int_equal(scratch_make(root, "r12", SCRATCH_NO_UID, one, &err), 0);
    make_mess(one);
    assert_int_equal(mkdir(in(root, "cache-01a2-1"), 0755), 0);
    assert_int_equal(mkdir(in(root, ".up-0"), 0755), 0);
    assert_int_equal(scratch_prepare(root, NULL, &err), 0);
    assert_int_equal(rmdir(root), 0);
    put(root, "a file");
    assert_int_equal(scratch_prepare(root, NULL, &err), ERR_INPUT);
    assert_int_equal(unlink(root), 0);
    assert_int_equal(symlink(outside, root), 0);
    assert_int_equal(scratch_prepare(root, NULL, &err), ERR_INPUT);
    assert_int_equal(access(in(outside, "precious"), F_OK), 0);
    assert_int_equal(unlink(root), 0);
    assert_int_equal(scratch_prepare(in(base, "no/such/place"), NULL, &err), ERR_SYS);
}

/* scratch = "/home/me": a slip in the settings costs nobody a home. */
static void
what_no_daemon_made_is_not_emptied(void **state)
{
    static const char *const others[] = { "thesis",   "a1",         "r-abcdef", "1-abcdef",
                                          "r1-abcde", "r1x-abcdef", "up-1",     ".git" };
    char one[SCRATCH_PATH_SIZE];
    struct error err = { 0 };

    (void)state;
    assert_int_equal(scratch_make(root, "c1", SCRATCH_NO_UID, one, &err), 0);
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        put(in(root, others[i]), "years of work");
        assert_int_equal(scratch_prepare(root, NULL, &err), ERR_INPUT);
        assert_non_null(strstr(err.text, others[i]));
        assert_non_null(strstr(err.text, root));
        assert_int_equal(access(one, F_OK), 0);
        assert_int_equal(unlink(in(root, others[i])), 0);
    }
    assert_int_equal(scratch_prepare(root, NULL, &err), 0);
    assert_int_not_equal(access(one, F_OK), 0);
}

/* Of two daemons with one scratch directory the second would take the files of the first's children away. */
static void
one_daemon_has_a_root(void **state)
{
    char one[SCRATCH_PATH_SIZE];
    struct error err = { 0 };
    int held = -1, other = -1;

    (void)state;
    assert_int_equal(scratch_prepare(root, &held, &err), 0);
    assert_true(held >= 0);
    assert_int_equal(scratch_make(root, "c1", SCRATCH_NO_UID, one, &err), 0);
    assert_int_equal(scratch_prepare(root, &other, &err), ERR_CONFLICT);
    assert_non_null(strstr(err.text, root));
    assert_int_equal(other, -1);
    assert_int_equal(access(one, F_OK), 0);
    assert_int_equal(scratch_check(root, &err), 0); /* looking is allowed */
    assert_int_equal(close(held), 0);
    assert_int_equal(scratch_prepare(root, &other, &err), 0);
    assert_int_equal(close(other), 0);
}

static void
a_cache_is_handed_on_without_what_leads_out_of_it(void **state)
{
    char one[SCRATCH_PATH_SIZE];
    struct error err = { 0 };

    (void)state;
    assert_int_equal(scratch_make(root, "c1", SCRATCH_NO_UID, one, &err), 0);
    assert_int_equal(mkdir(in(one, "cache"), 0700), 0);
    make_mess(in(one, "cache"));
    assert_int_equal(chmod(in(one, "cache/closed"), 0700), 0);
    const mode_t before = mode_of(in(outside, "precious"));
    if (scratch_publish_now(in(one, "cache"), in(root, "cache-1"), &err) != 0)
        fail_msg("%s", err.text);
    assert_int_equal(mode_of(in(root, "cache-1")), 0755);
    assert_int_equal(mode_of(in(root, "cache-1/file")), 0555);
    assert_int_equal(mode_of(in(root, "cache-1/closed/file")), 0555);
    static const char *const dropped[] = { "way-out", "link", "fifo", "hard" };
    for (size_t i = 0; i < ARRAY_LEN(dropped); i++) {
        struct stat info;
        char path[512];
        snprintf(path, sizeof(path), "%s/cache-1/%s", root, dropped[i]);
        if (lstat(path, &info) == 0)
            fail_msg("%s was handed on", dropped[i]);
    }
    assert_int_equal(mode_of(in(outside, "precious")), before);
}

static void
a_cache_that_is_too_much_is_refused(void **state)
{
    struct error err = { 0 };

    (void)state;
    assert_int_equal(scratch_publish_now(in(root, "none"), in(root, "to"), &err), ERR_NOTFOUND);
    assert_int_equal(mkdir(in(root, "deep"), 0700), 0);
    dig(in(root, "deep"), 100);
    assert_int_equal(scratch_publish_now(in(root, "deep"), in(root, "to"), &err), ERR_FULL);
    assert_int_equal(mkdir(in(root, "large"), 0700), 0);
    put(in(root, "large/a"), "");
    put(in(root, "large/b"), "");
    put(in(root, "large/c"), "");
    static const char *const names[] = { "large/a", "large/b", "large/c" };
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        assert_int_equal(truncate(in(root, names[i]), SCRATCH_CACHE_BYTES / 2 + 1), 0);
    assert_int_equal(scratch_publish_now(in(root, "large"), in(root, "to2"), &err), ERR_FULL);
}

static void
what_is_no_cache_is_none(void **state)
{
    struct error err = { 0 };
    struct stat info;

    (void)state;
    put(in(root, "file"), "text");
    assert_int_equal(scratch_publish_now(in(root, "file"), in(root, "to"), &err), ERR_NOTFOUND);
    assert_int_equal(symlink(outside, in(root, "link")), 0);
    assert_int_equal(scratch_publish_now(in(root, "link"), in(root, "to"), &err), ERR_NOTFOUND);
    assert_int_equal(mkfifo(in(root, "pipe"), 0600), 0);
    assert_int_equal(scratch_publish_now(in(root, "pipe"), in(root, "to"), &err), ERR_NOTFOUND);
    assert_int_equal(lstat(in(root, "to"), &info), -1);
    assert_int_equal(stat(outside, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
}

/* Only an ordinary user is held up by missing rights. */
static void
rights_that_were_taken_away_are_no_obstacle(void **state)
{
    struct error err = { 0 };
    struct stat info;

    (void)state;
    assert_int_equal(mkdir(in(root, "closed"), 0700), 0);
    assert_int_equal(mkdir(in(root, "closed/below"), 0700), 0);
    put(in(root, "closed/below/file"), "text");
    assert_int_equal(chmod(in(root, "closed/below/file"), 0), 0);
    assert_int_equal(chmod(in(root, "closed/below"), 0), 0);
    assert_int_equal(chmod(in(root, "closed"), 0), 0);
    assert_int_equal(scratch_publish_now(in(root, "closed"), in(root, "open"), &err), 0);
    assert_int_equal(stat(in(root, "open/below/file"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0555);
}

static void
no_two_children_share_a_user_id(void **state)
{
    struct uids *u;
    struct error err = { 0 };
    int64_t a, b, c;

    (void)state;
    assert_int_equal(uids_new(40000, 2, &u, &err), 0);
    assert_int_equal(uids_take(u, &a, &err), 0);
    assert_int_equal(uids_take(u, &b, &err), 0);
    if (geteuid() != 0) {
        assert_int_equal(a, -1);
    } else {
        assert_int_equal(a, 40000);
        assert_int_equal(b, 40001);
        assert_int_equal(uids_take(u, &c, &err), ERR_FULL);
        uids_give_back(u, a);
        assert_int_equal(uids_take(u, &c, &err), 0);
        assert_int_equal(c, a);
    }
    uids_give_back(u, -1);
    uids_free(u);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_directory_is_fresh_and_private),
        TEST(a_mess_is_removed_and_nothing_beyond_it),
        TEST(the_root_is_emptied_at_start_and_must_be_ours),
        TEST(what_no_daemon_made_is_not_emptied),
        TEST(one_daemon_has_a_root),
        TEST(a_cache_is_handed_on_without_what_leads_out_of_it),
        TEST(a_cache_that_is_too_much_is_refused),
        TEST(what_is_no_cache_is_none),
        TEST(rights_that_were_taken_away_are_no_obstacle),
        cmocka_unit_test(no_two_children_share_a_user_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
