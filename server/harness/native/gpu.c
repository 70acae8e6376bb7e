#include "server/harness/native/gpu.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/harness/native/driver.h"

/* A process of ours drives one GPU in its life, and its context cannot be handed from call to call through Python. */
static struct {
    const struct driver *d; /* NULL until harness_gpu_init() */
    int ordinal;
    cu_device device;
    struct cu_context *context;
    cu_ptr flush_at;
    uint64_t flush_bytes;
    struct cu_stream *canary_stream;
    struct cu_function *canary;
    cu_ptr canary_out;
    struct cu_function *pause;
    struct cu_function *gate;
    uint64_t *gate_word; /* in the host's memory: the number of the last gate that is open */
    uint64_t gates;
    struct cu_stream *gather_stream;
    struct cu_function *gather;
    cu_ptr gather_ptrs, gather_widths, gather_out;
    uint32_t gather_most, gather_n;
} gpu;

#define CHECK(call, what)                                     \
    do {                                                      \
        int check_code = driver_check(gpu.d, (call), (what)); \
        if (check_code != 0)                                  \
            return check_code;                                \
    } while (0)

static int
need_gpu(void)
{
    return gpu.d != NULL ? 0 : harness_fail(ENODEV, "no GPU was set up in this process");
}

#define NEED_GPU()           \
    do {                     \
        if (need_gpu() != 0) \
            return -ENODEV;  \
    } while (0)

/* --- device --- */

static int
use_device(const struct driver *d, int ordinal)
{
    int code = driver_check(d, d->init(0), "cuInit");

    if (code == 0)
        code = driver_check(d, d->device_get(&gpu.device, ordinal), "cuDeviceGet");
    if (code == 0)
        code = driver_check(d, d->primary_retain(&gpu.context, gpu.device), "cuDevicePrimaryCtxRetain");
    if (code == 0)
        code = driver_check(d, d->context_set(gpu.context), "cuCtxSetCurrent");
    return code;
}

int
harness_gpu_init(int ordinal)
{
    const struct driver *d = driver_open();
    int code;

    if (d == NULL)
        return -ENODEV;
    if (gpu.d != NULL && gpu.ordinal != ordinal)
        return harness_fail(EBUSY, "this process drives GPU %d, not %d", gpu.ordinal, ordinal);
    if (gpu.d != NULL)
        return driver_check(d, d->context_set(gpu.context), "cuCtxSetCurrent");
    code = use_device(d, ordinal);
    if (code != 0)
        return code;
    gpu.ordinal = ordinal;
    gpu.d = d;
    return 0;
}

static int
read_attribute(int attribute, int *out)
{
    char what[64];

    snprintf(what, sizeof(what), "cuDeviceGetAttribute %d", attribute);
    return driver_check(gpu.d, gpu.d->device_attribute(out, attribute, gpu.device), what);
}

int
harness_gpu_pci_bus_id(char *out, uint32_t cap)
{
    NEED_GPU();
    CHECK(gpu.d->device_pci(out, (int)cap, gpu.device), "cuDeviceGetPCIBusId");
    return 0;
}

/* --- arenas --- */

static struct cu_allocation
shareable_memory(void)
{
    struct cu_allocation what = { .type = CU_ALLOCATION_PINNED,
                                  .handle_types = CU_HANDLE_POSIX_FD,
                                  .location = { CU_LOCATION_DEVICE, gpu.device } };

    return what;
}

static int
map_handle(cu_handle handle, uint64_t size, uint64_t *ptr)
{
    struct cu_access access = { .location = { CU_LOCATION_DEVICE, gpu.device },
                                .flags = CU_ACCESS_READ_WRITE };
    cu_ptr at = 0;
    int code = driver_check(gpu.d, gpu.d->reserve(&at, size, 0, 0, 0), "cuMemAddressReserve");

    if (code != 0)
        return code;
    code = driver_check(gpu.d, gpu.d->map(at, size, 0, handle, 0), "cuMemMap");
    if (code == 0) {
        code = driver_check(gpu.d, gpu.d->set_access(at, size, &access, 1), "cuMemSetAccess");
        if (code != 0)
            gpu.d->unmap(at, size);
    }
    if (code != 0) {
        gpu.d->unreserve(at, size);
        return code;
    }
    *ptr = at;
    return 0;
}

