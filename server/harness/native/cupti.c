#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "server/harness/native/cupti.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/harness/native/harness.h"
#include "server/harness/native/sha256.h"

#define DOMAIN_RESOURCE 3
#define MODULE_LOADED 6
#define FLUSH_FORCED 1
#define END_OF_BUFFER 12 /* CUPTI_ERROR_MAX_LIMIT_REACHED */
#define BUFFER_BYTES (1 << 20)
#define BUFFER_ALIGN 8

_Static_assert(sizeof(struct cupti_head) == 32, "evidence.py reads it");
_Static_assert(sizeof(struct cupti_record) == 64, "evidence.py reads it");
_Static_assert(sizeof(struct cupti_module) == 40, "evidence.py reads it");

typedef int cupti_result;
struct cupti_subscriber;

/* --- the parts of CUPTI's records that all its versions share --- */

struct resource_data {
    void *context, *handle;
    const void *descriptor;
};

struct module_data {
    uint32_t id;
    size_t size;
    const void *image;
};

struct activity_kernel {
    uint32_t kind, settings, cache[2];
    uint64_t start, end, completed;
    uint32_t device, context, stream;
    int32_t grid[3], block[3], shared[2];
    uint32_t local_thread, local_total, correlation;
    int64_t grid_id;
    const char *name;
} __attribute__((packed, aligned(8)));

struct activity_memory { /* of a copy and of a fill alike */
    uint32_t kind;
    uint8_t copy_kind, more[3];
    uint64_t bytes, start, end;
    uint32_t device, context, stream, correlation;
} __attribute__((packed, aligned(8)));

_Static_assert(offsetof(struct activity_kernel, start) == 16, "CUpti_ActivityKernel4 and later");
_Static_assert(offsetof(struct activity_kernel, grid) == 52, "CUpti_ActivityKernel4 and later");
_Static_assert(offsetof(struct activity_kernel, correlation) == 92, "CUpti_ActivityKernel4 and later");
_Static_assert(offsetof(struct activity_kernel, name) == 104, "CUpti_ActivityKernel4 and later");
_Static_assert(offsetof(struct activity_memory, correlation) == 44,
               "CUpti_ActivityMemcpy, CUpti_ActivityMemset");

typedef void callback_fn(void *arg, int domain, uint32_t id, const void *data);
typedef void request_fn(uint8_t **buffer, size_t *size, size_t *most);
typedef void complete_fn(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t used);

/* X(member, symbol, arguments) */
#define CUPTI_CALLS(X)                                                                                    \
    X(get_version, "cuptiGetVersion", (uint32_t * out))                                                   \
    X(error_string, "cuptiGetResultString", (cupti_result result, const char **out))                      \
    X(subscribe, "cuptiSubscribe", (struct cupti_subscriber * *out, callback_fn * fn, void *arg))         \
    X(enable_callback, "cuptiEnableCallback",                                                             \
      (uint32_t on, struct cupti_subscriber * subscriber, int domain, uint32_t id))                       \
    X(register_buffers, "cuptiActivityRegisterCallbacks", (request_fn * request, complete_fn * complete)) \
    X(enable, "cuptiActivityEnable", (int kind))                                                          \
    X(disable, "cuptiActivityDisable", (int kind))                                                        \
    X(flush, "cuptiActivityFlushAll", (uint32_t flag))                                                    \
    X(next, "cuptiActivityGetNextRecord", (uint8_t * buffer, size_t used, const void **record))           \
    X(dropped, "cuptiActivityGetNumDroppedRecords", (void *context, uint32_t stream, size_t *out))

struct cupti_calls {
#define CUPTI_MEMBER(member, symbol, arguments) cupti_result(*member) arguments;
    CUPTI_CALLS(CUPTI_MEMBER)
#undef CUPTI_MEMBER
};

static const struct {
    const char *symbol;
    size_t offset;
} calls[] = {
#define CUPTI_ROW(member, symbol, arguments) { symbol, offsetof(struct cupti_calls, member) },
    CUPTI_CALLS(CUPTI_ROW)
#undef CUPTI_ROW
};

static const int kinds[] = { CUPTI_MEMCPY, CUPTI_MEMSET, CUPTI_KERNEL };

