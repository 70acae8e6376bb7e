#include "server/harness/native/nvml.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#define NVML_NOT_SUPPORTED 3
#define NVML_NO_PERMISSION 4
#define NVML_INSUFFICIENT_SIZE 7
#define NVML_CLOCK_SM 1
#define NVML_CLOCK_MEM 2
#define NVML_TEMPERATURE_GPU 0
#define NVML_ECC_UNCORRECTED 1
#define NVML_ECC_SINCE_RESET 0

typedef int nvml_result;
struct nvml_device;

struct nvml_process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

_Static_assert(sizeof(struct nvml_process) == 24, "nvmlProcessInfo_t of the _v3 call");

/* X(member, symbol, arguments) */
#define NVML_CALLS(X)                                                                                    \
    X(init, "nvmlInit_v2", (void))                                                                       \
    X(driver_version, "nvmlSystemGetDriverVersion", (char *out, unsigned size))                          \
    X(by_pci, "nvmlDeviceGetHandleByPciBusId_v2", (const char *pci, struct nvml_device **out))           \
    X(clock, "nvmlDeviceGetClockInfo", (struct nvml_device * device, int which, unsigned *out))          \
    X(temperature, "nvmlDeviceGetTemperature", (struct nvml_device * device, int sensor, unsigned *out)) \
    X(power, "nvmlDeviceGetPowerUsage", (struct nvml_device * device, unsigned *out))                    \
    X(throttle, "nvmlDeviceGetCurrentClocksThrottleReasons",                                             \
      (struct nvml_device * device, unsigned long long *out))                                            \
    X(ecc, "nvmlDeviceGetTotalEccErrors",                                                                \
      (struct nvml_device * device, int kind, int counter, unsigned long long *out))                     \
    X(processes, "nvmlDeviceGetComputeRunningProcesses_v3",                                              \
      (struct nvml_device * device, unsigned *n, struct nvml_process *out))

struct nvml {
#define NVML_MEMBER(member, symbol, arguments) nvml_result(*member) arguments;
    NVML_CALLS(NVML_MEMBER)
#undef NVML_MEMBER
    const char *(*error_string)(nvml_result result);
};

/* As with the driver: one library and one GPU for each process. */
static struct nvml nvml;
static struct nvml_device *device;
static int is_open;

static const struct {
    const char *symbol;
    size_t offset;
} calls[] = {
#define NVML_ROW(member, symbol, arguments) { symbol, offsetof(struct nvml, member) },
    NVML_CALLS(NVML_ROW)
#undef NVML_ROW
        { "nvmlErrorString", offsetof(struct nvml, error_string) },
};

static int
check(nvml_result result, const char *what)
{
    return result == 0 ? 0 : harness_fail(EIO, "%s: %s (%d)", what, nvml.error_string(result), result);
}

/* A figure that this GPU, or this container, does not provide. */
static int
is_untold(nvml_result result)
{
    return result == NVML_NOT_SUPPORTED || result == NVML_NO_PERMISSION;
}

/* The call about throttling has two names; either may be the one that a driver lacks. */
static void *
find(void *library, const char *symbol)
{
    void *found = dlsym(library, symbol);

    if (found == NULL && strcmp(symbol, "nvmlDeviceGetCurrentClocksThrottleReasons") == 0)
        found = dlsym(library, "nvmlDeviceGetCurrentClocksEventReasons");
    return found;
}

static int
open_library(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);

    if (library == NULL)
        return harness_fail(ENODEV, "NVML: %s", dlerror());
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        void *found = find(library, calls[i].symbol);
        if (found == NULL) {
            dlclose(library);
            return harness_fail(ENOSYS, "NVML: it has no %s; a newer driver is needed", calls[i].symbol);
        }
        *(void **)((char *)&nvml + calls[i].offset) = found;
    }
    return check(nvml.init(), "nvmlInit");
}

static int
need_library(void)
{
    int code = is_open ? 0 : open_library();

    is_open = code == 0;
    return code;
}

int
harness_nvml_driver(char *out, uint32_t cap)
{
    int code = need_library();

    return code != 0 ? code : check(nvml.driver_version(out, cap), "nvmlSystemGetDriverVersion");
}

static int
read_figure(nvml_result result, const char *what, uint32_t *figure)
{
    if (is_untold(result)) {
        *figure = HARNESS_NVML_UNKNOWN;
        return 0;
    }
    return check(result, what);
}

int
harness_nvml_open(const char *pci_bus_id)
{
    int code = need_library();

    device = NULL;
    return code != 0 ? code : check(nvml.by_pci(pci_bus_id, &device), "nvmlDeviceGetHandleByPciBusId");
}

static int
read_ecc(struct harness_nvml_state *out)
{
    unsigned long long count = 0;
    int code = read_figure(nvml.ecc(device, NVML_ECC_UNCORRECTED, NVML_ECC_SINCE_RESET, &count), "ECC errors",
                           &out->ecc_errors);

    if (code == 0 && out->ecc_errors != HARNESS_NVML_UNKNOWN)
        out->ecc_errors = count < HARNESS_NVML_UNKNOWN ? (uint32_t)count : HARNESS_NVML_UNKNOWN - 1;
    return code;
}

static int
read_processes(struct harness_nvml_state *out)
{
    struct nvml_process list[HARNESS_NVML_PIDS_MAX];
    unsigned n = HARNESS_NVML_PIDS_MAX;
    nvml_result result = nvml.processes(device, &n, list);

    if (is_untold(result)) {
        out->n_processes = HARNESS_NVML_UNKNOWN;
        return 0;
    }
    out->n_processes = n;
    if (result ==
        NVML_INSUFFICIENT_SIZE) /* n says how many there are; a full list of pids is not needed then */
        return 0;
    for (unsigned i = 0; result == 0 && i < n && i < HARNESS_NVML_PIDS_MAX; i++)
        out->pids[i] = list[i].pid;
    return check(result, "nvmlDeviceGetComputeRunningProcesses");
}

int
harness_nvml_state(struct harness_nvml_state *out)
{
    unsigned long long reasons = 0;
    int code;

    if (device == NULL)
        return harness_fail(ENODEV, "NVML is not open");
    memset(out, 0, sizeof(*out));
    if ((code = read_figure(nvml.clock(device, NVML_CLOCK_SM, &out->sm_clock_mhz), "SM clock",
                            &out->sm_clock_mhz)) != 0 ||
        (code = read_figure(nvml.clock(device, NVML_CLOCK_MEM, &out->mem_clock_mhz), "memory clock",
                            &out->mem_clock_mhz)) != 0 ||
        (code = read_figure(nvml.temperature(device, NVML_TEMPERATURE_GPU, &out->temp_c), "temperature",
                            &out->temp_c)) != 0 ||
        (code = read_figure(nvml.power(device, &out->power_mw), "power", &out->power_mw)) != 0 ||
        (code = read_ecc(out)) != 0 ||
        (code = check(nvml.throttle(device, &reasons), "throttle reasons")) != 0)
        return code;
    out->throttle_reasons = reasons;
    return read_processes(out);
}