static int
check_shareable(void)
{
    int has_virtual = 0, has_posix = 0;
    int code = read_attribute(CU_ATTRIBUTE_VIRTUAL_MEMORY, &has_virtual);

    if (code == 0)
        code = read_attribute(CU_ATTRIBUTE_POSIX_HANDLES, &has_posix);
    if (code == 0 && !(has_virtual && has_posix))
        code = harness_fail(
            ENOTSUP, "the GPU cannot share memory by descriptors (virtual memory %d, POSIX handles %d)",
            has_virtual, has_posix);
    return code;
}

int
harness_gpu_arena_create(uint64_t size, int *fd, uint64_t *ptr, uint64_t *actual, uint64_t *handle)
{
    struct cu_allocation what = shareable_memory();
    cu_handle made = 0;
    size_t unit = 0;
    int shared_fd = -1, code;

    NEED_GPU();
    if ((code = check_shareable()) != 0)
        return code;
    CHECK(gpu.d->granularity(&unit, &what, CU_GRANULARITY_RECOMMENDED), "cuMemGetAllocationGranularity");
    if (unit == 0 || size == 0 || size > INT64_MAX - unit)
        return harness_fail(EINVAL, "an arena of %llu bytes", (unsigned long long)size);
    size = (size + unit - 1) / unit * unit;
    CHECK(gpu.d->create(&made, size, &what, 0), "cuMemCreate");
    code = driver_check(gpu.d, gpu.d->export(&shared_fd, made, CU_HANDLE_POSIX_FD, 0),
                        "cuMemExportToShareableHandle");
    if (code == 0)
        code = map_handle(made, size, ptr);
    if (code != 0) {
        if (shared_fd >= 0)
            close(shared_fd);
        gpu.d->release(made);
        return code;
    }
    *fd = shared_fd;
    *actual = size;
    *handle = made;
    return 0;
}

int
harness_gpu_arena_import(int fd, uint64_t size, uint64_t *ptr, uint64_t *handle)
{
    cu_handle made = 0;
    int code;

    NEED_GPU();
    CHECK(gpu.d->import(&made, (void *)(uintptr_t)fd, CU_HANDLE_POSIX_FD), "cuMemImportFromShareableHandle");
    code = map_handle(made, size, ptr);
    if (code != 0) {
        gpu.d->release(made);
        return code;
    }
    *handle = made;
    return 0;
}

int
harness_gpu_arena_free(uint64_t ptr, uint64_t size, uint64_t handle)
{
    NEED_GPU();
    CHECK(gpu.d->unmap(ptr, size), "cuMemUnmap");
    CHECK(gpu.d->unreserve(ptr, size), "cuMemAddressFree");
    CHECK(gpu.d->release(handle), "cuMemRelease");
    return 0;
}

/* --- fills and copies --- */

int
harness_gpu_fill32(uint64_t ptr, uint32_t pattern, uint64_t bytes)
{
    NEED_GPU();
    if (ptr % 4 != 0 || bytes % 4 != 0)
        return harness_fail(EINVAL, "fill: address %llx and size %llu must be multiples of 4",
                            (unsigned long long)ptr, (unsigned long long)bytes);
    if (bytes != 0)
        CHECK(gpu.d->fill32(ptr, pattern, bytes / 4, NULL), "cuMemsetD32Async");
    return 0;
}

int
harness_gpu_copy(uint64_t to, uint64_t from, uint64_t bytes)
{
    NEED_GPU();
    if (bytes != 0)
        CHECK(gpu.d->copy(to, from, bytes, NULL), "cuMemcpyDtoDAsync");
    return 0;
}

int
harness_gpu_sync(void)
{
    NEED_GPU();
    CHECK(gpu.d->context_sync(), "cuCtxSynchronize");
    return 0;
}

