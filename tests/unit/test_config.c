#include "server/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/auto.h"

struct place {
    char directory[32];
    char file[64];
};

static int
make_place(void **state)
{
    static struct place place;
    strcpy(place.directory, "/tmp/test-config-XXXXXX");
    if (!mkdtemp(place.directory))
        return -1;
    snprintf(place.file, sizeof(place.file), "%s/conf", place.directory);
    *state = &place;
    return 0;
}

static int
remove_place(void **state)
{
    struct place *place = *state;
    remove(place->file);
    return rmdir(place->directory);
}

static void
write_file(const struct place *place, const char *text)
{
    FILE *f = fopen(place->file, "w");
    assert_non_null(f);
    assert_int_equal(fputs(text, f) >= 0, 1);
    assert_int_equal(fclose(f), 0);
}

/* Up to three flags, NULL for none. */
static int
load(const char *a, const char *b, const char *c, struct config *out, struct error *err)
{
    char *argv[] = { "verifierd", (char *)(uintptr_t)a, (char *)(uintptr_t)b, (char *)(uintptr_t)c, NULL };
    int argc = 1;
    while (argv[argc])
        argc++;
    return config_load(argc, argv, out, err);
}

static void
defaults_are_whole(void **state)
{
    struct config c;
    struct error err;

    (void)state;
    assert_int_equal(load(NULL, NULL, NULL, &c, &err), 0);
    assert_int_equal(c.task, CONFIG_SERVE);
    assert_string_equal(c.listen, "127.0.0.1:8080");
    assert_false(c.allow_remote);
    assert_string_equal(c.device, "auto");
    assert_int_equal(c.stage_limit_ms, 60000);
    assert_int_equal(c.tiny_limit_ms, 10000);
    assert_int_equal(c.max_attempts, 3);
    assert_non_null(strstr(c.harness, "/lib/verifierd/harness"));
    assert_int_equal(c.harness[0], '/');
    assert_non_null(strstr(c.scratch, "/verifierd-"));
    assert_null(c.file);
    config_release(&c);
    config_release(&c);
}

/* A child has another working directory, and is refused a name that is not whole. */
static void
a_relative_scratch_starts_here(void **state)
{
    struct config c;
    struct error err;
    char here[4000], full[4096];

    (void)state;
    assert_non_null(getcwd(here, sizeof(here)));
    snprintf(full, sizeof(full), "%s/files/scratch", here);
    assert_int_equal(load("--scratch=files/scratch", NULL, NULL, &c, &err), 0);
    assert_string_equal(c.scratch, full);
    assert_false(c.is_scratch_ours);
    config_release(&c);
}

static void
a_store_has_a_scratch_of_its_own(void **state)
{
    struct config a, b, again;

    (void)state;
    assert_int_equal(load("--store=a.db", NULL, NULL, &a, NULL), 0);
    assert_int_equal(load("--store=b.db", NULL, NULL, &b, NULL), 0);
    assert_int_equal(load("--store=a.db", NULL, NULL, &again, NULL), 0);
    assert_string_not_equal(a.scratch, b.scratch);
    assert_string_equal(a.scratch, again.scratch);
    config_release(&a);
    config_release(&b);
    config_release(&again);
}

static void
flags_win_over_the_file_wherever_they_stand(void **state)
{
    struct place *place = *state;
    char flag[96];
    struct config c;

    write_file(place, "# a comment with \"one quote\nscratch = \"/a # b\\\"c\"\npool = 7\nqueue_limit=11 # "
                      "another = 3\nlisten = \"127.0.0.1:0\"\npaused = yes\n");
    snprintf(flag, sizeof(flag), "--config=%s", place->file);
    assert_int_equal(load("--pool=9", flag, "--paused=off", &c, NULL), 0);
    assert_int_equal(c.pool, 9);
    assert_int_equal(c.queue_limit, 11);
    assert_string_equal(c.scratch, "/a # b\"c");
    assert_string_equal(c.listen, "127.0.0.1:0");
    assert_false(c.paused);
    assert_string_equal(c.file, place->file);
    config_release(&c);
}

