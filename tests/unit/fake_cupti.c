/*
 * A libcupti for machines without one: it tells of one module and of whatever the test asks for, in the layout of
 * CUDA 12 and 13. test_evidence.py builds it as a shared library.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef void callback_fn(void *arg, int domain, uint32_t id, const void *data);
typedef void request_fn(uint8_t **buffer, size_t *size, size_t *most);
typedef void complete_fn(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t used);

int cuptiGetVersion(uint32_t *out);
int cuptiGetResultString(int result, const char **out);
int cuptiSubscribe(void **out, callback_fn *fn, void *arg);
int cuptiEnableCallback(uint32_t on, void *subscriber, int domain, uint32_t id);
int cuptiActivityRegisterCallbacks(request_fn *request, complete_fn *complete);
int cuptiActivityEnable(int kind);
int cuptiActivityDisable(int kind);
int cuptiActivityFlushAll(uint32_t flag);
int cuptiActivityGetNextRecord(uint8_t *buffer, size_t used, const void **record);
int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *out);
void fake_load_module(const void *image, size_t size);
void fake_kernel(const char *name, uint64_t start, uint64_t end);
void fake_copy(uint8_t kind, uint64_t bytes, uint64_t start, uint64_t end);

#define RECORD 168 /* CUpti_ActivityKernel9 and 10 are about as large */
#define MOST 20000

static callback_fn *callback;
static request_fn *request;
static complete_fn *complete;
static uint32_t enabled;
static uint8_t pending[MOST][RECORD];
static size_t n_pending;

int
cuptiGetVersion(uint32_t *out)
{
    *out = 999;
    return 0;
}

int
cuptiGetResultString(int result, const char **out)
{
    *out = result == 12 ? "CUPTI_ERROR_MAX_LIMIT_REACHED" : "CUPTI_ERROR_UNKNOWN";
    return 0;
}

int
cuptiSubscribe(void **out, callback_fn *fn, void *arg)
{
    (void)arg;
    callback = fn;
    *out = &callback;
    return 0;
}

int
cuptiEnableCallback(uint32_t on, void *subscriber, int domain, uint32_t id)
{
    (void)on;
    return subscriber == &callback && domain == 3 && id == 6 ? 0 : 1;
}

int
cuptiActivityRegisterCallbacks(request_fn *wanted, complete_fn *filled)
{
    request = wanted;
    complete = filled;
    return 0;
}

int
cuptiActivityEnable(int kind)
{
    enabled |= 1u << kind;
    return 0;
}

int
cuptiActivityDisable(int kind)
{
    enabled &= ~(1u << kind);
    return 0;
}

static void
put(uint8_t *record, size_t at, const void *data, size_t size)
{
    memcpy(record + at, data, size);
}

void
fake_load_module(const void *image, size_t size)
{
    struct {
        uint32_t id;
        size_t size;
        const void *image;
    } module = { 1, size, image };
    struct {
        void *context, *handle, *descriptor;
    } data = { NULL, NULL, &module };

    if (callback)
        callback(NULL, 3, 6, &data);
}

void
fake_kernel(const char *name, uint64_t start, uint64_t end)
{
    uint8_t *record = pending[n_pending];
    const uint32_t kind = 10, shape[6] = { 4, 2, 1, 128, 1, 1 }, correlation = 77, stream = 7;

    if (!(enabled & 1u << kind) || n_pending == MOST)
        return;
    memset(record, 0xa5, RECORD);
    put(record, 0, &kind, 4);
    put(record, 16, &start, 8);
    put(record, 24, &end, 8);
    put(record, 48, &stream, 4);
    put(record, 52, shape, sizeof(shape));
    put(record, 92, &correlation, 4);
    put(record, 104, &name, sizeof(name));
    n_pending++;
}

void
fake_copy(uint8_t copy_kind, uint64_t bytes, uint64_t start, uint64_t end)
{
    uint8_t *record = pending[n_pending];
    const uint32_t kind = 1, stream = 7;

    if (!(enabled & 1u << kind) || n_pending == MOST)
        return;
    memset(record, 0xa5, RECORD);
    put(record, 0, &kind, 4);
    put(record, 4, &copy_kind, 1);
    put(record, 8, &bytes, 8);
    put(record, 16, &start, 8);
    put(record, 24, &end, 8);
    put(record, 40, &stream, 4);
    n_pending++;
}

int
cuptiActivityFlushAll(uint32_t flag)
{
    (void)flag;
    for (size_t at = 0; at < n_pending;) {
        uint8_t *buffer = NULL;
        size_t size = 0, most = 0;
        request(&buffer, &size, &most);
        size_t n = size / RECORD < n_pending - at ? size / RECORD : n_pending - at;
        if (n == 0)
            return 1;
        memcpy(buffer, pending[at], n * RECORD);
        complete(NULL, 0, buffer, size, n * RECORD);
        at += n;
    }
    n_pending = 0;
    return 0;
}

int
cuptiActivityGetNextRecord(uint8_t *buffer, size_t used, const void **record)
{
    const uint8_t *next = *record ? (const uint8_t *)*record + RECORD : buffer;

    if (next + RECORD > buffer + used)
        return 12;
    *record = next;
    return 0;
}

int
cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *out)
{
    (void)context, (void)stream;
    *out = 0;
    return 0;
}