int
harness_gpu_flush_setup(uint64_t bytes)
{
    int l2 = 0, code;

    NEED_GPU();
    if (gpu.flush_at != 0 && gpu.flush_bytes >= bytes)
        return 0;
    if (gpu.flush_at != 0)
        return harness_fail(EBUSY, "the flush buffer has %llu bytes already",
                            (unsigned long long)gpu.flush_bytes);
    code = read_attribute(CU_ATTRIBUTE_L2_BYTES, &l2);
    if (code != 0)
        return code;
    if (bytes == 0)
        bytes = 2 * (uint64_t)l2;
    if (bytes == 0 || bytes % 4 != 0)
        return harness_fail(EINVAL, "a flush buffer of %llu bytes", (unsigned long long)bytes);
    CHECK(gpu.d->mem_alloc(&gpu.flush_at, bytes), "cuMemAlloc of the flush buffer");
    gpu.flush_bytes = bytes;
    return 0;
}

int
harness_gpu_flush(void)
{
    NEED_GPU();
    if (gpu.flush_at == 0)
        return harness_fail(EINVAL, "harness_gpu_flush_setup() comes first");
    CHECK(gpu.d->reset_l2(), "cuCtxResetPersistingL2Cache");
    CHECK(gpu.d->fill32(gpu.flush_at, 0x5a5a5a5aU, gpu.flush_bytes / 4, NULL),
          "cuMemsetD32Async of the flush buffer");
    CHECK(gpu.d->stream_sync(NULL), "cuStreamSynchronize after the flush");
    return 0;
}

int
gpu_alloc(uint64_t bytes, uint64_t *out)
{
    const struct driver *d = driver_open();

    if (d == NULL)
        return -ENODEV;
    return driver_check(d, d->mem_alloc(out, bytes), "cuMemAlloc");
}

int
gpu_free(uint64_t at)
{
    const struct driver *d = driver_open();

    if (d == NULL)
        return -ENODEV;
    return driver_check(d, d->mem_free(at), "cuMemFree");
}

/* --- the canary --- */

/* A chain of dependent multiply-adds, in one warp: its time depends on the SM clock, and on having the GPU. */
static const char canary_ptx[] =
    ".version 7.0\n"
    ".target sm_70\n"
    ".address_size 64\n"
    ".visible .entry harness_canary(.param .u32 param_steps, .param .u64 param_out)\n"
    "{\n"
    "    .reg .pred %p<2>;\n"
    "    .reg .b32 %r<3>;\n"
    "    .reg .b64 %d<3>;\n"
    "    .reg .f32 %f<2>;\n"
    "    ld.param.u32 %r0, [param_steps];\n"
    "    ld.param.u64 %d0, [param_out];\n"
    "    mov.f32 %f0, 0f3F800000;\n"
    "    mov.f32 %f1, 0f3F7FFFFF;\n"
    "STEP:\n"
    "    fma.rn.f32 %f0, %f0, %f1, %f1;\n"
    "    fma.rn.f32 %f0, %f0, %f1, %f1;\n"
    "    fma.rn.f32 %f0, %f0, %f1, %f1;\n"
    "    fma.rn.f32 %f0, %f0, %f1, %f1;\n"
    "    fma.rn.f32 %f0, %f0, %f1, %f1;\n"
    "    fma.rn.f32 %f0, %f0, %f1, %f1;\n"
    "    fma.rn.f32 %f0, %f0, %f1, %f1;\n"
    "    fma.rn.f32 %f0, %f0, %f1, %f1;\n"
    "    sub.u32 %r0, %r0, 1;\n"
    "    setp.ne.u32 %p0, %r0, 0;\n"
    "    @%p0 bra STEP;\n"
    "    mov.u32 %r1, %tid.x;\n"
    "    mul.wide.u32 %d1, %r1, 4;\n"
    "    add.u64 %d2, %d0, %d1;\n"
    "    st.global.f32 [%d2], %f0;\n"
    "    ret;\n"
    "}\n";

#define CANARY_THREADS 32

