#include "client/cli/corpus.h"

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

#define KEYS "expect kind class plan policy entry needs why what"

static int
read_text(const char *text, struct corpus_header *header, struct error *err)
{
    return corpus_read_header(text, strlen(text), KEYS, header, err);
}

static int
expect_of(const char *text, struct corpus_expectation *out, struct error *err)
{
    struct corpus_header header;
    int rc = read_text(text, &header, err);
    return rc < 0 ? rc : corpus_read_expectation(&header, out, err);
}

static void
assert_value(const struct corpus_header *h, size_t i, const char *key, const char *value)
{
    assert_string_equal(h->lines[i].key, key);
    assert_int_equal(h->lines[i].size, strlen(value));
    assert_memory_equal(h->lines[i].value, value, strlen(value));
}

static void
test_header_ends_at_the_first_other_line(void **state)
{
    (void)state;
    const char *text =
        "# kind: cheat\n#class:hack | policy \r\n# what: a, b: c\nimport torch\n# needs: gpu\n";
    struct corpus_header h;

    assert_int_equal(read_text(text, &h, NULL), 0);
    assert_int_equal(h.n, 3);
    assert_value(&h, 0, "kind", "cheat");
    assert_value(&h, 1, "class", "hack | policy");
    assert_value(&h, 2, "what", "a, b: c");
    assert_string_equal(text + h.end, "import torch\n# needs: gpu\n");
}

static void
test_header_of_odd_files(void **state)
{
    (void)state;
    struct corpus_header h;

    assert_int_equal(read_text("", &h, NULL), 0);
    assert_int_equal(h.n, 0);
    assert_int_equal(read_text("import torch\n", &h, NULL), 0);
    assert_int_equal(h.n, 0);
    assert_int_equal(h.end, 0);
    /* No newline behind it, and a byte order mark before it. */
    assert_int_equal(read_text("\xef\xbb\xbf# kind: honest", &h, NULL), 0);
    assert_value(&h, 0, "kind", "honest");
    assert_int_equal(h.end, strlen("\xef\xbb\xbf# kind: honest"));
    /* A comment that is no "key: value" line. */
    assert_int_equal(read_text("# Kind: honest\n", &h, NULL), 0);
    assert_int_equal(h.n, 0);
}

static void
test_header_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } rows[] = {
        { "# kind: cheat\n# color: red\n", "unknown header key \"color\"" },
        { "# kind: cheat\n# kind: honest\n", "header key \"kind\" twice" },
        { "# a_key_that_is_longer_than_any_that_is_known: 1\n", "unknown header key" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct corpus_header h;
        struct error err = { 0 };
        assert_int_equal(read_text(rows[i].text, &h, &err), ERR_INPUT);
        assert_non_null(strstr(err.text, rows[i].why));
    }
}

static void
test_expectation(void **state)
{
    (void)state;
    struct corpus_expectation e;

    assert_int_equal(expect_of("# kind: cheat\n# class: hack|mismatch | policy\n# needs: gpu\n", &e, NULL),
                     0);
    assert_int_equal(e.kind, CORPUS_CHEAT);
    assert_int_equal(e.classes,
                     corpus_class_bit("hack") | corpus_class_bit("mismatch") | corpus_class_bit("policy"));
    assert_int_equal(e.stages, 0);
    assert_true(e.needs_gpu);

    /* A cheat may be accepted where its plan leaves it nothing to gain. */
    assert_int_equal(expect_of("# kind: cheat\n# class: ok|policy\n", &e, NULL), 0);
    assert_int_equal(e.classes, corpus_class_bit("ok") | corpus_class_bit("policy"));

    assert_int_equal(expect_of("# expect: class=mismatch stage=tiny|full\n# kind: mistake\n", &e, NULL), 0);
    assert_int_equal(e.kind, CORPUS_MISTAKE);
    assert_int_equal(e.classes, corpus_class_bit("mismatch"));
    assert_int_equal(e.stages, corpus_stage_bit("tiny") | corpus_stage_bit("full"));
    assert_false(e.needs_gpu);

    AUTO_FREE char *stages = corpus_stage_names(e.stages);
    assert_string_equal(stages, "tiny|full");
    AUTO_FREE char *classes = corpus_class_names(corpus_class_bit("ok") | corpus_class_bit("hack"));
    assert_string_equal(classes, "ok|hack");
    assert_int_equal(corpus_class_bit("fine"), 0);
    assert_int_equal(corpus_class_bit(""), 0);
}

static void
test_expectation_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } rows[] = {
        { "# kind: cheat\n", "neither" },
        { "# class: hack\n", "no \"# kind:\"" },
        { "# kind: naughty\n# class: hack\n", "kind: \"naughty\"" },
        { "# kind: cheat\n# class: hacked\n", "there is no class or stage \"hacked\"" },
        { "# kind: cheat\n# class: hack||policy\n", "there is no class or stage \"\"" },
        { "# kind: cheat\n# class: infra\n", "there is no class or stage \"infra\"" },
        { "# kind: mistake\n# class: hack|ok\n", "class \"ok\" is among those expected" },
        { "# kind: suspicious\n# class: hack\n", "its class is not \"ok\"" },
        { "# kind: honest\n# expect: class=ok stage=full\n", "names no stage" },
        { "# kind: cheat\n# expect: class=hack stage=late\n", "there is no class or stage \"late\"" },
        { "# kind: cheat\n# expect: class=hack class=policy\n", "there twice" },
        { "# kind: cheat\n# expect: class=hack when=now\n", "when=now" },
        { "# kind: cheat\n# expect: class=hack\n# class: hack\n", "both" },
        { "# kind: cheat\n# class: hack\n# needs: tpu\n", "needs: \"tpu\"" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct corpus_expectation e;
        struct error err = { 0 };
        assert_int_equal(expect_of(rows[i].text, &e, &err), ERR_INPUT);
        if (!strstr(err.text, rows[i].why))
            fail_msg("row %zu: \"%s\" lacks \"%s\"", i, err.text, rows[i].why);
    }
}

