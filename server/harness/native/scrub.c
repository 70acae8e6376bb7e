#include "server/harness/native/scrub.h"

#include <errno.h>
#include <stdio.h>

#include "server/harness/native/driver.h"

#define THREADS 1024
/* The registers of a thread if 1,024 of them fill the register file, less those that the kernel itself needs. */
#define HELD 48
#define WAVES 4 /* so that each multiprocessor gets a block in any distribution */
#define TEXT_MAX 16384

static const char head[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n.extern .shared .align 16 .b8 all[];\n"
    ".visible .entry harness_scrub(.param .u32 param_bytes)\n.maxntid 1024, 1, 1\n{\n"
    "    .reg .pred %p<3>;\n    .reg .b32 %r<8>;\n    .reg .b32 %h<64>;\n"
    "    ld.param.u32 %r0, [param_bytes];\n    mov.u32 %r1, %tid.x;\n    shl.b32 %r2, %r1, 2;\n"
    "    mov.u32 %r3, all;\n    add.u32 %r5, %r3, %r2;\n    mov.u32 %r4, %r2;\n"
    "NEXT:\n    setp.ge.u32 %p0, %r4, %r0;\n    @%p0 bra FULL;\n    add.u32 %r6, %r3, %r4;\n"
    "    st.volatile.shared.u32 [%r6], 0;\n    add.u32 %r4, %r4, 4096;\n    bra NEXT;\nFULL:\n    bar.sync "
    "0;\n";
static const char tail[] =
    "    setp.eq.u32 %p1, %r7, 0;\n    @%p1 bra DONE;\n    st.volatile.shared.u32 [%r5], %r7;\n"
    "DONE:\n    ret;\n}\n";

/* All registers are read from zeroed shared memory before the first of them is used, so that all are live at once. */
static int
write_text(char *out, size_t size)
{
    size_t n = (size_t)snprintf(out, size, "%s", head);

    for (int i = 0; i < HELD && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "    ld.volatile.shared.u32 %%h%d, [%%r5];\n", i);
    if (n < size)
        n += (size_t)snprintf(out + n, size - n, "    bar.sync 0;\n    mov.u32 %%r7, 0;\n");
    for (int i = 0; i < HELD && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "    or.b32 %%r7, %%r7, %%h%d;\n", i);
    if (n < size)
        n += (size_t)snprintf(out + n, size - n, "%s", tail);
    return n < size ? 0 : harness_fail(E2BIG, "scrub: the kernel's text has more than %zu bytes", size);
}

static struct {
    struct cu_function *function; /* NULL until the first call */
    int bytes, blocks;
} scrub;

static int
attribute(const struct driver *d, int *out, int which, cu_device device)
{
    return driver_check(d, d->device_attribute(out, which, device), "cuDeviceGetAttribute");
}

static int
set_up(const struct driver *d)
{
    struct cu_module *module = NULL;
    struct cu_function *function = NULL;
    char text[TEXT_MAX];
    cu_device device = 0;
    int code = write_text(text, sizeof(text));

    if (code == 0)
        code = driver_check(d, d->context_device(&device), "cuCtxGetDevice");
    if (code == 0)
        code = attribute(d, &scrub.bytes, CU_ATTRIBUTE_SHARED_MOST, device);
    if (code == 0)
        code = attribute(d, &scrub.blocks, CU_ATTRIBUTE_SM_COUNT, device);
    if (code == 0)
        code = driver_check(d, d->module_load(&module, text), "load the scrubbing kernel");
    if (code == 0)
        code = driver_check(d, d->module_function(&function, module, "harness_scrub"),
                            "find the scrubbing kernel");
    if (code == 0)
        code = driver_check(d, d->function_set(function, CU_FUNCTION_DYNAMIC_MOST, scrub.bytes),
                            "allow the scrubbing kernel's shared memory");
    if (code == 0)
        scrub.function = function;
    return code;
}

int
harness_scrub(void)
{
    const struct driver *d = driver_open();
    void *arguments[] = { &scrub.bytes };
    int code;

    if (d == NULL)
        return -ENODEV;
    code = scrub.function == NULL ? set_up(d) : 0;
    if (code == 0)
        code = driver_check(d, d->reset_l2(), "cuCtxResetPersistingL2Cache");
    if (code != 0)
        return code;
    code = driver_check(d,
                        d->launch(scrub.function, (unsigned)scrub.blocks * WAVES, 1, 1, THREADS, 1, 1,
                                  (unsigned)scrub.bytes, NULL, arguments, NULL),
                        "launch the scrubbing kernel");
    return code != 0 ? code : driver_check(d, d->context_sync(), "wait for the scrubbing kernel");
}
