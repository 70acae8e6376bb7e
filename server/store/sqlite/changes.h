/* changes.h - what each write does: the statements of the connection that writes. The writer's thread alone. */
#ifndef SQLITE_CHANGES_H
#define SQLITE_CHANGES_H

#include "server/store/backend.h"

/* Operations of backend.h. */
extern const struct ownership_ops sqlite_ownership;
change_fn changes_probe;

#endif
