#include "common/take.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/auto.h"

enum { BAD_STATUS = 64 };

struct line {
    const char *name, *first, *second;
    bool is_quick, is_waiting, inner;
    int n;
    double limit;
    char called[32];
};

static error_t
parse_inner(int key, char *arg, struct argp_state *state)
{
    struct line *l = state->input;
    const struct take rows[] = { TAKE_FLAG('i', &l->inner) };

    return take(rows, ARRAY_LEN(rows), key, arg, state);
}

static void
call_cb(struct argp_state *state, const char *name, char *arg, void *out)
{
    (void)state;
    snprintf(out, sizeof(((struct line *)0)->called), "%s=%s", name, arg);
}

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct line *l = state->input;
    const struct take rows[] = {
        TAKE_INPUT(l),
        TAKE_TEXT('a', &l->name),
        TAKE_FLAG('q', &l->is_quick),
        TAKE_INT('n', &l->n, 1, 9),
        TAKE_FLAG('w', &l->is_waiting),
        TAKE_NUMBER('w', &l->limit, 0, 100),
        TAKE_CALL('c', call_cb, l->called),
        TAKE_ARGUMENT(&l->first, "which first?"),
        TAKE_ARGUMENT(&l->second, NULL),
    };

    return take(rows, ARRAY_LEN(rows), key, arg, state);
}

static const struct argp_option inner_options[] = { { "inner", 'i', NULL, 0, "", 0 }, { 0 } };
static const struct argp inner = { inner_options, parse_inner, NULL, NULL, NULL, NULL, NULL };
static const struct argp_child children[] = { { &inner, 0, NULL, 0 }, { 0 } };
static const struct argp_option options[] = {
    { "name", 'a', "TEXT", 0, "", 0 }, { "quick", 'q', NULL, 0, "", 0 },
    { "number", 'n', "N", 0, "", 0 },  { "wait", 'w', "S", OPTION_ARG_OPTIONAL, "", 0 },
    { "call", 'c', "TEXT", 0, "", 0 }, { 0 },
};
static const struct argp argp = { options, parse, NULL, NULL, children, NULL, NULL };

/* The words of text, between blanks, as a command line. */
static struct line
read_line(const char *text)
{
    struct line l = { .limit = -1 };
    static char copy[128]; /* what is read points into it */
    char *words[16] = { (char[]){ "program" } }, *rest = copy, *word;
    int n = 1;

    snprintf(copy, sizeof(copy), "%s", text);
    while ((word = strsep(&rest, " ")))
        words[n++] = word;
    argp_parse(&argp, n, words, 0, NULL, &l);
    return l;
}

static void
every_row_gets_its_value(void **state)
{
    struct line l = read_line("--name=x -q -n 3 --wait=2.5 --call=y --inner one two");

    (void)state;
    assert_string_equal(l.name, "x");
    assert_true(l.is_quick && l.is_waiting && l.inner);
    assert_int_equal(l.n, 3);
    assert_true(l.limit == 2.5);
    assert_string_equal(l.called, "--call=y");
    assert_string_equal(l.first, "one");
    assert_string_equal(l.second, "two");
}

static void
what_is_left_out_stays_as_it_was(void **state)
{
    struct line l = read_line("--wait one");

    (void)state;
    assert_true(l.is_waiting && !l.is_quick && !l.inner);
    assert_true(l.limit == -1);
    assert_null(l.name);
    assert_null(l.second);
}

static void
a_bad_line_ends_the_program(void **state)
{
    static const char *const lines[] = { "-n 0 one",
                                         "-n 1.5 one",
                                         "-n x one",
                                         "-n 3.0 one",
                                         "-n 0x3 one",
                                         "-n 3e0 one",
                                         "-n 99999999999999999999 one",
                                         "--wait=nan one",
                                         "--wait=inf one",
                                         "--wait=1e999 one",
                                         "--wait=101 one",
                                         "one two three",
                                         "-q" };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        int status;
        pid_t pid = fork();
        if (pid == 0) {
            if (!freopen("/dev/null", "w", stderr))
                _exit(1);
            argp_err_exit_status = BAD_STATUS;
            read_line(lines[i]);
            _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == BAD_STATUS);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_gets_its_value),
        cmocka_unit_test(what_is_left_out_stays_as_it_was),
        cmocka_unit_test(a_bad_line_ends_the_program),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
