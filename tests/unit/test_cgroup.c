/* What a control group says, from files as the kernel writes them; groups themselves are tried in tests/e2e/test_cgroup.py. */
#include "server/workers/cgroup.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void
the_kernels_killer_is_seen(void **state)
{
    static const struct {
        const char *events;
        bool was_short;
    } rows[] = {
        { "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n", false },
        { "low 0\nhigh 0\nmax 31\noom 4\noom_kill 0\noom_group_kill 0\n",
          false }, /* an allocation was refused */
        { "low 0\nhigh 0\nmax 31\noom 4\noom_kill 2\noom_group_kill 1\n", true },
        { "", false },
    };
    char group[] = "/tmp/verifierd-cgroup-XXXXXX", path[64];
    (void)state;

    assert_non_null(mkdtemp(group));
    snprintf(path, sizeof(path), "%s/memory.events", group);
    assert_false(cgroup_was_short(group)); /* no such controller */
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        assert_int_equal(write(fd, rows[i].events, strlen(rows[i].events)), (ssize_t)strlen(rows[i].events));
        close(fd);
        assert_int_equal(cgroup_was_short(group), rows[i].was_short);
    }
    unlink(path);
    rmdir(group);
    assert_false(cgroup_was_short(""));
}

static void
no_groups_are_fine(void **state)
{
    struct cgroups *g;
    struct error err = { 0 };
    char path[CGROUP_PATH_SIZE] = "x";
    (void)state;

    assert_int_equal(cgroups_open("off", &g, &err), 0);
    assert_string_equal(cgroups_state(g), "absent: switched off");
    assert_int_equal(cgroup_make(g, "c1", 1, 1, path, &err), 0);
    assert_string_equal(path, "");
    cgroup_kill(path);
    cgroups_free(g);
    assert_int_equal(cgroups_open("/tmp", &g, &err), ERR_INPUT);
    assert_null(g);
    cgroups_free(g);
}

/* --- groups that are not empty yet --- */

enum { BUSY_GROUPS = 8 };

static void
work_cb(uv_work_t *req)
{
    (void)req;
}

static void
worked_cb(uv_work_t *req, int status)
{
    assert_int_equal(status, 0);
    *(uint64_t *)req->data = uv_hrtime();
}

/* Four of them kept libuv's threads asleep for two seconds, and with them all other work. */
static void
a_group_that_is_not_empty_yet_keeps_nobody_waiting(void **state)
{
    char base[] = "/tmp/verifierd-cgroup-XXXXXX", path[BUSY_GROUPS][64], inside[96];
    uint64_t done_ns = 0, begun_ns = uv_hrtime();
    uv_work_t work = { .data = &done_ns };
    uv_loop_t loop;
    (void)state;

    assert_non_null(mkdtemp(base));
    uv_loop_init(&loop);
    for (int i = 0; i < BUSY_GROUPS; i++) {
        snprintf(path[i], sizeof(path[i]), "%s/%d", base, i);
        snprintf(inside, sizeof(inside), "%s/%d/in", base, i);
        assert_int_equal(mkdir(path[i], 0700), 0);
        assert_int_equal(mkdir(inside, 0700), 0);
        cgroup_remove(&loop, path[i]);
    }
    assert_int_equal(uv_queue_work(&loop, &work, work_cb, worked_cb), 0);
    while (done_ns == 0)
        uv_run(&loop, UV_RUN_ONCE);
    assert_in_range(done_ns - begun_ns, 0, 1000000000);
    for (int i = 0; i < BUSY_GROUPS; i++) {
        snprintf(inside, sizeof(inside), "%s/%d/in", base, i);
        assert_int_equal(rmdir(inside), 0);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    for (int i = 0; i < BUSY_GROUPS; i++)
        assert_int_equal(access(path[i], F_OK), -1);
    assert_int_equal(rmdir(base), 0);
    assert_int_equal(uv_loop_close(&loop), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_kernels_killer_is_seen),
        cmocka_unit_test(no_groups_are_fine),
        cmocka_unit_test(a_group_that_is_not_empty_yet_keeps_nobody_waiting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
