#include "common/log.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

/* stderr goes into a memfd during a test. */
static int captured_fd, stderr_copy;

static int
capture(void **state)
{
    (void)state;
    stderr_copy = dup(STDERR_FILENO);
    captured_fd = memfd_create("log", MFD_CLOEXEC);
    return stderr_copy < 0 || captured_fd < 0 || dup2(captured_fd, STDERR_FILENO) < 0;
}

static int
restore(void **state)
{
    (void)state;
    dup2(stderr_copy, STDERR_FILENO);
    close(stderr_copy);
    close(captured_fd);
    return 0;
}

static char *
captured(void)
{
    static char text[16384];
    ssize_t n = pread(captured_fd, text, sizeof(text) - 1, 0);
    assert_true(n >= 0);
    text[n] = '\0';
    return text;
}

static const char *
member(json_t *line, const char *key)
{
    return json_string_value(json_object_get(line, key));
}

static void
a_json_line_reads_back(void **state)
{
    (void)state;
    log_setup(LOG_LEVEL_INFO, LOG_FORMAT_JSON);
    log_warn("sub\"1", "line\nfeed %d \x01 \\ tab\t \xc3\xa9 \xff end", 7);
    char *text = captured();
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    json_t *line = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(line);
    assert_int_equal(json_object_size(line), 4);
    assert_string_equal(member(line, "level"), "warn");
    assert_string_equal(member(line, "subject"), "sub\"1");
    assert_string_equal(member(line, "msg"), "line\nfeed 7 \x01 \\ tab\t \xc3\xa9 ? end");
    assert_int_equal(strlen(member(line, "time")), 24);
    json_decref(line);
}

static void
fields_stand_beside_the_message(void **state)
{
    const struct log_field fields[] = { { "request", "r\"1\n" }, { "trace", NULL }, { "n", "2" } };

    (void)state;
    log_setup(LOG_LEVEL_INFO, LOG_FORMAT_JSON);
    log_write_with(LOG_LEVEL_INFO, "s", fields, 3, "accepted %d", 1);
    log_write_with(LOG_LEVEL_DEBUG, "s", fields, 3, "not seen");
    json_t *line = json_loads(captured(), JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(line);
    assert_int_equal(json_object_size(line), 6);
    assert_string_equal(member(line, "request"), "r\"1\n");
    assert_string_equal(member(line, "n"), "2");
    assert_string_equal(member(line, "msg"), "accepted 1");
    json_decref(line);
    log_setup(LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    log_write_with(LOG_LEVEL_INFO, "s", fields, 3, "accepted");
    assert_non_null(strstr(captured(), "s: accepted request=r\"1? n=2\n"));
}

static void
no_subject_no_key(void **state)
{
    (void)state;
    log_setup(LOG_LEVEL_INFO, LOG_FORMAT_JSON);
    log_info(NULL, "hello");
    json_t *line = json_loads(captured(), 0, NULL);
    assert_non_null(line);
    assert_null(json_object_get(line, "subject"));
    json_decref(line);
}

static void
levels_above_the_limit_are_silent(void **state)
{
    (void)state;
    log_setup(LOG_LEVEL_WARN, LOG_FORMAT_JSON);
    log_info(NULL, "no");
    log_debug(NULL, "no");
    assert_string_equal(captured(), "");
    log_error(NULL, "yes");
    assert_non_null(strstr(captured(), "yes"));
}

static void
plain_text_cannot_forge_a_line(void **state)
{
    (void)state;
    log_setup(LOG_LEVEL_DEBUG, LOG_FORMAT_TEXT);
    log_debug("job", "a\nb\x1b[2J");
    char *text = captured();
    assert_non_null(strstr(text, "debug job: a?b?[2J\n"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

static void
errno_survives_and_long_lines_are_whole(void **state)
{
    char big[9000];
    (void)state;
    memset(big, 'b', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    log_setup(LOG_LEVEL_INFO, LOG_FORMAT_JSON);
    errno = EXDEV;
    log_info("s", "%s", big);
    assert_int_equal(errno, EXDEV);
    json_t *line = json_loads(captured(), 0, NULL);
    assert_non_null(line);
    assert_int_equal(strlen(member(line, "msg")), sizeof(big) - 1);
    json_decref(line);
}

/* The daemon stood still with whatever its log was piped into. */
static void
a_reader_that_does_not_read_holds_nobody_up(void **state)
{
    static char text[1 << 20];
    int ends[2];

    (void)state;
    log_setup(LOG_LEVEL_INFO, LOG_FORMAT_JSON);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    alarm(20);
    for (int i = 0; i < 2000; i++)
        log_info(NULL, "line %d of many that are far more than what a pipe holds %*d", i,
                 i % 10 == 0 ? 5000 : 9, i);
    assert_true(read(ends[0], text, sizeof(text)) > 0);
    log_info(NULL, "it reads again");
    alarm(0);
    text[read(ends[0], text, sizeof(text) - 1)] = '\0';
    assert_non_null(strstr(text, "log lines were lost"));
    assert_non_null(strstr(text, "it reads again"));
    close(ends[0]);
    close(ends[1]);
}

static void
a_full_disk_leaves_errno_alone(void **state)
{
    (void)state;
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(full >= 0);
    assert_true(dup2(full, STDERR_FILENO) >= 0);
    close(full);
    errno = EXDEV;
    log_error("s", "lost");
    assert_int_equal(errno, EXDEV);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_json_line_reads_back, capture, restore),
        cmocka_unit_test_setup_teardown(fields_stand_beside_the_message, capture, restore),
        cmocka_unit_test_setup_teardown(no_subject_no_key, capture, restore),
        cmocka_unit_test_setup_teardown(levels_above_the_limit_are_silent, capture, restore),
        cmocka_unit_test_setup_teardown(plain_text_cannot_forge_a_line, capture, restore),
        cmocka_unit_test_setup_teardown(a_reader_that_does_not_read_holds_nobody_up, capture, restore),
        cmocka_unit_test_setup_teardown(a_full_disk_leaves_errno_alone, capture, restore),
        cmocka_unit_test_setup_teardown(errno_survives_and_long_lines_are_whole, capture, restore),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
