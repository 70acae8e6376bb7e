/* test_norms.c - whose norm is whose, and when it is kept, under a simulated clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/workers/norms.h"

#define START_MS (INT64_C(1700000100) * 1000)
#define USUAL 323000

static const struct norm_key key = { "GPU-1", "570", "chain" };

struct kept {
    int n;
    int64_t last_ns;
};

static void
keep_cb(void *arg, const struct norm_key *of, const struct norm *n)
{
    struct kept *kept = arg;

    assert_string_equal(of->gpu, "GPU-1");
    kept->n++;
    kept->last_ns = norm_ns(n);
}

static struct norms *
norms_of(struct kept *kept)
{
    struct norms *all = NULL;
    struct error err = { 0 };

    assert_int_equal(norms_new(kept ? keep_cb : NULL, kept, &all, &err), 0);
    return all;
}

static void
each_gpu_driver_and_kind_has_its_own(void **state)
{
    struct norms *all = norms_of(NULL);
    const struct norm_key others[] = { { "GPU-2", "570", "chain" },
                                       { "GPU-1", "580", "chain" },
                                       { "GPU-1", "570", "other" } };
    struct norm loaded = { .samples = { 7 }, .n_samples = 1 };
    struct error err = { 0 };

    (void)state;
    assert_null(norms_find(all, &key));
    assert_int_equal(norms_note(all, &key, START_MS, USUAL, true), NORM_STEADY);
    for (int64_t i = 0; i < 3; i++) {
        assert_null(norms_find(all, &others[i]));
        assert_int_equal(norms_note(all, &others[i], START_MS, (i + 2) * USUAL, true), NORM_STEADY);
    }
    for (int64_t i = 0; i < 3; i++)
        assert_int_equal(norm_ns(norms_find(all, &others[i])), (i + 2) * USUAL);
    assert_int_equal(norm_ns(norms_find(all, &key)), USUAL);
    assert_int_equal(norms_add(all, &key, &loaded, &err), 0);
    assert_int_equal(norm_ns(norms_find(all, &key)), 7);
    norms_free(all);
    norms_free(NULL);
}

static void
a_norm_is_kept_when_it_changes_and_only_then(void **state)
{
    struct kept kept = { 0 };
    struct norms *all = norms_of(&kept);

    (void)state;
    for (int i = 1; i <= NORM_SAMPLES; i++) {
        norms_note(all, &key, START_MS, USUAL, true);
        assert_int_equal(kept.n, i);
    }
    for (int i = 0; i < 100; i++)
        norms_note(all, &key, START_MS, i % 2 ? USUAL : USUAL * 2, true);
    assert_int_equal(kept.n, NORM_SAMPLES);
    norms_note(all, &key, START_MS, USUAL / 2, true);
    assert_int_equal(kept.n, NORM_SAMPLES + 1);
    assert_int_equal(kept.last_ns, USUAL / 2);
    norms_free(all);
}

static void
what_is_forgotten_is_learned_anew(void **state)
{
    struct kept gone = { 0 }, left = { 0 };
    struct norms *all = norms_of(NULL);
    const struct norm_key newer = { "GPU-1", "580", "chain" };

    (void)state;
    norms_note(all, &key, START_MS, USUAL, true);
    norms_note(all, &newer, START_MS, USUAL, true);
    norms_forget(all, "GPU-2", keep_cb, &gone);
    assert_int_equal(gone.n, 0);
    norms_each(all, keep_cb, &left);
    assert_int_equal(left.n, 2);
    norms_forget(all, "GPU-1", keep_cb, &gone);
    assert_int_equal(gone.n, 2);
    norms_each(all, keep_cb, &left);
    assert_int_equal(left.n, 2);
    assert_null(norms_find(all, &key));
    assert_int_equal(norms_note(all, &key, START_MS, 2 * USUAL, true), NORM_STEADY);
    assert_int_equal(norm_ns(norms_find(all, &key)), 2 * USUAL);
    norms_free(all);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_gpu_driver_and_kind_has_its_own),
        cmocka_unit_test(a_norm_is_kept_when_it_changes_and_only_then),
        cmocka_unit_test(what_is_forgotten_is_learned_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
