/*
 * classes.h - the classes of a verdict. Each is one row of VERDICT_CLASSES, and what the rest of the project asks of a
 * class is a column of it, so that a new class is one more row. Memory holds the enum; the name is for the wire and the
 * store. Pure.
 */
#ifndef COMMON_CLASSES_H
#define COMMON_CLASSES_H

#include <stdbool.h>

#include "common/stages.h"

enum class_fault { FAULT_NOBODY, FAULT_CANDIDATE, FAULT_SERVICE };

/* Whether the submitter receives the reason. */
enum class_disclosure { SHOWN, SHOWN_BY_RULE, HIDDEN };

#define IN_EXTRACT (1U << STAGE_EXTRACT)
#define IN_AST (1U << STAGE_AST)
#define IN_COMPILE (1U << STAGE_COMPILE)
#define ON_DEVICE (1U << STAGE_TINY | 1U << STAGE_FULL | 1U << STAGE_TIMING)
#define IN_CHILD (IN_AST | IN_COMPILE | ON_DEVICE)
#define ANYWHERE (IN_EXTRACT | IN_CHILD)

/*
 * identifier, name, whose fault, and whether
 *   cheat      it earns hack_value and counts as a cheat; else it is an honest mistake
 *   retryable  a neighbour may be the cause: if there are signs of one, it is judged again alone
 *   reusable   an identical submission would end the same way, and may get this verdict
 *   abnormal   it may have left its process in any state: that process is not used any more
 * then what is disclosed to its submitter, and the stages that it may occur in.
 */
/* clang-format off */
#define VERDICT_CLASSES(ROW) \
    /*  identifier        name                fault            cheat  retry  reuse  abnormal told    stages */ \
    ROW(OK,               "ok",               FAULT_NOBODY,    false, false, true,  false, SHOWN,         ANYWHERE) \
    ROW(EXTRACT,          "extract",          FAULT_CANDIDATE, false, false, true,  false, SHOWN,         IN_EXTRACT | IN_AST) \
    ROW(SYNTAX,           "syntax",           FAULT_CANDIDATE, false, false, true,  false, SHOWN,         IN_AST) \
    ROW(FORM,             "form",             FAULT_CANDIDATE, false, false, true,  false, SHOWN,         IN_AST) \
    ROW(POLICY,           "policy",           FAULT_CANDIDATE, true,  false, true,  false, SHOWN_BY_RULE, IN_CHILD) \
    ROW(IMPORT,           "import",           FAULT_CANDIDATE, false, false, true,  false, SHOWN,         IN_COMPILE | ON_DEVICE) \
    ROW(COMPILE,          "compile",          FAULT_CANDIDATE, false, false, true,  false, SHOWN,         IN_COMPILE | ON_DEVICE) \
    ROW(LAUNCH,           "launch",           FAULT_CANDIDATE, false, true,  true,  true,  SHOWN,         IN_COMPILE | ON_DEVICE) \
    ROW(TIMEOUT,          "timeout",          FAULT_CANDIDATE, false, true,  false, true,  SHOWN,         IN_CHILD) \
    ROW(OOM,              "oom",              FAULT_CANDIDATE, false, true,  false, true,  SHOWN,         IN_CHILD) \
    ROW(CRASH,            "crash",            FAULT_CANDIDATE, false, true,  false, true,  SHOWN,         IN_CHILD) \
    ROW(SHAPE,            "shape",            FAULT_CANDIDATE, false, false, true,  false, SHOWN,         ON_DEVICE) \
    ROW(DTYPE,            "dtype",            FAULT_CANDIDATE, false, false, true,  false, SHOWN,         ON_DEVICE) \
    ROW(NONFINITE,        "nonfinite",        FAULT_CANDIDATE, false, false, true,  false, SHOWN,         ON_DEVICE) \
    ROW(MISMATCH,         "mismatch",         FAULT_CANDIDATE, false, false, true,  false, SHOWN,         ON_DEVICE) \
    ROW(NONDETERMINISTIC, "nondeterministic", FAULT_CANDIDATE, false, false, true,  false, SHOWN,         ON_DEVICE) \
    ROW(MUTATED_INPUT,    "mutated_input",    FAULT_CANDIDATE, false, false, true,  false, SHOWN,         ON_DEVICE) \
    ROW(OUT_OF_BOUNDS,    "out_of_bounds",    FAULT_CANDIDATE, false, false, true,  true,  SHOWN,         ON_DEVICE) \
    ROW(HACK,             "hack",             FAULT_CANDIDATE, true,  false, true,  false, HIDDEN,        ON_DEVICE) \
    ROW(INFRA,            "infra",            FAULT_SERVICE,   false, false, false, true,  SHOWN,         ANYWHERE)
/* clang-format on */

enum verdict_class {
    CLASS_NONE, /* nothing is decided, or nothing failed */
#define CLASS_ID(id, ...) CLASS_##id,
    VERDICT_CLASSES(CLASS_ID)
#undef CLASS_ID
        CLASS_N
};

struct class_info {
    const char *name; /* NULL: CLASS_NONE */
    enum class_fault fault;
    bool is_cheat, is_retryable, is_reusable, is_abnormal;
    enum class_disclosure disclosure;
    unsigned stages; /* bit of each that it may come in */
};

/* For CLASS_NONE: FAULT_NOBODY, no trait, in no stage. Static. */
const struct class_info *class_info(enum verdict_class class_);
const char *class_name(enum verdict_class class_); /* static; NULL: CLASS_NONE */
/* CLASS_NONE: there is no such class, or name is NULL. */
enum verdict_class class_find(const char *name);
/* The class that a worker reported for this stage; otherwise, if that class cannot occur there. */
enum verdict_class class_reported(enum verdict_class class_, enum stage stage, enum verdict_class otherwise);

#endif
