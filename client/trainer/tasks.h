/* tasks.h - the tasks of a run, from a data set's rows or a KernelBench checkout. */
#ifndef TRAINER_TASKS_H
#define TRAINER_TASKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

struct task {
    char *name;        /* unique within the set; what the journal calls it */
    char *reference;   /* Python source */
    char *entry_point; /* of the reference: "Model" */
    int level;         /* 1 to 4; 0: not given */
    int problem;       /* KernelBench's number; 0: none */
};

struct task_set {
    struct task *tasks;
    size_t n;
    size_t skipped; /* rows that are not a task; each was explained on stderr */
};

/*
 * path: a directory (every .py below it; "levelN" above a file and the number it begins with are kept), one .py, a JSON array,
 * or JSON Lines with {"pytorch_code" | "python_code" | "reference" | "code", "entry_point"?, "name" | "id" | "uuid"?,
 * "level" | "difficulty"?, "problem_id"?}. level 0: all; else only that level. Sorted by level, number and name.
 * 0, or ERR_SYS, ERR_INPUT (nothing in it is a task), ERR_NOMEM.
 */
int tasks_load(const char *path, int level, struct task_set *out, struct error *err);
void tasks_free(struct task_set *set);
/* Keep n of them, drawn by seed; the order stays. */
void tasks_draw(struct task_set *set, size_t n, uint64_t seed);
/* Keep those that are marked, is_kept[0 .. set->n). */
void tasks_keep(struct task_set *set, const bool *is_kept);
/* The class name that an answer must have: "ModelNew". Given. */
char *task_class_wanted(const struct task *task);

#endif