/* --- whole corpora --- */

static char directory[64];

static void
put(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    for (char *slash = path + strlen(directory) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(path, 0755);
        *slash = '/';
    }
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int
make_directory(void **state)
{
    (void)state;
    strcpy(directory, "/tmp/test-corpus-XXXXXX");
    return mkdtemp(directory) ? 0 : -1;
}

static int
remove_directory(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", directory);
    return system(command);
}

static void
test_load(void **state)
{
    (void)state;
    struct corpus *c;
    struct error err = { 0 };

    put("tasks/relu.py", "# kind: scan\n# level: 2\n# dynamic_shapes: yes\n# entry: Net\nx = 1\n");
    put("tasks/big.py", "# needs: gpu\nx = 1\n");
    put("candidates/relu/honest.py", "# kind: honest\n# class: ok\nx = 2\n");
    put("candidates/relu/other.py", "# kind: honest\n# class: ok\n# policy: hybrid\n# entry: Mine\nx = 3\n");
    put("candidates/relu/answer.txt",
        "# kind: mistake\n# class: mismatch\n# why: wrong\nSure:\n```python\nx = 4\n```\n");
    put("candidates/relu/__pycache__/old.py", "not a candidate");
    assert_int_equal(corpus_load(directory, &c, &err), 0);
    assert_int_equal(c->n_tasks, 2);
    assert_string_equal(c->tasks[0].name, "big");
    assert_true(c->tasks[0].needs_gpu);
    assert_string_equal(c->tasks[0].kind, "other");
    assert_string_equal(c->tasks[1].kind, "scan");
    const json_t *registration = c->tasks[1].registration;
    assert_int_equal(json_integer_value(json_object_get(registration, "level")), 2);
    assert_true(json_is_true(json_object_get(registration, "dynamic_shapes")));
    assert_string_equal(json_string_value(json_object_get(registration, "entry_point")), "Net");
    assert_int_equal(c->n_candidates, 3);
    assert_string_equal(c->candidates[0].label, "relu/answer");
    assert_string_equal(c->candidates[0].what, "wrong");
    assert_string_equal(json_string_value(json_object_get(c->candidates[0].body, "completion")),
                        "Sure:\n```python\nx = 4\n```\n");
    assert_string_equal(json_string_value(json_object_get(c->candidates[2].body, "policy")), "hybrid");
    assert_int_equal(corpus_probe_of(c, 1), 1);
    assert_int_equal(corpus_probe_of(c, 0), -1);
    assert_int_equal(corpus_timed_task(c), -1);

    /* New bytes in the code, whether it stands alone or in an answer. */
    AUTO_JSON json_t *answer = corpus_fresh_body(&c->candidates[0], "n1");
    assert_string_equal(json_string_value(json_object_get(answer, "completion")),
                        "Sure:\n```python\n# n1\nx = 4\n```\n");
    AUTO_JSON json_t *candidate = corpus_fresh_body(&c->candidates[1], "n2");
    assert_string_equal(json_string_value(json_object_get(candidate, "candidate")),
                        "# kind: honest\n# class: ok\nx = 2\n\n# n2\n");
    corpus_free(c);

    put("candidates/big/some.py", "# kind: honest\n# class: ok\n");
    assert_int_equal(corpus_load(directory, &c, &err), 0);
    assert_int_equal(corpus_timed_task(c), 0);
    corpus_free(c);
}

static void
test_load_refuses(void **state)
{
    (void)state;
    struct corpus *c;
    struct error err = { 0 };

    assert_int_equal(corpus_load("/nowhere/at/all", &c, &err), ERR_SYS);
    assert_null(c);
    assert_non_null(strstr(err.text, "/nowhere/at/all/tasks"));

    put("tasks/relu.py", "");
    put("candidates/notes", "");
    assert_int_equal(corpus_load(directory, &c, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "no candidates there"));

    put("candidates/gelu/honest.py", "# kind: honest\n# class: ok\n");
    assert_int_equal(corpus_load(directory, &c, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "there is no tasks/gelu.py"));

    put("tasks/gelu.py", "# level: high\n");
    assert_int_equal(corpus_load(directory, &c, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "gelu.py: level: \"high\""));

    put("tasks/gelu.py", "# level: 1\n");
    put("candidates/gelu/honest.py", "# kind: honest\n# class: ok\n# x: \xff\n");
    assert_int_equal(corpus_load(directory, &c, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "candidates/gelu/honest.py"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header_ends_at_the_first_other_line),
        cmocka_unit_test(test_header_of_odd_files),
        cmocka_unit_test(test_header_refuses),
        cmocka_unit_test(test_expectation),
        cmocka_unit_test(test_expectation_refuses),
        cmocka_unit_test_setup_teardown(test_load, make_directory, remove_directory),
        cmocka_unit_test_setup_teardown(test_load_refuses, make_directory, remove_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
