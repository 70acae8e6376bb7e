/*
 * settings.h - the settings of training methods: the rows of client/python/finetune/settings.json, which this program
 * embeds and the Python that trains reads too. One table, so that flags, configuration files and the training agree.
 */
#ifndef TRAINER_SETTINGS_H
#define TRAINER_SETTINGS_H

#include <stdbool.h>

#include <jansson.h>

#include "common/error.h"

/* The rows: array of {"name", "type": int|float|bool|choice|text, "default", "presets", "min", "max", "choices", "methods", "help"}; given. */
json_t *settings_table(void);
/* Does a method ("sft", "bestofn", ...) look at this row? */
bool settings_concern(json_t *row, const char *method);
/* Its default for a method; borrowed. */
json_t *settings_default(json_t *row, const char *method);
/* Put text as the value of a row into values. ERR_INPUT names the values that the row accepts. */
int settings_put(json_t *values, json_t *row, const char *text, struct error *err);
/* The names of directories that the training writes and others read (layout.json); given. */
json_t *settings_layout(void);

#endif
