#include "client/trainer/tasks.h"

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

#include "client/trainer/rows.h"
#include "common/auto.h"
#include "tests/unit/folder.h"

/* --- rows --- */

struct seen {
    size_t n, faults, numbers[16];
    char text[256];
};

static int
see(void *arg, size_t number, json_t *row, const char *fault, struct error *err)
{
    struct seen *s = arg;
    AUTO_FREE char *text = row ? json_dumps(row, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    (void)err;
    assert_true((row == NULL) == (fault != NULL));
    s->faults += row == NULL;
    s->numbers[s->n++ % 16] = number;
    snprintf(s->text + strlen(s->text), sizeof(s->text) - strlen(s->text), "%s;", text ? text : "!");
    return number == 99 ? ERR_FULL : 0;
}

static void
every_form_of_rows(void **state)
{
    static const struct {
        const char *given, *seen;
        int rc;
    } rows[] = {
        { "", "", 0 },
        { " \n\n", "", 0 },
        { "{\"a\":1}\n\n{\"a\":2}\n", "{\"a\":1};{\"a\":2};", 0 },
        { "{\"a\":1}\r\n{\"a\":2}", "{\"a\":1};{\"a\":2};", 0 }, /* no newline at the end */
        { "{\"a\":1}\n{\"a\":\nnonsense\n{\"a\":3}\n", "{\"a\":1};!;!;{\"a\":3};", 0 },
        { "[]", "", 0 },
        { " [ ] ", "", 0 },
        { "[{\"a\":1},{\"a\":2}]", "{\"a\":1};{\"a\":2};", 0 },
        { "\n[\n 1 ,\n 2\n]\n", "1;2;", 0 },
        { "[{\"a\":\"],}\\\"\"}, 7]", "{\"a\":\"],}\\\"\"};7;", 0 }, /* brackets and quotes inside a text */
        { "[{\"a\":[{},[1]]},8]", "{\"a\":[{},[1]]};8;", 0 },
        { "[{\"a\":},{\"a\":2}]", "!;{\"a\":2};", 0 }, /* a broken row is left, the others are read */
        { "[{\"a\":\"\\u0000\"},3]", "!;3;", 0 },      /* no source has a NUL */
        { "[1,,2]", "1;!;2;", 0 },
        { "[1,2", "1;", ERR_INPUT },
        { "[{\"a\":\"", "", ERR_INPUT },
        { "[", "", ERR_INPUT },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct seen s = { 0 };
        struct error err = { 0 };
        int rc = rows_each(put("rows.json", rows[i].given), see, &s, &err);
        if (rc != rows[i].rc || strcmp(s.text, rows[i].seen) != 0)
            fail_msg("%s: %d %s", rows[i].given, rc, s.text);
    }
}

static void
rows_are_numbered_as_lines_are(void **state)
{
    struct seen s = { 0 };
    struct error err;
    (void)state;
    assert_int_equal(rows_each(put("a.jsonl", "\n1\n\n2\n"), see, &s, &err), 0);
    assert_int_equal(s.numbers[0], 2);
    assert_int_equal(s.numbers[1], 4);
    assert_int_equal(rows_each("/nowhere/at/all", see, &s, &err), ERR_SYS);
    assert_non_null(strstr(err.text, "/nowhere/at/all"));
}

static void
a_row_that_is_too_long_is_left_and_the_next_one_read(void **state)
{
    struct seen s = { 0 };
    struct error err;
    char *path = put("long.jsonl", "1\n");
    FILE *file = fopen(path, "a");
    (void)state;
    for (int i = 0; i < ROW_MAX + 2; i++)
        putc_unlocked('7', file);
    fputs("\n2\n", file);
    fclose(file);
    assert_int_equal(rows_each(path, see, &s, &err), 0);
    assert_string_equal(s.text, "1;!;2;");
}

/* --- tasks --- */

static void
a_checkout_gives_levels_numbers_and_names(void **state)
{
    struct task_set set;
    struct error err;
    (void)state;
    put("kb/levels/level1/10_ten.py", "class Model: pass\n");
    put("kb/levels/level1/9_nine.py", "class Model: pass\n");
    put("kb/levels/level2/1_one.py", "class Model: pass\n");
    put("kb/levels/level2/__init__.py", "");
    put("kb/levels/level2/2_empty.py", "");
    put("kb/.git/level1/3_hidden.py", "x");
    char *root = put("kb/README.md", "x");
    *strrchr(root, '/') = '\0';
    assert_int_equal(tasks_load(root, 0, &set, &err), 0);
    assert_int_equal(set.n, 3);
    assert_int_equal(set.skipped, 1);
    assert_string_equal(set.tasks[0].name, "level1/9_nine");
    assert_int_equal(set.tasks[0].problem, 9);
    assert_string_equal(set.tasks[1].name, "level1/10_ten");
    assert_string_equal(set.tasks[2].name, "level2/1_one");
    assert_int_equal(set.tasks[2].level, 2);
    tasks_free(&set);
    assert_int_equal(tasks_load(root, 2, &set, &err), 0);
    assert_int_equal(set.n, 1);
    tasks_free(&set);
    assert_int_equal(tasks_load(root, 4, &set, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "level 4"));
}

static void
rows_of_each_data_set_are_read(void **state)
{
    static const char text[] = "{\"pytorch_code\":\"a\",\"name\":\"x\",\"difficulty\":\"2\"}\n"
                               "{\"python_code\":\"b\",\"entry_point\":\"Net\",\"uuid\":17}\n"
                               "{\"code\":\"c\",\"level\":1,\"name\":\"1_c\",\"problem_id\":1}\n"
                               "{\"level\":1}\n"
                               "{\"code\":7}\n"
                               "[1]\n"
                               "{\"code\":\"d\",\"name\":\"x\",\"level\":3}\n";
    struct task_set set;
    struct error err;
    (void)state;
    assert_int_equal(tasks_load(put("rows.jsonl", text), 0, &set, &err), 0);
    assert_int_equal(set.n, 3);
    assert_int_equal(set.skipped, 4); /* the second "x", too: the journal knows a task by its name */
    assert_string_equal(set.tasks[0].name, "17");
    AUTO_FREE char *wanted = task_class_wanted(&set.tasks[0]);
    assert_string_equal(wanted, "NetNew");
    assert_string_equal(set.tasks[1].name, "1_c");
    assert_string_equal(set.tasks[1].entry_point, "Model");
    assert_int_equal(set.tasks[2].level, 2);
    assert_string_equal(set.tasks[2].reference, "a");
    tasks_free(&set);
}

static void
numbers_may_be_real_or_text_and_names_empty(void **state)
{
    static const char text[] =
        "{\"code\":\"a\",\"name\":\"real\",\"level\":2.0,\"problem_id\":3.0}\n"
        "{\"code\":\"b\",\"name\":\"text\",\"level\":\"2\",\"problem_id\":4}\n"
        "{\"code\":\"c\",\"name\":\"null\",\"level\":null,\"difficulty\":2,\"problem_id\":5}\n"
        "{\"code\":\"d\",\"name\":\"\",\"level\":2,\"problem_id\":6}\n"
        "{\"code\":\"e\",\"name\":\"huge\",\"level\":2e300}\n"
        "{\"code\":\"f\",\"name\":\"true\",\"level\":true}\n";
    static const char *const names[] = { "real", "text", "null", "row4" };
    struct task_set set;
    struct error err;
    (void)state;
    assert_int_equal(tasks_load(put("numbers.jsonl", text), 2, &set, &err), 0);
    assert_int_equal(set.n, 4);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(set.tasks[i].name, names[i]);
        assert_int_equal(set.tasks[i].problem, 3 + i);
    }
    tasks_free(&set);
}