/* CUPTI knows one client for each process, as the driver does one process: so its state is the process' own. */
static struct cupti_calls cupti;
static struct cupti_subscriber *subscriber;
static int is_open, is_recording;
static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* of what follows: CUPTI calls back from threads of its own */
static struct {
    uint32_t n_records, n_modules, n_names, lost;
    struct cupti_record records[CUPTI_RECORDS_MAX];
    struct cupti_module modules[CUPTI_MODULES_MAX];
    struct cupti_name names[CUPTI_NAMES_MAX];
} * seen;

static int
check(cupti_result result, const char *what)
{
    const char *text = NULL;

    if (result == 0)
        return 0;
    cupti.error_string(result, &text);
    return harness_fail(EIO, "%s: %s (%d)", what, text ? text : "unknown", result);
}

/* --- finding it --- */

static int
take_symbols(void *library, const char *name)
{
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        void *found = dlsym(library, calls[i].symbol);
        if (found == NULL)
            return harness_fail(ENOSYS, "%s has no %s", name, calls[i].symbol);
        memcpy((char *)&cupti + calls[i].offset, &found, sizeof(found));
    }
    is_open = 1;
    return 0;
}

static void *
open_loaded(void)
{
    static const char *const names[] = { "libcupti.so.13", "libcupti.so.12", "libcupti.so" };
    void *library = NULL;

    for (size_t i = 0; library == NULL && i < sizeof(names) / sizeof(names[0]); i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_NOLOAD);
    return library;
}

static void *
open_path(const char *paths)
{
    char name[4096];

    while (*paths) {
        size_t length = strcspn(paths, ":");
        if (length > 0 && length < sizeof(name)) {
            memcpy(name, paths, length);
            name[length] = '\0';
            void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
            if (library)
                return library;
        }
        paths += length + (paths[length] == ':');
    }
    return NULL;
}

int
harness_cupti_open(const char *paths)
{
    if (is_open)
        return 0;
    void *library = open_loaded();
    if (library == NULL)
        library = open_path(paths);
    if (library == NULL)
        return harness_fail(ENOENT, "no libcupti is found");
    if (seen == NULL)
        seen = calloc(1, sizeof(*seen));
    if (seen == NULL)
        return harness_fail(ENOMEM, "no memory for records");
    return take_symbols(library, "libcupti");
}

uint32_t
harness_cupti_version(void)
{
    uint32_t version = 0;

    if (is_open)
        cupti.get_version(&version);
    return version;
}

/* --- what it tells --- */

static void
module_loaded(const struct module_data *module)
{
    struct cupti_module noted = { .size_bytes = module->size };

    if (module->image && module->size <= CUPTI_IMAGE_MAX)
        harness_sha256(module->image, module->size, noted.hash);
    pthread_mutex_lock(&lock);
    if (seen->n_modules < CUPTI_MODULES_MAX)
        seen->modules[seen->n_modules++] = noted;
    else
        seen->lost++;
    pthread_mutex_unlock(&lock);
}

static void
called_back(void *arg, int domain, uint32_t id, const void *data)
{
    const struct resource_data *resource = data;

    (void)arg;
    if (domain == DOMAIN_RESOURCE && id == MODULE_LOADED && resource && resource->descriptor)
        module_loaded(resource->descriptor);
}

/* Index of a name, noted where it is new; CUPTI_NAMES_MAX where there is no room. */
static uint32_t
name_index(const char *name)
{
    char cut[CUPTI_NAME_SIZE];

    snprintf(cut, sizeof(cut), "%s", name ? name : "");
    for (uint32_t i = 0; i < seen->n_names; i++)
        if (strcmp(seen->names[i].text, cut) == 0)
            return i;
    if (seen->n_names == CUPTI_NAMES_MAX)
        return CUPTI_NAMES_MAX;
    memcpy(seen->names[seen->n_names].text, cut, sizeof(cut));
    return seen->n_names++;
}

static void
note_record(const struct cupti_record *record)
{
    if (seen->n_records < CUPTI_RECORDS_MAX &&
        (record->kind != CUPTI_KERNEL || record->name < CUPTI_NAMES_MAX))
        seen->records[seen->n_records++] = *record;
    else
        seen->lost++;
}

static void
note_kernel(const struct activity_kernel *from)
{
    struct cupti_record record = { .kind = CUPTI_KERNEL,
                                   .name = name_index(from->name),
                                   .start_ns = from->start,
                                   .end_ns = from->end,
                                   .stream = from->stream,
                                   .correlation = from->correlation };

    for (int i = 0; i < 3; i++) {
        record.grid[i] = (uint32_t)from->grid[i];
        record.block[i] = (uint32_t)from->block[i];
    }
    note_record(&record);
}

