#include "server/workers/devices.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/auto.h"

static cpu_set_t
first(int n)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < n; i++)
        CPU_SET(i, &set);
    return set;
}

/* threads of one core are `apart` from each other, two to a core; 0: one each. */
static void
topology(int core_of[CPU_SETSIZE], int apart)
{
    for (int i = 0; i < CPU_SETSIZE; i++)
        core_of[i] = apart > 0 ? i % apart : i;
}

static void
cores_are_split(void **state)
{
    static const struct {
        int have, apart, gpus, per_gpu, each, rest;
    } rows[] = {
        { 16, 0, 1, -1, 3, 13 }, { 16, 0, 4, -1, 3, 4 },   { 16, 0, 5, -1, 0, 16 }, { 5, 0, 1, -1, 3, 2 },
        { 4, 0, 1, -1, 0, 4 },   { 1, 0, 1, -1, 0, 1 },    { 16, 0, 1, 0, 0, 16 },  { 16, 0, 1, 5, 5, 11 },
        { 16, 0, 1, 15, 15, 1 }, { 16, 0, 1, 16, -1, 16 }, { 16, 0, 2, 8, -1, 16 }, { 16, 8, 2, 4, 4, 8 },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int core_of[CPU_SETSIZE];
        cpu_set_t have = first(rows[i].have), kept[8], all;
        topology(core_of, rows[i].apart);
        assert_int_equal(cores_split(&have, core_of, (size_t)rows[i].gpus, rows[i].per_gpu, kept),
                         rows[i].each);
        assert_int_equal(CPU_COUNT(&have), rows[i].rest);
        all = have;
        for (int g = 0; g < rows[i].gpus && rows[i].each > 0; g++) {
            cpu_set_t both;
            assert_int_equal(CPU_COUNT(&kept[g]), rows[i].each);
            CPU_AND(&both, &all, &kept[g]);
            assert_int_equal(CPU_COUNT(&both), 0);
            CPU_OR(&all, &all, &kept[g]);
        }
    }
}

static void
both_threads_of_a_core_go_together(void **state)
{
    int core_of[CPU_SETSIZE];
    cpu_set_t have = first(16), kept[1];
    (void)state;
    topology(core_of, 8); /* 0 and 8, 1 and 9, ... */
    assert_int_equal(cores_split(&have, core_of, 1, 4, kept), 4);
    assert_true(CPU_ISSET(15, kept) && CPU_ISSET(7, kept) && CPU_ISSET(14, kept) && CPU_ISSET(6, kept));
}

static void
devices_are_named(void **state)
{
    static const struct {
        const char *setting, *visible;
        int gpus;
        const char *why;
        size_t n;
    } rows[] = {
        { "cpu", NULL, 0, NULL, 1 },
        { "cpu", NULL, 4, NULL, 1 },
        { "auto", NULL, 0, NULL, 1 },
        { "auto", NULL, 4, NULL, 4 },
        { "cuda", NULL, 4, NULL, 4 },
        { "cuda", NULL, 0, "device \"cuda\", and there is no GPU here", 0 },
        { "cuda:0", NULL, 1, NULL, 1 },
        { "cuda:1,3", NULL, 4, NULL, 2 },
        { "cuda:0", NULL, 0, "device \"cuda:0\", and there is no GPU here", 0 },
        { "cuda:9", NULL, 1, "device \"cuda:9\", and there is only cuda:0 here", 0 },
        { "cuda:1,4", NULL, 4, "device \"cuda:1,4\", and there are only cuda:0 to cuda:3 here", 0 },
        { "cuda:", NULL, 4, "device \"cuda:\" is not like cuda:0,1", 0 },
        { "cuda:1,", NULL, 4, "device \"cuda:1,\" is not like cuda:0,1", 0 },
        { "cuda:300", NULL, 4, "device \"cuda:300\" is not like cuda:0,1", 0 },
        { "auto", "1,3", 4, NULL, 2 },
        { "cuda", "2", 4, NULL, 1 },
        { "auto", "", 4, NULL, 1 },
        { "cuda", "", 4, "device \"cuda\", and there is no GPU here", 0 },
        { "cuda:0,1", "3", 4, NULL, 2 },
        { "cpu", "3", 4, NULL, 1 },
        { "auto", "4", 4, "device \"cuda:4\", and there are only cuda:0 to cuda:3 here", 0 },
        { "auto", "GPU-8932f937", 4,
          "device \"auto\", and CUDA_VISIBLE_DEVICES is not like 0,1: name devices as cuda:0,1", 0 },
        { "cpu:0,1", NULL, 0, NULL, 2 },
        { "cpu:0,1", "3", 4, NULL, 2 },
        { "cpu:0,x", NULL, 0, "device \"cpu:0,x\" is not like cpu:0,1", 0 },
        { "gpu", NULL, 4, "device \"gpu\" is none of auto, cpu, cpu:0,1, cuda, cuda:0,1", 0 },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct devices devices;
        struct error err = { 0 };
        int rc = devices_name(rows[i].setting, rows[i].visible, rows[i].gpus, &devices, &err);
        assert_int_equal(rc, rows[i].why ? ERR_INPUT : 0);
        if (rows[i].why)
            assert_string_equal(err.text, rows[i].why);
        else
            assert_int_equal(devices.n, rows[i].n);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cores_are_split),
        cmocka_unit_test(both_threads_of_a_core_go_together),
        cmocka_unit_test(devices_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
