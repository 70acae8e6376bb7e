#include "client/trainer/journal.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/folder.h"

struct seen {
    int n;
    json_int_t sum;
};

static void
see(void *arg, json_t *record)
{
    struct seen *s = arg;
    s->n++;
    s->sum += json_integer_value(json_object_get(record, "x"));
}

static char *
path_of(const char *name, const char *text)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    if (text) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(text, file);
        fclose(file);
    }
    return path;
}

static void
add(struct journal *j, int x, int want)
{
    struct error err = { 0 };
    json_t *record = json_pack("{s:i}", "x", x);
    assert_int_equal(journal_add(j, record, &err), want);
    json_decref(record);
}

static void
what_was_added_is_there_again(void **state)
{
    struct journal *j;
    struct error err;
    struct seen s = { 0, 0 };
    char *path = path_of("a", NULL);
    (void)state;
    assert_int_equal(journal_open(path, see, &s, &j, &err), 0);
    assert_int_equal(s.n, 0);
    add(j, 1, 0);
    add(j, 2, 0);
    journal_close(j);
    for (int i = 0; i < 2; i++) { /* reading changes nothing */
        s = (struct seen){ 0, 0 };
        assert_int_equal(journal_open(path, see, &s, &j, &err), 0);
        assert_int_equal(s.n, 2);
        assert_int_equal(s.sum, 3);
        journal_close(j);
    }
}

static void
half_a_line_is_dropped_wherever_it_was_cut(void **state)
{
    static const char whole[] = "{\"x\":1}\n", half[] = "{\"x\":20}";
    (void)state;
    for (size_t cut = 1; cut <= strlen(half); cut++) {
        char text[64];
        struct journal *j;
        struct error err;
        struct seen s = { 0, 0 };
        snprintf(text, sizeof(text), "%s%.*s", whole, (int)cut, half);
        char *path = path_of("half", text);
        assert_int_equal(journal_open(path, see, &s, &j, &err), 0);
        assert_int_equal(s.n, 1);
        add(j, 4, 0);
        journal_close(j);
        s = (struct seen){ 0, 0 };
        assert_int_equal(journal_open(path, see, &s, &j, &err), 0);
        assert_int_equal(s.n, 2);
        assert_int_equal(s.sum, 5);
        journal_close(j);
    }
}

static void
a_broken_line_in_the_middle_is_an_error(void **state)
{
    static const char *const texts[] = { "{\"x\":1}\nnonsense\n{\"x\":2}\n", "{\"x\":1}\n[1]\n",
                                         "{\"x\":1}\n\n" };
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct journal *j;
        struct error err;
        struct seen s = { 0, 0 };
        assert_int_equal(journal_open(path_of("broken", texts[i]), see, &s, &j, &err), ERR_INPUT);
        assert_non_null(strstr(err.text, "line 2"));
        assert_null(j);
    }
}

static void
two_runs_do_not_write_one_journal(void **state)
{
    struct journal *j, *other;
    struct error err;
    struct seen s = { 0, 0 };
    char *path = path_of("locked", NULL);
    (void)state;
    assert_int_equal(journal_open(path, see, &s, &j, &err), 0);
    assert_int_equal(journal_open(path, see, &s, &other, &err), ERR_CONFLICT);
    journal_close(j);
    assert_int_equal(journal_open(path, see, &s, &other, &err), 0);
    journal_close(other);
    assert_int_equal(journal_open("/nowhere/at/all", see, &s, &j, &err), ERR_SYS);
}

/* A full disk: the record is not there, and the next one that fits is whole. */
static void
what_does_not_fit_leaves_nothing_behind(void **state)
{
    struct journal *j;
    struct error err;
    struct seen s = { 0, 0 };
    struct rlimit was;
    char *path = path_of("full", NULL);
    (void)state;
    assert_int_equal(journal_open(path, see, &s, &j, &err), 0);
    add(j, 1, 0);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &was);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 12, was.rlim_max }); /* in the middle of the second record */
    add(j, 2, ERR_SYS);
    setrlimit(RLIMIT_FSIZE, &was);
    add(j, 4, 0);
    journal_close(j);
    assert_int_equal(journal_open(path, see, &s, &j, &err), 0);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.sum, 5);
    journal_close(j);
}

/* Read again by its place, also when more was added since. */
int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_added_is_there_again),
        cmocka_unit_test(half_a_line_is_dropped_wherever_it_was_cut),
        cmocka_unit_test(a_broken_line_in_the_middle_is_an_error),
        cmocka_unit_test(two_runs_do_not_write_one_journal),
        cmocka_unit_test(what_does_not_fit_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
