/* stages.h - the stages of the funnel, in order, and their names on the wire. Pure. */
#ifndef COMMON_STAGES_H
#define COMMON_STAGES_H

enum stage {
    STAGE_NONE = -1,
    STAGE_AST,
    STAGE_COMPILE,
    STAGE_TINY,
    STAGE_FULL,
    STAGE_TIMING,
    STAGE_NSTAGES,
    STAGE_EXTRACT = STAGE_NSTAGES, /* comes before the others: an answer without code fails there */
};

/* "ast"; "extract" for STAGE_EXTRACT, NULL for STAGE_NONE. */
const char *stage_name(enum stage stage);
/* The stage of the funnel with this name; STAGE_NONE: there is none, or name is NULL. Not for "extract". */
enum stage stage_find(const char *name);

#endif
