#include "common/hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The vectors of FIPS 180-2. */
static void
known_answers(void **state)
{
    char out[HASH_TEXT_SIZE];
    (void)state;
    hash_text("", 0, out);
    assert_string_equal(out, "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    hash_text("abc", 3, out);
    assert_string_equal(out, "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    char *million = malloc(1000000);
    assert_non_null(million);
    memset(million, 'a', 1000000);
    hash_text(million, 1000000, out);
    free(million);
    assert_string_equal(out, "sha256:cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* The first vectors that its authors publish (github.com/veorq/SipHash, vectors.h, 128 bits). */
static void
tags(void **state)
{
    char out[HASH_TAG_SIZE];
    (void)state;
    hash_tag("", 0, out);
    assert_string_equal(out, "a3817f04ba25a8e66df67214c7550293");
    hash_tag("\0", 1, out);
    assert_string_equal(out, "da87c1d86b99af44347659119b22fc45");
    hash_tag("\0\1", 2, out);
    assert_string_equal(out, "8177228da4a45dc7fca38bdef60affe4");
}

static void
random_numbers_use_every_bit(void **state)
{
    uint64_t ever_set = 0, ever_clear = 0, last = random_u64();
    (void)state;
    for (int i = 0; i < 200; i++) {
        uint64_t value = random_u64();
        assert_true(value != last); /* chance of a false alarm: 200 in 2^64 */
        ever_set |= value;
        ever_clear |= ~value;
        last = value;
    }
    assert_true(ever_set == UINT64_MAX);
    assert_true(ever_clear == UINT64_MAX);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(tags),
        cmocka_unit_test(random_numbers_use_every_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