int
harness_canary_setup(void)
{
    struct cu_module *module = NULL;
    struct cu_function *function = NULL;

    NEED_GPU();
    if (gpu.canary != NULL)
        return 0;
    CHECK(gpu.d->module_load(&module, canary_ptx), "cuModuleLoadData of the canary");
    CHECK(gpu.d->module_function(&function, module, "harness_canary"), "cuModuleGetFunction harness_canary");
    CHECK(gpu.d->stream_create(&gpu.canary_stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate of the canary");
    CHECK(gpu.d->mem_alloc(&gpu.canary_out, CANARY_THREADS * 4), "cuMemAlloc of the canary's slots");
    gpu.canary = function;
    return 0;
}

int
gpu_canary_start(uint32_t steps)
{
    void *arguments[] = { &steps, &gpu.canary_out };

    NEED_GPU();
    if (gpu.canary == NULL || steps == 0)
        return harness_fail(EINVAL, "a canary of %u steps; harness_canary_setup() comes first", steps);
    CHECK(gpu.d->launch(gpu.canary, 1, 1, 1, CANARY_THREADS, 1, 1, 0, gpu.canary_stream, arguments, NULL),
          "cuLaunchKernel of the canary");
    return 0;
}

int
gpu_canary_wait(void)
{
    CHECK(gpu.d->stream_sync(gpu.canary_stream), "cuStreamSynchronize of the canary");
    return 0;
}

int
harness_canary_run(uint32_t steps, int64_t *ns)
{
    int64_t started_ns = harness_now_ns();
    int code = gpu_canary_start(steps);

    if (code == 0)
        code = gpu_canary_wait();
    *ns = harness_now_ns() - started_ns;
    return code;
}

/* --- the pause --- */

/* One thread that reads the GPU's own clock, so that it takes the requested time at any SM clock. A read takes more
   than a nanosecond: a limit on the number of reads ends it, whatever that clock shows. */
static const char pause_ptx[] = ".version 7.0\n"
                                ".target sm_70\n"
                                ".address_size 64\n"
                                ".visible .entry harness_pause(.param .u64 param_ns)\n"
                                "{\n"
                                "    .reg .pred %p<2>;\n"
                                "    .reg .b64 %d<5>;\n"
                                "    ld.param.u64 %d0, [param_ns];\n"
                                "    mov.u64 %d1, %globaltimer;\n"
                                "    mov.u64 %d4, %d0;\n"
                                "LOOK:\n"
                                "    mov.u64 %d2, %globaltimer;\n"
                                "    sub.u64 %d3, %d2, %d1;\n"
                                "    sub.u64 %d4, %d4, 1;\n"
                                "    setp.lt.u64 %p0, %d3, %d0;\n"
                                "    setp.ne.and.u64 %p1, %d4, 0, %p0;\n"
                                "    @%p1 bra LOOK;\n"
                                "    ret;\n"
                                "}\n";

int
harness_pause_setup(void)
{
    struct cu_module *module = NULL;

    NEED_GPU();
    if (gpu.pause != NULL)
        return 0;
    CHECK(gpu.d->module_load(&module, pause_ptx), "cuModuleLoadData of the pause");
    CHECK(gpu.d->module_function(&gpu.pause, module, "harness_pause"), "cuModuleGetFunction harness_pause");
    return 0;
}

int
harness_pause(uint64_t ns)
{
    void *arguments[] = { &ns };

    NEED_GPU();
    if (gpu.pause == NULL || ns == 0)
        return harness_fail(EINVAL, "a pause of %llu ns; harness_pause_setup() comes first",
                            (unsigned long long)ns);
    CHECK(gpu.d->launch(gpu.pause, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL),
          "cuLaunchKernel of the pause");
    return 0;
}

/* --- the gate --- */

/* One thread that looks at a word in the host's memory, and at the GPU's own clock. */
static const char gate_ptx[] = ".version 7.0\n"
                               ".target sm_70\n"
                               ".address_size 64\n"
                               ".visible .entry harness_gate(\n"
                               "    .param .u64 param_ns, .param .u64 param_word, .param .u64 param_number)\n"
                               "{\n"
                               "    .reg .pred %p<2>;\n"
                               "    .reg .b64 %d<8>;\n"
                               "    ld.param.u64 %d0, [param_ns];\n"
                               "    ld.param.u64 %d1, [param_word];\n"
                               "    ld.param.u64 %d2, [param_number];\n"
                               "    mov.u64 %d3, %globaltimer;\n"
                               "    mov.u64 %d7, %d0;\n"
                               "LOOK:\n"
                               "    ld.volatile.u64 %d4, [%d1];\n"
                               "    mov.u64 %d5, %globaltimer;\n"
                               "    sub.u64 %d6, %d5, %d3;\n"
                               "    sub.u64 %d7, %d7, 1;\n"
                               "    setp.lt.u64 %p0, %d6, %d0;\n"
                               "    setp.ne.and.u64 %p0, %d7, 0, %p0;\n"
                               "    setp.lt.and.u64 %p1, %d4, %d2, %p0;\n"
                               "    @%p1 bra LOOK;\n"
                               "    ret;\n"
                               "}\n";

int
harness_gate_setup(void)
{
    struct cu_module *module = NULL;
    void *word = NULL;

    NEED_GPU();
    if (gpu.gate != NULL)
        return 0;
    CHECK(gpu.d->mem_alloc_host(&word, sizeof(*gpu.gate_word)), "cuMemAllocHost of the gate");
    gpu.gate_word = word;
    *gpu.gate_word = 0;
    CHECK(gpu.d->module_load(&module, gate_ptx), "cuModuleLoadData of the gate");
    CHECK(gpu.d->module_function(&gpu.gate, module, "harness_gate"), "cuModuleGetFunction harness_gate");
    return 0;
}

int
harness_gate(uint64_t most_ns)
{
    uint64_t number = gpu.gates + 1;
    void *arguments[] = { &most_ns, &gpu.gate_word, &number };

    NEED_GPU();
    if (gpu.gate == NULL || most_ns == 0)
        return harness_fail(EINVAL, "a gate of %llu ns; harness_gate_setup() comes first",
                            (unsigned long long)most_ns);
    CHECK(gpu.d->reset_l2(), "cuCtxResetPersistingL2Cache");
    CHECK(gpu.d->launch(gpu.gate, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL), "cuLaunchKernel of the gate");
    gpu.gates = number;
    return 0;
}

int
harness_gate_open(void)
{
    if (gpu.gate_word == NULL)
        return harness_fail(EINVAL, "harness_gate_setup() comes first");
    __atomic_store_n(gpu.gate_word, gpu.gates, __ATOMIC_RELEASE);
    return 0;
}

/* --- gather --- */

/* Volatile loads: the data were written by another process' context, and must come from L2 or beyond. */
static const char gather_ptx[] = ".version 7.0\n"
                                 ".target sm_70\n"
                                 ".address_size 64\n"
                                 ".visible .entry harness_gather(\n"
                                 "    .param .u64 param_ptrs, .param .u64 param_widths,\n"
                                 "    .param .u64 param_out, .param .u32 param_n)\n"
                                 "{\n"
                                 "    .reg .pred %p<5>;\n"
                                 "    .reg .b32 %r<7>;\n"
                                 "    .reg .b64 %d<10>;\n"
                                 "    mov.u32 %r0, %ctaid.x;\n"
                                 "    mov.u32 %r1, %ntid.x;\n"
                                 "    mov.u32 %r2, %tid.x;\n"
                                 "    mad.lo.u32 %r3, %r0, %r1, %r2;\n"
                                 "    ld.param.u32 %r4, [param_n];\n"
                                 "    setp.ge.u32 %p0, %r3, %r4;\n"
                                 "    @%p0 bra DONE;\n"
                                 "    ld.param.u64 %d0, [param_ptrs];\n"
                                 "    ld.param.u64 %d1, [param_widths];\n"
                                 "    ld.param.u64 %d2, [param_out];\n"
                                 "    mul.wide.u32 %d3, %r3, 8;\n"
                                 "    mul.wide.u32 %d4, %r3, 4;\n"
                                 "    add.u64 %d5, %d0, %d3;\n"
                                 "    ld.global.u64 %d6, [%d5];\n"
                                 "    add.u64 %d7, %d1, %d4;\n"
                                 "    ld.global.u32 %r5, [%d7];\n"
                                 "    add.u64 %d8, %d2, %d3;\n"
                                 "    setp.eq.u32 %p1, %r5, 1;\n"
                                 "    @%p1 bra BYTES1;\n"
                                 "    setp.eq.u32 %p2, %r5, 2;\n"
                                 "    @%p2 bra BYTES2;\n"
                                 "    setp.eq.u32 %p3, %r5, 4;\n"
                                 "    @%p3 bra BYTES4;\n"
                                 "    ld.volatile.global.u64 %d9, [%d6];\n"
                                 "    bra STORE;\n"
                                 "BYTES1:\n"
                                 "    ld.volatile.global.u8 %d9, [%d6];\n"
                                 "    bra STORE;\n"
                                 "BYTES2:\n"
                                 "    ld.volatile.global.u16 %d9, [%d6];\n"
                                 "    bra STORE;\n"
                                 "BYTES4:\n"
                                 "    ld.volatile.global.u32 %d9, [%d6];\n"
                                 "STORE:\n"
                                 "    st.global.u64 [%d8], %d9;\n"
                                 "DONE:\n"
                                 "    ret;\n"
                                 "}\n";

#define GATHER_BLOCK 128

int
harness_gather_setup(uint32_t most)
{
    struct cu_module *module = NULL;

    NEED_GPU();
    if (gpu.gather != NULL && most <= gpu.gather_most)
        return 0;
    if (gpu.gather != NULL || most == 0 || most > 1U << 20)
        return harness_fail(EINVAL, "a gather of %u elements; it was set up for %u", most, gpu.gather_most);
    CHECK(gpu.d->module_load(&module, gather_ptx), "cuModuleLoadData of the gather");
    CHECK(gpu.d->stream_create(&gpu.gather_stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate of the gather");
    CHECK(gpu.d->mem_alloc(&gpu.gather_ptrs, (size_t)most * 8), "cuMemAlloc of the gather's addresses");
    CHECK(gpu.d->mem_alloc(&gpu.gather_widths, (size_t)most * 4), "cuMemAlloc of the gather's widths");
    CHECK(gpu.d->mem_alloc(&gpu.gather_out, (size_t)most * 8), "cuMemAlloc of the gather's slots");
    CHECK(gpu.d->module_function(&gpu.gather, module, "harness_gather"),
          "cuModuleGetFunction harness_gather");
    gpu.gather_most = most;
    gpu.gather_n = 0;
    return 0;
}

int
harness_gather_set(const uint64_t *ptrs, const uint32_t *widths, uint32_t n)
{
    NEED_GPU();
    if (gpu.gather == NULL || n > gpu.gather_most)
        return harness_fail(EINVAL, "a gather of %u elements: it was set up for %u", n, gpu.gather_most);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t w = widths[i];
        if ((w != 1 && w != 2 && w != 4 && w != 8) || ptrs[i] % w != 0)
            return harness_fail(EINVAL, "gather: element %u: %u bytes at %llx", i, w,
                                (unsigned long long)ptrs[i]);
    }
    gpu.gather_n = 0;
    if (n != 0) {
        CHECK(gpu.d->copy_to_device(gpu.gather_ptrs, ptrs, (size_t)n * 8),
              "cuMemcpyHtoD of the gather's addresses");
        CHECK(gpu.d->copy_to_device(gpu.gather_widths, widths, (size_t)n * 4),
              "cuMemcpyHtoD of the gather's widths");
        /* Slots of an earlier gather must not pass for this one's. */
        CHECK(gpu.d->fill32(gpu.gather_out, 0xffffffffU, (size_t)n * 2, NULL),
              "cuMemsetD32Async of the slots");
        CHECK(gpu.d->stream_sync(NULL), "cuStreamSynchronize after the gather's set-up");
    }
    gpu.gather_n = n;
    return 0;
}

int
harness_gather_run(void)
{
    void *arguments[] = { &gpu.gather_ptrs, &gpu.gather_widths, &gpu.gather_out, &gpu.gather_n };
    unsigned blocks = (gpu.gather_n + GATHER_BLOCK - 1) / GATHER_BLOCK;

    if (gpu.gather_n == 0)
        return 0;
    CHECK(gpu.d->launch(gpu.gather, blocks, 1, 1, GATHER_BLOCK, 1, 1, 0, gpu.gather_stream, arguments, NULL),
          "cuLaunchKernel of the gather");
    CHECK(gpu.d->stream_sync(gpu.gather_stream), "cuStreamSynchronize of the gather");
    return 0;
}

int
harness_gather_read(uint64_t *out, uint32_t n)
{
    if (n > gpu.gather_n)
        return harness_fail(EINVAL, "gather: %u elements asked for, %u were gathered", n, gpu.gather_n);
    if (n != 0)
        CHECK(gpu.d->copy_to_host(out, gpu.gather_out, (size_t)n * 8), "cuMemcpyDtoH of the gather's slots");
    return 0;
}