static void
a_byte_order_mark_is_no_part_of_a_row(void **state)
{
    static const char *const texts[] = { "\xEF\xBB\xBF{\"code\":\"a\"}\n{\"code\":\"b\"}\n",
                                         "\xEF\xBB\xBF[{\"code\":\"a\"}, {\"code\":\"b\"}]" };
    struct task_set set;
    struct error err;
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tasks_load(put("marked.jsonl", texts[i]), 0, &set, &err), 0);
        assert_int_equal(set.n, 2);
        assert_int_equal(set.skipped, 0);
        tasks_free(&set);
    }
}

static void
a_draw_is_the_same_for_the_same_seed_and_even(void **state)
{
    int drawn[20] = { 0 };
    char text[20 * 48] = "";
    struct error err;
    (void)state;
    for (int i = 0; i < 20; i++)
        sprintf(text + strlen(text), "{\"code\":\"c\",\"name\":\"%d\",\"problem_id\":%d}\n", i, i);
    char *path = put("many.jsonl", text);
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct task_set set, again;
        assert_int_equal(tasks_load(path, 0, &set, &err), 0);
        assert_int_equal(tasks_load(path, 0, &again, &err), 0);
        tasks_draw(&set, 5, seed);
        tasks_draw(&again, 5, seed);
        assert_int_equal(set.n, 5);
        for (size_t i = 0; i < 5; i++) {
            drawn[atoi(set.tasks[i].name)]++;
            assert_string_equal(set.tasks[i].name, again.tasks[i].name);
        }
        tasks_free(&set);
        tasks_free(&again);
    }
    for (int i = 0; i < 20; i++) /* 100 expected, standard deviation 8.7 */
        assert_in_range(drawn[i], 60, 140);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_of_rows),
        cmocka_unit_test(rows_are_numbered_as_lines_are),
        cmocka_unit_test(a_row_that_is_too_long_is_left_and_the_next_one_read),
        cmocka_unit_test(a_checkout_gives_levels_numbers_and_names),
        cmocka_unit_test(rows_of_each_data_set_are_read),
        cmocka_unit_test(numbers_may_be_real_or_text_and_names_empty),
        cmocka_unit_test(a_byte_order_mark_is_no_part_of_a_row),
        cmocka_unit_test(a_draw_is_the_same_for_the_same_seed_and_even),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
