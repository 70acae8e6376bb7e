/*
 * driver.h - the part of the CUDA driver API that is used here, opened at run time.
 *
 * Our own declarations, since the machine that builds this has no CUDA headers. Names, argument orders and structure
 * layouts are the driver's ABI: entry points that changed are asked for by the versioned symbol that has kept its
 * meaning ("_v2").
 */
#ifndef HARNESS_DRIVER_H
#define HARNESS_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef int cu_result;
typedef int cu_device;
typedef uint64_t cu_ptr;
typedef unsigned long long cu_handle;
struct cu_context;
struct cu_module;
struct cu_function;
struct cu_stream;

#define CU_ERROR_OUT_OF_MEMORY 2
#define CU_ATTRIBUTE_SM_COUNT 16
#define CU_ATTRIBUTE_L2_BYTES 38
#define CU_ATTRIBUTE_SHARED_MOST 97
#define CU_ATTRIBUTE_VIRTUAL_MEMORY 102
#define CU_ATTRIBUTE_POSIX_HANDLES 103
#define CU_STREAM_NON_BLOCKING 1
#define CU_ALLOCATION_PINNED 1
#define CU_LOCATION_DEVICE 1
#define CU_HANDLE_POSIX_FD 1
#define CU_ACCESS_READ_WRITE 3
#define CU_GRANULARITY_RECOMMENDED 1
#define CU_FUNCTION_LOCAL_BYTES 3
#define CU_FUNCTION_DYNAMIC_MOST 8
#define CU_FUNCTION_LARGE_CLUSTER 14
#define CU_CACHE_PREFER_SHARED 1
#define CU_LAUNCH_COOPERATIVE 2
#define CU_LAUNCH_CLUSTER 4
#define CU_LAUNCH_CLUSTER_POLICY 5
#define CU_LAUNCH_OVERLAPPING 6
#define CU_CLUSTER_SPREAD 1
#define CU_TENSOR_L2_128 2

struct cu_location {
    int type;
    int id;
};

struct cu_allocation {
    int type;
    int handle_types;
    struct cu_location location;
    void *windows_only;
    struct {
        unsigned char compression;
        unsigned char rdma;
        unsigned short usage;
        unsigned char reserved[4];
    } flags;
};

struct cu_access {
    struct cu_location location;
    int flags;
};

struct cu_launch_attribute {
    int id;
    char pad[4];
    union {
        char bytes[64];
        unsigned word;
        unsigned cluster[3];
    } value;
};

struct cu_launch_config {
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
    struct cu_stream *stream;
    struct cu_launch_attribute *attributes;
    unsigned n;
};

_Static_assert(sizeof(struct cu_launch_attribute) == 72, "CUlaunchAttribute");
_Static_assert(sizeof(struct cu_launch_config) == 56, "CUlaunchConfig");
_Static_assert(sizeof(struct cu_allocation) == 32, "CUmemAllocationProp");
_Static_assert(sizeof(struct cu_access) == 12, "CUmemAccessDesc");

