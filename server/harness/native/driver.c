#include "server/harness/native/driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

#include "server/harness/native/harness.h"

static const struct {
    const char *symbol;
    size_t offset;
} calls[] = {
#define CU_ROW(member, symbol, arguments) { symbol, offsetof(struct driver, member) },
    CU_CALLS(CU_ROW)
#undef CU_ROW
};

/* One library for each process, shared by all callers. */
static struct driver the_driver;
static int is_open;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int
open_library(struct driver *out)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    if (library == NULL)
        return harness_fail(ENODEV, "CUDA driver: %s", dlerror());
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        void *found = dlsym(library, calls[i].symbol);
        if (found == NULL) {
            dlclose(library);
            return harness_fail(ENOSYS, "CUDA driver: it has no %s; a newer one is needed", calls[i].symbol);
        }
        *(void **)((char *)out + calls[i].offset) = found;
    }
    return 0;
}

const struct driver *
driver_open(void)
{
    const struct driver *d = NULL;

    pthread_mutex_lock(&lock);
    if (!is_open && open_library(&the_driver) == 0)
        is_open = 1;
    if (is_open)
        d = &the_driver;
    pthread_mutex_unlock(&lock);
    return d;
}

int
driver_check(const struct driver *d, cu_result result, const char *what)
{
    const char *name = NULL, *words = NULL;

    if (result == 0)
        return 0;
    d->error_name(result, &name);
    d->error_string(result, &words);
    return harness_fail(result == CU_ERROR_OUT_OF_MEMORY ? ENOMEM : EIO, "%s: %s (%d): %s", what,
                        name != NULL ? name : "unknown error", result, words != NULL ? words : "no text");
}