static void
note_memory(const struct activity_memory *from)
{
    struct cupti_record record = { .kind = from->kind,
                                   .name = from->kind == CUPTI_MEMCPY ? from->copy_kind : 0,
                                   .start_ns = from->start,
                                   .end_ns = from->end,
                                   .bytes = from->bytes,
                                   .stream = from->stream,
                                   .correlation = from->correlation };

    note_record(&record);
}

static void
buffer_wanted(uint8_t **buffer, size_t *size, size_t *most)
{
    *buffer = aligned_alloc(BUFFER_ALIGN, BUFFER_BYTES);
    *size = *buffer ? BUFFER_BYTES : 0;
    *most = 0;
}

static void
buffer_filled(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t used)
{
    const void *record = NULL;
    size_t dropped = 0;
    cupti_result result = 0;

    (void)size;
    pthread_mutex_lock(&lock);
    while (used > 0 && (result = cupti.next(buffer, used, &record)) == 0) {
        uint32_t kind;
        memcpy(&kind, record, sizeof(kind));
        if (kind == CUPTI_KERNEL)
            note_kernel(record);
        else if (kind == CUPTI_MEMCPY || kind == CUPTI_MEMSET)
            note_memory(record);
    }
    seen->lost += used > 0 && result != END_OF_BUFFER;
    if (cupti.dropped(context, stream, &dropped) == 0)
        seen->lost += (uint32_t)dropped;
    pthread_mutex_unlock(&lock);
    free(buffer);
}

/* --- the calls --- */

int
harness_cupti_watch(void)
{
    if (!is_open)
        return harness_fail(EIO, "CUPTI is not open");
    if (subscriber)
        return 0;
    int rc = check(cupti.subscribe(&subscriber, called_back, NULL), "cuptiSubscribe");
    if (rc == 0)
        rc = check(cupti.enable_callback(1, subscriber, DOMAIN_RESOURCE, MODULE_LOADED),
                   "cuptiEnableCallback");
    return rc;
}

static int
begin(void)
{
    int rc = check(cupti.register_buffers(buffer_wanted, buffer_filled), "cuptiActivityRegisterCallbacks");

    pthread_mutex_lock(&lock);
    seen->n_records = seen->n_names = seen->lost = 0;
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; rc == 0 && i < sizeof(kinds) / sizeof(kinds[0]); i++)
        rc = check(cupti.enable(kinds[i]), "cuptiActivityEnable");
    is_recording = rc == 0;
    return rc;
}

static int
end(void)
{
    int rc = check(cupti.flush(FLUSH_FORCED), "cuptiActivityFlushAll");

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        int failed = check(cupti.disable(kinds[i]), "cuptiActivityDisable");
        rc = rc ? rc : failed;
    }
    is_recording = 0;
    return rc;
}

int
harness_cupti_record(int on)
{
    if (!is_open)
        return harness_fail(EIO, "CUPTI is not open");
    if (on)
        return begin();
    return is_recording ? end() : 0;
}

static uint8_t *
put(uint8_t *at, const void *data, size_t size)
{
    memcpy(at, data, size);
    return at + size;
}

int64_t
harness_cupti_take(void *out, uint64_t size)
{
    uint8_t *at = out;

    if (!is_open)
        return harness_fail(EIO, "CUPTI is not open");
    if (size < CUPTI_TAKE_MAX)
        return harness_fail(ENOSPC, "records need room for %zu bytes", (size_t)CUPTI_TAKE_MAX);
    pthread_mutex_lock(&lock);
    const struct cupti_head head = { .magic = CUPTI_MAGIC,
                                     .format = CUPTI_FORMAT,
                                     .n_records = seen->n_records,
                                     .n_modules = seen->n_modules,
                                     .n_names = seen->n_names,
                                     .lost = seen->lost };
    at = put(at, &head, sizeof(head));
    at = put(at, seen->records, head.n_records * sizeof(seen->records[0]));
    at = put(at, seen->modules, head.n_modules * sizeof(seen->modules[0]));
    at = put(at, seen->names, head.n_names * sizeof(seen->names[0]));
    pthread_mutex_unlock(&lock);
    return at - (uint8_t *)out;
}
