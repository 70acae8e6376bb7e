/* test_token.c - tokens in their file: made, found, expired, revoked, and files that are not to be believed. */
#include "server/token.h"

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
#include "common/clock.h"
#include "common/log.h"

struct place {
    char directory[32], file[64], lock[64];
};

static int
make_place(void **state)
{
    struct place *p = calloc(1, sizeof(*p));

    strcpy(p->directory, "/tmp/test-token-XXXXXX");
    if (!mkdtemp(p->directory))
        return -1;
    snprintf(p->file, sizeof(p->file), "%s/tokens", p->directory);
    snprintf(p->lock, sizeof(p->lock), "%s/tokens.lock", p->directory);
    *state = p;
    return 0;
}

static int
remove_place(void **state)
{
    struct place *p = *state;

    unlink(p->file);
    unlink(p->lock);
    int rc = rmdir(p->directory); /* a temporary file that was left would fail this */
    free(p);
    return rc;
}

static void
write_file(const struct place *p, const char *text)
{
    FILE *f = fopen(p->file, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(p->file, 0600), 0);
}

static void
make(const struct place *p, const char *name, unsigned scopes, int64_t expires_ms, char text[TOKEN_TEXT_SIZE])
{
    struct token row = { .scopes = scopes, .expires_ms = expires_ms, .client = "someone" };
    struct error err = { 0 };

    snprintf(row.name, sizeof(row.name), "%s", name);
    if (token_add(p->file, &row, text, &err) != 0)
        fail_msg("%s", err.text);
    assert_int_equal(err.code, ERR_NONE); /* that there was no file before is no error */
}

