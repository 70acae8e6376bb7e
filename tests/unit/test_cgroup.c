/* What a control group says, from files as the kernel writes them; groups themselves are tried in tests/e2e/test_cgroup.py. */
#include "server/workers/cgroup.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_kernels_killer_is_seen),
        cmocka_unit_test(no_groups_are_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