static void
bad_flags_are_named(void **state)
{
    static const char *const rows[][2] = {
        { "--pool=x", "--pool: pool is a whole number of processes, not \"x\"" },
        { "--pool=", "--pool: pool is a whole number" },
        { "--pool=1.5", "--pool: pool is a whole number" },
        { "--pool=0", "outside 1 to 64" },
        { "--pool=99999999999999999999", "whole number" },
        { "--wait-limit-s=-1", "--wait-limit-s: wait_limit_s is -1 seconds, outside 0" },
        { "--paused=maybe", "paused is true or false" },
        { "--log-level=warning", "one of \"error warn info debug\"" },
        { "--log-level=", "one of" },
        { "--log-level=error warn", "one of" },
        { "--store=", "store is empty" },
        { "--listen=8080", "ADDRESS:PORT" },
        { "--listen=127.0.0.1:", "ADDRESS:PORT" },
        { "--listen=127.0.0.1:65536", "ADDRESS:PORT" },
        { "--listen=127.0.0.1:80x", "ADDRESS:PORT" },
        { "--listen=:80", "ADDRESS:PORT" },
        { "--listen=localhost:80", "not an IPv4 or IPv6 address" },
        { "--listen=0.0.0.0:80", "allow_remote" },
        { "--peaks=write_gbs", "write_gbs needs a positive figure" },
        { "--peaks=write_gbs=0", "write_gbs needs a positive figure" },
        { "--peaks=write_gbs=4000,half_tflops=nan", "half_tflops needs a positive figure" },
        { "--peaks=write_gbs=4000;half_tflops=9", "write_gbs needs a positive figure" },
        { "--peaks=speed=4", "\"speed\" is none of write_gbs" },
        { "--listen=10.1.2.3:80", "allow_remote" },
        { "--listen=[::]:80", "allow_remote" },
        { "--device=gpu", "device is" },
        { "--device=cuda:", "device is" },
        { "--device=cuda:0,", "device is" },
        { "--device=cuda:a", "device is" },
        { "--target=cuda:9,0", "target is" },
        { "--target=cuda:12", "target is cuda:N with N one of 70" },
        { "--target=cuda:", "target is" },
        { "--memory-limit-bytes=536870911", "536870912" },
        { "--uid-first=4294967294", "last user id" },
        { "--timing-cores=1", "timing_cores is 3 or more" },
        { "--timing-cores=2", "timing_cores is 3 or more" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct config c;
        struct error err;
        if (load(rows[i][0], NULL, NULL, &c, &err) != ERR_INPUT || !strstr(err.text, rows[i][1]))
            fail_msg("%s: %s", rows[i][0], err.text);
        assert_null(c.listen);
    }
}

static void
good_flags_are_taken(void **state)
{
    static const char *const rows[] = { "--listen=[::1]:0", "--listen=127.9.9.9:0", "--device=cuda:0,12",
                                        "--device=cuda",    "--device=cpu",         "--target=cuda:100",
                                        "--paused",         "--paused=ON" };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct config c;
        struct error err = { 0 };
        if (load(rows[i], NULL, NULL, &c, &err) != 0)
            fail_msg("%s: %s", rows[i], err.text);
        assert_int_equal(c.paused, strstr(rows[i], "paused") != NULL);
        config_release(&c);
    }
    struct config c;
    assert_int_equal(load("--listen=0.0.0.0:1", "--allow-remote", "--check-config", &c, NULL), 0);
    assert_int_equal(c.task, CONFIG_CHECK);
    config_release(&c);
}

