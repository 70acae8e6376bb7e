/* run_files.h - the inputs and outputs that steps declare: paths below the working directory, or absolute ones. */
#ifndef TRAINER_RUN_FILES_H
#define TRAINER_RUN_FILES_H

#include "client/trainer/run.h"

/* Where a declared path is: itself or full. */
const char *run_path(const struct run *r, const char *path, char full[PATH_MAX]);
/* Is it there, and whole where it is a checkpoint? ERR_NOTFOUND, or ERR_INPUT: it is not as its manifest says. */
int run_path_check(const struct run *r, const char *path, struct error *err);
/* What stands in a file, or in a checkpoint's weights. ERR_SYS: it cannot be read, or is another directory. */
int run_path_digest(const struct run *r, const char *path, char digest[80], struct error *err);
/* Is this path left by a step of the plan? */
bool run_is_made(const struct run *r, const char *path);

#endif
