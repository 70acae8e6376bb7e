#include "server/harness/native/launch.h"

#include <errno.h>

#include "server/harness/native/driver.h"

#define SHARED_STATIC_MOST 49152
/* Clusters of more blocks than this run on some devices only, and must be asked for. */
#define CLUSTER_PORTABLE 8

/* Blocks get this much shared memory only where it was asked for before; the rest of it stays L1, as with Triton. */
static int
allow_shared(const struct driver *d, struct cu_function *function, uint32_t bytes)
{
    int code;

    if (bytes <= SHARED_STATIC_MOST)
        return 0;
    code = driver_check(d, d->function_cache(function, CU_CACHE_PREFER_SHARED), "prefer shared memory");
    if (code != 0)
        return code;
    return driver_check(d, d->function_set(function, CU_FUNCTION_DYNAMIC_MOST, (int)bytes),
                        "allow a kernel's shared memory");
}

int
harness_image_load(const void *image, const char *name, uint32_t shared_bytes, struct harness_image *out)
{
    const struct driver *d = driver_open();
    struct cu_module *module = NULL;
    struct cu_function *function = NULL;
    int code;

    if (d == NULL)
        return -ENODEV;
    code = driver_check(d, d->module_load(&module, image), "load a kernel's image");
    if (code != 0)
        return code;
    code = driver_check(d, d->module_function(&function, module, name), "find a kernel in its image");
    if (code == 0)
        code = allow_shared(d, function, shared_bytes);
    if (code == 0)
        code = driver_check(d, d->function_get(&out->spill_bytes, CU_FUNCTION_LOCAL_BYTES, function),
                            "read a kernel's local memory");
    if (code != 0) {
        d->module_unload(module);
        return code;
    }
    out->module = (uint64_t)(uintptr_t)module;
    out->function = (uint64_t)(uintptr_t)function;
    return 0;
}

int
harness_image_free(uint64_t module)
{
    const struct driver *d = driver_open();

    if (d == NULL)
        return -ENODEV;
    return driver_check(d, d->module_unload((struct cu_module *)(uintptr_t)module),
                        "unload a kernel's image");
}

static unsigned
fill_attributes(struct cu_launch_attribute *out, const struct harness_launch *how)
{
    unsigned n = 0;

    if (how->is_overlapping)
        out[n++] = (struct cu_launch_attribute){ .id = CU_LAUNCH_OVERLAPPING, .value.word = 1 };
    if (how->is_cooperative)
        out[n++] = (struct cu_launch_attribute){ .id = CU_LAUNCH_COOPERATIVE, .value.word = 1 };
    if (how->cluster > 1) {
        out[n++] =
            (struct cu_launch_attribute){ .id = CU_LAUNCH_CLUSTER, .value.cluster = { how->cluster, 1, 1 } };
        out[n++] =
            (struct cu_launch_attribute){ .id = CU_LAUNCH_CLUSTER_POLICY, .value.word = CU_CLUSTER_SPREAD };
    }
    return n;
}

int
harness_launch(const struct harness_launch *how, uint64_t stream, void **arguments, uint32_t n)
{
    const struct driver *d = driver_open();
    struct cu_function *function = (struct cu_function *)(uintptr_t)how->function;
    struct cu_launch_attribute attributes[4] = { 0 };
    struct cu_launch_config config = {
        .grid = { how->grid[0] * how->cluster, how->grid[1], how->grid[2] },
        .block = { how->threads, 1, 1 },
        .shared_bytes = how->shared_bytes,
        .stream = (struct cu_stream *)(uintptr_t)stream,
        .attributes = attributes,
    };
    int code;

    (void)n; /* the driver knows it from the image */
    if (d == NULL)
        return -ENODEV;
    config.n = fill_attributes(attributes, how);
    if (how->cluster > CLUSTER_PORTABLE) {
        code =
            driver_check(d, d->function_set(function, CU_FUNCTION_LARGE_CLUSTER, 1), "allow large clusters");
        if (code != 0)
            return code;
    }
    return driver_check(d, d->launch_with(&config, function, arguments, NULL), "launch a kernel");
}

int
harness_tensor_map(const struct harness_tensor_map *what, void *out)
{
    static const uint32_t steps[5] = { 1, 1, 1, 1, 1 };
    const struct driver *d = driver_open();

    if (d == NULL)
        return -ENODEV;
    if (what->rank < 1 || what->rank > 5)
        return harness_fail(EINVAL, "tensor map: rank %u is not 1 to 5", what->rank);
    return driver_check(d,
                        d->tensor_map(out, what->type, what->rank, (void *)(uintptr_t)what->address,
                                      what->shape, what->stride_bytes, what->box, steps, 0, what->swizzle,
                                      CU_TENSOR_L2_128, what->fill),
                        "describe a tensor to the memory accelerator");
}