/* X(member, symbol, arguments) */
#define CU_CALLS(X)                                                                                          \
    X(init, "cuInit", (unsigned flags))                                                                      \
    X(error_name, "cuGetErrorName", (cu_result code, const char **out))                                      \
    X(error_string, "cuGetErrorString", (cu_result code, const char **out))                                  \
    X(device_get, "cuDeviceGet", (cu_device * out, int ordinal))                                             \
    X(device_pci, "cuDeviceGetPCIBusId", (char *out, int size, cu_device device))                            \
    X(device_attribute, "cuDeviceGetAttribute", (int *out, int attribute, cu_device device))                 \
    X(primary_retain, "cuDevicePrimaryCtxRetain", (struct cu_context * *out, cu_device device))              \
    X(context_set, "cuCtxSetCurrent", (struct cu_context * context))                                         \
    X(context_sync, "cuCtxSynchronize", (void))                                                              \
    X(context_device, "cuCtxGetDevice", (cu_device * out))                                                   \
    X(reset_l2, "cuCtxResetPersistingL2Cache", (void))                                                       \
    X(mem_alloc, "cuMemAlloc_v2", (cu_ptr * out, size_t bytes))                                              \
    X(mem_free, "cuMemFree_v2", (cu_ptr at))                                                                 \
    X(mem_alloc_host, "cuMemAllocHost_v2", (void **out, size_t bytes))                                       \
    X(granularity, "cuMemGetAllocationGranularity",                                                          \
      (size_t * out, const struct cu_allocation *what, int option))                                          \
    X(create, "cuMemCreate",                                                                                 \
      (cu_handle * out, size_t size, const struct cu_allocation *what, unsigned long long zero))             \
    X(release, "cuMemRelease", (cu_handle handle))                                                           \
    X(export, "cuMemExportToShareableHandle",                                                                \
      (void *out, cu_handle handle, int type, unsigned long long zero))                                      \
    X(import, "cuMemImportFromShareableHandle", (cu_handle * out, void *os_handle, int type))                \
    X(reserve, "cuMemAddressReserve",                                                                        \
      (cu_ptr * out, size_t size, size_t alignment, cu_ptr wish, unsigned long long zero))                   \
    X(unreserve, "cuMemAddressFree", (cu_ptr at, size_t size))                                               \
    X(map, "cuMemMap", (cu_ptr at, size_t size, size_t offset, cu_handle handle, unsigned long long zero))   \
    X(unmap, "cuMemUnmap", (cu_ptr at, size_t size))                                                         \
    X(set_access, "cuMemSetAccess", (cu_ptr at, size_t size, const struct cu_access *access, size_t n))      \
    X(fill32, "cuMemsetD32Async", (cu_ptr at, unsigned pattern, size_t words, struct cu_stream *stream))     \
    X(copy, "cuMemcpyDtoDAsync_v2", (cu_ptr to, cu_ptr from, size_t bytes, struct cu_stream * stream))       \
    X(copy_to_device, "cuMemcpyHtoD_v2", (cu_ptr to, const void *from, size_t bytes))                        \
    X(copy_to_host, "cuMemcpyDtoH_v2", (void *to, cu_ptr from, size_t bytes))                                \
    X(stream_create, "cuStreamCreate", (struct cu_stream * *out, unsigned flags))                            \
    X(stream_sync, "cuStreamSynchronize", (struct cu_stream * stream))                                       \
    X(module_load, "cuModuleLoadData", (struct cu_module * *out, const void *image))                         \
    X(module_function, "cuModuleGetFunction",                                                                \
      (struct cu_function * *out, struct cu_module * module, const char *name))                              \
    X(module_unload, "cuModuleUnload", (struct cu_module * module))                                          \
    X(function_get, "cuFuncGetAttribute", (int *out, int attribute, struct cu_function *function))           \
    X(function_set, "cuFuncSetAttribute", (struct cu_function * function, int attribute, int value))         \
    X(function_cache, "cuFuncSetCacheConfig", (struct cu_function * function, int config))                   \
    X(launch_with, "cuLaunchKernelEx",                                                                       \
      (const struct cu_launch_config *config, struct cu_function *function, void **arguments, void **extra)) \
    X(tensor_map, "cuTensorMapEncodeTiled",                                                                  \
      (void *out, int type, uint32_t rank, void *address, const uint64_t *shape, const uint64_t *strides,    \
       const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int l2, int fill))           \
    X(launch, "cuLaunchKernel",                                                                              \
      (struct cu_function * function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,   \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, struct cu_stream *stream,                  \
       void **arguments, void **extra))

struct driver {
#define CU_MEMBER(member, symbol, arguments) cu_result(*member) arguments;
    CU_CALLS(CU_MEMBER)
#undef CU_MEMBER
};

/* The driver, opened once; NULL: harness_error() says why. Does not call cuInit. */
const struct driver *driver_open(void);

/* 0, or a negative errno (-ENOMEM when the GPU has no memory left, else -EIO) with "what: the driver's words". */
int driver_check(const struct driver *d, cu_result result, const char *what);

#endif