static void
bad_files_are_refused_with_their_line(void **state)
{
    static const char *const rows[][2] = {
        { "pool = many\n", ":1:8: pool is a whole number" },
        { "\n# x\npool = 0\n", ":3:8: pool is 0" },
        { "pool = 1\n\n pool = 1\n", ":3:2: pool is set a second time" },
        { "# a\n# b\npool = 1 # c\npaused = 2", ":4:10: paused is" },
        { "pool = 1*\n", ":1:8: pool is a whole number of processes, not \"1*\"" },
        { "// x\n", ":1:1: the name of a setting is expected; a comment begins with #" },
        { "store = ${HOME}\n", ":1:9: nothing is taken from the environment" },
        { "\nstore = \"${HOME}\"\n", ":2:9: nothing is taken from the environment" },
        { "pool = 1 2\n", ":1:10: only a comment (#) may follow; a value with blanks stands in quotes" },
        { "pool = 1'2'\n", ":1:9: only a comment" },
        { "store = 'a'b\n", ":1:12: only a comment" },
        { "pol = 1\n", ":1:1: \"pol\" is not a setting" },
        { "pool\n= {1}\n", ":1:5: = is expected after pool" },
        { "pool =\n", ":1:7: a value is missing" },
        { "pool = # 1\n", ":1:8: a value is missing" },
        { "store = ''\n", ":1:9: store is empty" },
        { "pool = 1 }\n", ":1:10: only a comment" },
        { "store = \"a\\n\"\n", ":1:11: in double quotes, a backslash stands before" },
        { "scratch = \"unfinished\n\"", ":1:11: a quote is never closed" },
        { "scratch = 'unfinished\n", ":1:11: a quote is never closed" },
        { "pool = 1\n\001\n", ":2:1: a control character" },
    };
    struct place *place = *state;
    char flag[96];

    snprintf(flag, sizeof(flag), "--config=%s", place->file);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct config c;
        struct error err;
        char expect[128];
        write_file(place, rows[i][0]);
        snprintf(expect, sizeof(expect), "%s%s", place->file, rows[i][1]);
        if (load(flag, NULL, NULL, &c, &err) != ERR_INPUT || strncmp(err.text, expect, strlen(expect)) != 0)
            fail_msg("%s: %s", rows[i][0], err.text);
    }
    remove(place->file);
    struct config c;
    struct error err;
    assert_int_equal(load(flag, NULL, NULL, &c, &err), ERR_SYS);
    assert_non_null(strstr(err.text, place->file));
}

static void
a_file_of_any_bytes_is_refused(void **state)
{
    struct place *place = *state;
    char flag[96];
    struct config c;
    struct error err;
    FILE *f = fopen(place->file, "w");

    assert_non_null(f);
    assert_int_equal(fwrite("pool = 1\0\npool = 2", 1, 19, f), 19);
    assert_int_equal(fclose(f), 0);
    snprintf(flag, sizeof(flag), "--config=%s", place->file);
    assert_int_equal(load(flag, NULL, NULL, &c, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, ":1:9: a control character"));
    assert_int_equal(load("--config=/dev/zero", NULL, NULL, &c, &err), ERR_INPUT);
    assert_string_equal(err.text, "/dev/zero: has more than 1048576 bytes");
}

static void
values_in_quotes_are_taken_as_they_are(void **state)
{
    static const char *const rows[][2] = {
        { "scratch = '/a \"b\" ${c} \\n'\n", "/a \"b\" ${c} \\n" },
        { "\t scratch=\"/it's \\\\ \\\"x\\\"\"\t# \"y\n", "/it's \\ \"x\"" },
        { "scratch = /a#b", "/a" },
        { "scratch = /a \r\n\r\npool = 3\r\n", "/a" },
    };
    struct place *place = *state;
    char flag[96];

    snprintf(flag, sizeof(flag), "--config=%s", place->file);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct config c;
        struct error err = { 0 };
        write_file(place, rows[i][0]);
        if (load(flag, NULL, NULL, &c, &err) != 0)
            fail_msg("%s: %s", rows[i][0], err.text);
        assert_string_equal(c.scratch, rows[i][1]);
        config_release(&c);
    }
}

