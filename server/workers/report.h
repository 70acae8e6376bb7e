/* report.h - what a referee reports of one stage of a job. */
#ifndef WORKERS_REPORT_H
#define WORKERS_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "common/classes.h"

/* The referee's report on one stage; views, valid during the callback. */
struct stage_report {
    const char *stage; /* "open", "tiny", "full", "timing" */
    enum report_outcome { REPORT_PASS, REPORT_FAIL, REPORT_SKIP } outcome;
    enum verdict_class class_; /* of the verdict; CLASS_NONE unless it failed */
    const char *rule;          /* the rule that found a hack; NULL: none, or not failed */
    int done, of;
    json_t *error; /* {"type","text","line"} or NULL */
    const char *generality;
    bool is_reopen;    /* the process is lost, and the verdict is not: device_worker_reopen() */
    bool is_reference; /* it was the reference that failed */
    json_t *detail;    /* an object, or NULL */
    /* The part of a failure that a neighbour may have caused; for others 0 or -1. */
    int64_t limit_ms;   /* of class timeout, and of a reference: the limit that passed, or that of a call */
    int64_t stolen_ms;  /* of it, or of the stage: time in which others had the CPU; -1: not known */
    int64_t free_bytes; /* of the device's memory, as the referee found it then; -1: not known */
    int64_t held_bytes; /* of the machine's, by the processes of the job */
    int neighbours;     /* other children of the device that ended by themselves meanwhile */
};

#endif
