/*
 * runconf.h - the configuration file of `trainer run`: sections of keys, read by libconfuse, checked against one table
 * (run's own keys) and the settings of the training methods. docs/pipeline.md lists both.
 */
#ifndef TRAINER_RUNCONF_H
#define TRAINER_RUNCONF_H

#include <jansson.h>

#include "common/error.h"

/*
 * Read a file. *out is given: {"model": ..., ..., "endpoint": {...}, "sft": {...}, "rl": {...}, "train": {...}, ...}, every key
 * there with its value or default; "sft" and "train" have all settings of their methods. "train" is what the file's section of that name says, then
 * what the section named by rl.method says, then that method's defaults. Relative paths stay as they are. ERR_SYS, or ERR_INPUT
 * with file, line and key, or the variable of a ${NAME} that is not set; err is empty before.
 */
int runconf_read(const char *path, json_t **out, struct error *err);

/* A value of section ("" for the top); borrowed. A programming error where there is none. */
json_t *runconf_get(json_t *conf, const char *section, const char *key);
const char *runconf_text(json_t *conf, const char *section, const char *key);
double runconf_number(json_t *conf, const char *section, const char *key);

#endif
