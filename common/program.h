/* program.h - what a program learns from where and how it was started. */
#ifndef COMMON_PROGRAM_H
#define COMMON_PROGRAM_H

#include <limits.h>
#include <stdbool.h>

/* The value of a variable of the environment; otherwise, where it is not set or empty. View. */
const char *program_environment(const char *name, const char *otherwise);

/* A path relative to this program's own directory, "../lib/verifierd", as an absolute one. False: it is not there. */
bool program_beside(const char *relative, char path[PATH_MAX]);

#endif
