/*
 * host.h - what the daemon's own process and its disks have left: for
 * /v1/status and /metrics. Reads /proc and statvfs(3), which do not wait.
 */
#ifndef HTTP_HOST_H
#define HTTP_HOST_H

#include <jansson.h>

#include "server/config.h"

/*
 * {"cpu_s","resident_bytes","virtual_bytes","threads","open_fds","max_fds","start_time_s"}; what cannot be read is left
 * out. Given; NULL: no memory.
 */
json_t *host_process(void);

/*
 * One for the store and one for the scratch directory: {"what","free_bytes","total_bytes","used_bytes"}: what an
 * ordinary user may still write there, the file system's size, and for the store what its files take. Given.
 */
json_t *host_disks(const struct config *config);

#endif