static void
scopes_are_words(void **state)
{
    unsigned scopes;
    char text[SCOPES_TEXT_SIZE];

    (void)state;
    assert_int_equal(scopes_parse("submit", &scopes, NULL), 0);
    assert_int_equal(scopes, SCOPE_SUBMIT);
    assert_int_equal(scopes_parse("admin,submit,read", &scopes, NULL), 0);
    assert_int_equal(scopes, SCOPE_ALL);
    scopes_text(SCOPE_ALL, text);
    assert_string_equal(text, "submit,read,admin");
    scopes_text(SCOPE_READ, text);
    assert_string_equal(text, "read");
    static const char *const bad[] = { "", ",", "submit,", "submi", "submitt", "Submit", "submit read", "*" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(scopes_parse(bad[i], &scopes, NULL), ERR_INPUT);
}

static void
names_are_plain(void **state)
{
    char longest[TOKEN_NAME_SIZE + 1];

    (void)state;
    memset(longest, 'a', sizeof(longest));
    longest[TOKEN_NAME_SIZE] = '\0';
    assert_false(token_name_is_valid(longest));
    longest[TOKEN_NAME_SIZE - 1] = '\0';
    assert_true(token_name_is_valid(longest));
    assert_true(token_name_is_valid("a.B_c-9"));
    static const char *const bad[] = { "", " ", "a b", "a\n", "ä", "a/b", "a\"" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(token_name_is_valid(bad[i]));
}

static void
a_token_is_found_by_its_secret_alone(void **state)
{
    const struct place *p = *state;
    char one[TOKEN_TEXT_SIZE], other[TOKEN_TEXT_SIZE];
    struct token_list list;
    struct stat status;

    make(p, "one", SCOPE_SUBMIT, 0, one);
    make(p, "other", SCOPE_READ | SCOPE_ADMIN, 0, other);
    assert_int_equal(strlen(one), TOKEN_TEXT_SIZE - 1);
    assert_memory_equal(one, "vd_", 3);
    assert_string_not_equal(one, other);
    assert_int_equal(stat(p->file, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);

    assert_int_equal(token_list_load(p->file, &list, NULL), 0);
    assert_int_equal(list.n, 2);
    const struct token *found = token_find(&list, other, clock_wall_ms());
    assert_non_null(found);
    assert_string_equal(found->name, "other");
    assert_string_equal(found->client, "someone");
    assert_int_equal(found->scopes, SCOPE_READ | SCOPE_ADMIN);
    assert_null(token_find(&list, "", 0));
    assert_null(token_find(&list, "vd_", 0));
    assert_null(token_find(&list, "other", 0));
    other[10] ^= 1;
    assert_null(token_find(&list, other, 0));
    one[TOKEN_TEXT_SIZE - 2] = '\0'; /* one character less */
    assert_null(token_find(&list, one, 0));
    token_list_release(&list);
}

/* Whoever reads the file has no token. */
static void
the_file_has_no_secret(void **state)
{
    const struct place *p = *state;
    char secret[TOKEN_TEXT_SIZE], text[4096] = "";

    make(p, "one", SCOPE_SUBMIT, 0, secret);
    FILE *f = fopen(p->file, "re");
    assert_non_null(f);
    assert_true(fread(text, 1, sizeof(text) - 1, f) > 0);
    fclose(f);
    secret[20] = '\0'; /* no part of it either */
    assert_null(strstr(text, secret + 3));
}

static void
an_expired_token_is_none(void **state)
{
    const struct place *p = *state;
    char text[TOKEN_TEXT_SIZE];
    struct token_list list;

    make(p, "one", SCOPE_SUBMIT, 1000, text);
    assert_int_equal(token_list_load(p->file, &list, NULL), 0);
    assert_non_null(token_find(&list, text, 999));
    assert_null(token_find(&list, text, 1000));
    token_list_release(&list);
}

static void
a_name_is_given_once_and_taken_back(void **state)
{
    const struct place *p = *state;
    char first[TOKEN_TEXT_SIZE], second[TOKEN_TEXT_SIZE];
    struct token again = { .name = "one", .client = "x", .scopes = SCOPE_READ };
    struct token_list list;
    struct error err = { 0 };

    assert_int_equal(token_revoke(p->file, "one", &err), ERR_NOTFOUND);
    make(p, "one", SCOPE_SUBMIT, 0, first);
    make(p, "two", SCOPE_SUBMIT, 0, second);
    assert_int_equal(token_add(p->file, &again, second, &err), ERR_CONFLICT);
    assert_int_equal(token_revoke(p->file, "three", &err), ERR_NOTFOUND);
    assert_int_equal(token_revoke(p->file, "one", &err), 0);
    assert_int_equal(token_list_load(p->file, &list, NULL), 0);
    assert_int_equal(list.n, 1);
    assert_string_equal(list.rows[0].name, "two");
    assert_null(token_find(&list, first, 0));
    token_list_release(&list);
    assert_int_equal(token_revoke(p->file, "two", &err), 0);
    assert_int_equal(token_list_load(p->file, &list, NULL), 0); /* the file stays, and nobody gets in */
    assert_int_equal(list.n, 0);
    token_list_release(&list);
}

#define HASH "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define ROW(name, scopes, hash)                                                                     \
    "{\"tokens\":[{\"name\":" name ",\"client\":\"c\",\"scopes\":" scopes ",\"hash\":\"" hash "\"," \
    "\"created_ms\":1,\"expires_ms\":0}]}"

static void
a_broken_file_is_refused(void **state)
{
    static const char *const bad[] = { "",
                                       "[]",
                                       "{}",
                                       "{\"tokens\":{}}",
                                       "{\"tokens\":[],\"more\":1}",
                                       "{\"tokens\":[],\"tokens\":[]}",
                                       "{\"tokens\":[1]}",
                                       ROW("\"a b\"", "[\"read\"]", HASH),
                                       ROW("1", "[\"read\"]", HASH),
                                       ROW("\"a\"", "[]", HASH),
                                       ROW("\"a\"", "[\"root\"]", HASH),
                                       ROW("\"a\"", "[4]", HASH),
                                       ROW("\"a\"", "[\"read\"]", ""),
                                       ROW("\"a\"", "[\"read\"]", HASH "00"),
                                       ROW("\"a\"", "[\"read\"]", "zz") };
    const struct place *p = *state;
    struct token_list list;
    struct keyring *k;
    struct error err = { 0 };

    write_file(p, ROW("\"a\"", "[\"read\"]", HASH));
    assert_int_equal(token_list_load(p->file, &list, &err), 0);
    token_list_release(&list);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        write_file(p, bad[i]);
        if (token_list_load(p->file, &list, &err) != ERR_INPUT)
            fail_msg("taken: %s", bad[i]);
        assert_non_null(strstr(err.text, p->file));
        assert_int_equal(keyring_new(p->file, &k, &err), ERR_INPUT);
    }
    write_file(p, ROW("\"a\"", "[\"read\"]", HASH));
    assert_int_equal(chmod(p->file, 0622), 0);
    assert_int_equal(token_list_load(p->file, &list, &err), ERR_INPUT);
}

static void
the_keyring_follows_the_file(void **state)
{
    const struct place *p = *state;
    char first[TOKEN_TEXT_SIZE], second[TOKEN_TEXT_SIZE];
    struct keyring *k;
    struct error err = { 0 };

    assert_int_equal(keyring_new(p->file, &k, &err), 0);
    assert_false(keyring_is_on(k));
    make(p, "first", SCOPE_SUBMIT, 0, first);
    keyring_refresh(k);
    assert_true(keyring_is_on(k));
    assert_non_null(keyring_find(k, first));
    make(p, "second", SCOPE_SUBMIT, 0, second);
    keyring_refresh(k);
    assert_non_null(keyring_find(k, first));
    assert_non_null(keyring_find(k, second));
    assert_int_equal(token_revoke(p->file, "first", &err), 0);
    keyring_refresh(k);
    assert_null(keyring_find(k, first));
    assert_non_null(keyring_find(k, second));
    keyring_free(k);
}

/* Neither a broken file nor a missing one opens the door. */
static void
the_keyring_keeps_what_it_had(void **state)
{
    const struct place *p = *state;
    char text[TOKEN_TEXT_SIZE];
    struct keyring *k;
    struct error err = { 0 };

    make(p, "one", SCOPE_SUBMIT, 0, text);
    assert_int_equal(keyring_new(p->file, &k, &err), 0);
    write_file(p, "{");
    keyring_refresh(k);
    assert_true(keyring_is_on(k));
    assert_non_null(keyring_find(k, text));
    unlink(p->file);
    keyring_refresh(k);
    assert_true(keyring_is_on(k));
    assert_non_null(keyring_find(k, text));
    write_file(p, "{\"tokens\":[]}");
    keyring_refresh(k);
    assert_true(keyring_is_on(k));
    assert_null(keyring_find(k, text));
    keyring_free(k);

    unlink(p->file);
    assert_int_equal(keyring_new(p->file, &k, &err), 0);
    write_file(p, "{");
    keyring_refresh(k);
    assert_true(keyring_is_on(k)); /* somebody meant to make tokens */
    keyring_free(k);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_place, remove_place)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(scopes_are_words),
        TEST(names_are_plain),
        TEST(a_token_is_found_by_its_secret_alone),
        TEST(the_file_has_no_secret),
        TEST(an_expired_token_is_none),
        TEST(a_name_is_given_once_and_taken_back),
        TEST(a_broken_file_is_refused),
        TEST(the_keyring_follows_the_file),
        TEST(the_keyring_keeps_what_it_had),
    };
    log_setup((enum log_level) - 1, LOG_FORMAT_TEXT); /* the refusals that are meant */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
