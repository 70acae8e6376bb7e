/* restore.h - `trainer resume`: a run from a remote, on a new machine. */
#ifndef TRAINER_RESTORE_H
#define TRAINER_RESTORE_H

#include <jansson.h>

#include "common/error.h"

/* The remote of a restore that was begun in a working directory and not finished; given, NULL: there is none. */
json_t *restore_unfinished(const char *workdir);
/* May a run begin or go on here? ERR_INPUT: not before the restore is finished; the text has the command. */
int restore_check(const char *workdir, struct error *err);

#endif
