/*
 * cgroup.h - a control group (v2) for each child, where the host delegates
 * them: its memory of every kind, its processes, its share of the cores, and
 * one way to kill all that is in it. Loop thread only.
 */
#ifndef WORKERS_CGROUP_H
#define WORKERS_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "common/error.h"

#define CGROUP_PATH_SIZE 512

struct cgroups;

/*
 * setting: "off"; "auto": below the daemon's own group if systemd delegates it (Delegate=yes), where the daemon moves
 * into a group next to its children's; or the path of an empty group that the daemon may change. Groups of an earlier
 * daemon are ended and removed. Given: cgroups_free(), also if there are none, and cgroups_state() has the reason. 0,
 * ERR_INPUT or ERR_SYS (an unusable path), or ERR_NOMEM.
 */
int cgroups_open(const char *setting, struct cgroups **out, struct error *err);
void cgroups_free(struct cgroups *g); /* NULL is fine; the groups stay for the next start */

/* "on", or "absent: why"; view. Without the memory controller it is absent, though children are grouped all the same. */
const char *cgroups_state(const struct cgroups *g);

/*
 * A group for one child: `memory_bytes` and `processes` at most. path becomes "" if there are no groups. 0 or ERR_SYS.
 */
int cgroup_make(struct cgroups *g, const char *name, int64_t memory_bytes, int64_t processes,
                char path[CGROUP_PATH_SIZE], struct error *err);
/* SIGKILL to all that is in it. "" is fine. */
void cgroup_kill(const char *path);
/* Whether the kernel has killed in it for lack of memory. */
bool cgroup_was_short(const char *path);
/* Kill, and remove it once it is empty; in libuv's pool. "" is fine. */
void cgroup_remove(uv_loop_t *loop, const char *path);

#endif