/* Whoever has one in a file or a script learns what to do instead, and not that the daemon does not know the word. */
static void
a_removed_setting_is_refused_with_what_to_do(void **state)
{
    static const char *const rows[][2] = {
        { "connections_per_address", "limit_conn)" },        { "connections_per_stranger", "limit_conn)" },
        { "device_jobs", "one submission at a time" },       { "pool_min", "pool is the number of children" },
        { "pool_idle_s", "pool is the number of children" }, { "pool_memory_percent", "about 715 MB" },
    };
    struct place *place = *state;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char flag[96], text[96], expect[160];
        struct config c;
        struct error err;

        snprintf(text, sizeof(text), "pool = 3\n%s = 5\n", rows[i][0]);
        write_file(place, text);
        snprintf(flag, sizeof(flag), "--config=%s", place->file);
        assert_int_equal(load(flag, NULL, NULL, &c, &err), ERR_INPUT);
        snprintf(expect, sizeof(expect), "%s:2:1: %s is not a setting any more: ", place->file, rows[i][0]);
        if (strncmp(err.text, expect, strlen(expect)) != 0 || !strstr(err.text, rows[i][1]))
            fail_msg("%s", err.text);
        snprintf(flag, sizeof(flag), "--%s=5", rows[i][0]);
        for (char *p = flag; *p; p++)
            *p = *p == '_' ? '-' : *p;
        assert_int_equal(load(flag, NULL, NULL, &c, &err), ERR_INPUT);
        if (!strstr(err.text, "is not a setting any more: ") || !strstr(err.text, rows[i][1]))
            fail_msg("%s", err.text);
    }
}

static void
note_name(void *arg, const char *name)
{
    strcat(arg, name);
    strcat(arg, " ");
}

static void
a_reload_takes_what_is_live_and_names_the_rest(void **state)
{
    struct config c, now;
    char told[128] = "";

    (void)state;
    assert_int_equal(load("--wait-limit-s=5", "--log-level=info", NULL, &c, NULL), 0);
    assert_int_equal(load("--wait-limit-s=6", "--log-level=debug", "--listen=127.0.0.1:9", &now, NULL), 0);
    const char *listen = c.listen;
    assert_int_equal(config_adopt(&c, &now, note_name, told), 1);
    config_release(&now);
    assert_string_equal(told, "listen ");
    assert_int_equal(c.wait_limit_s, 6);
    assert_string_equal(c.log_level, "debug");
    assert_ptr_equal(c.listen, listen);
    config_release(&c);
}

static void
the_tokens_lie_beside_the_store(void **state)
{
    struct config c;

    (void)state;
    assert_int_equal(load("--store=/a/b.db", NULL, NULL, &c, NULL), 0);
    assert_string_equal(c.tokens, "/a/b.db.tokens");
    assert_true(config_is_loopback(&c));
    config_release(&c);
    assert_int_equal(load("--tokens=/c", "--listen=0.0.0.0:1", "--allow-remote", &c, NULL), 0);
    assert_string_equal(c.tokens, "/c");
    assert_false(config_is_loopback(&c));
    config_release(&c);
    assert_int_equal(load("--listen=[::1]:1", NULL, NULL, &c, NULL), 0);
    assert_true(config_is_loopback(&c));
    config_release(&c);
}

static void
addresses_are_split(void **state)
{
    char host[CONFIG_HOST_SIZE];
    uint16_t port;

    (void)state;
    assert_int_equal(config_split_listen("127.0.0.1:65535", host, &port, NULL), 0);
    assert_string_equal(host, "127.0.0.1");
    assert_int_equal(port, 65535);
    assert_int_equal(config_split_listen("[fe80::1]:0", host, &port, NULL), 0);
    assert_string_equal(host, "fe80::1");
    assert_int_equal(port, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_whole),
        cmocka_unit_test(a_relative_scratch_starts_here),
        cmocka_unit_test(a_store_has_a_scratch_of_its_own),
        cmocka_unit_test_setup_teardown(flags_win_over_the_file_wherever_they_stand, make_place,
                                        remove_place),
        cmocka_unit_test(bad_flags_are_named),
        cmocka_unit_test(good_flags_are_taken),
        cmocka_unit_test_setup_teardown(bad_files_are_refused_with_their_line, make_place, remove_place),
        cmocka_unit_test_setup_teardown(a_file_of_any_bytes_is_refused, make_place, remove_place),
        cmocka_unit_test_setup_teardown(values_in_quotes_are_taken_as_they_are, make_place, remove_place),
        cmocka_unit_test_setup_teardown(a_removed_setting_is_refused_with_what_to_do, make_place,
                                        remove_place),
        cmocka_unit_test(a_reload_takes_what_is_live_and_names_the_rest),
        cmocka_unit_test(the_tokens_lie_beside_the_store),
        cmocka_unit_test(addresses_are_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
