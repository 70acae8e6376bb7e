/* nvml.h - clocks, temperature, throttling and other processes on a GPU, from NVML, opened at run time. One thread. */
#ifndef HARNESS_NVML_H
#define HARNESS_NVML_H

#include <stdint.h>

#include "server/harness/native/harness.h"

#define HARNESS_NVML_PIDS_MAX 64
#define HARNESS_NVML_UNKNOWN UINT32_MAX /* the GPU does not provide this figure */

struct harness_nvml_state {
    uint64_t
        throttle_reasons; /* NVML's bits: 1 idle, 4 power cap, 8 hardware, 32 software thermal, 64 hardware thermal … */
    uint32_t sm_clock_mhz, mem_clock_mhz;
    uint32_t temp_c, power_mw;
    uint32_t ecc_errors;  /* uncorrected, since the driver was loaded */
    uint32_t n_processes; /* with a compute context; pids has the first HARNESS_NVML_PIDS_MAX */
    uint32_t pids[HARNESS_NVML_PIDS_MAX]; /* as the driver's host sees them */
};

/* Choose the GPU by its PCI bus id (harness_gpu_pci_bus_id()). Once, or again for another. 0 or < 0. */
HARNESS_API int harness_nvml_open(const char *pci_bus_id);
/* The driver's version, such as "580.65.06", NUL-terminated; cap >= 81. */
HARNESS_API int harness_nvml_driver(char *out, uint32_t cap);
HARNESS_API int harness_nvml_state(struct harness_nvml_state *out);

#endif
