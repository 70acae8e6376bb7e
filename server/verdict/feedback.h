/*
 * feedback.h - a verdict for the author of the next candidate, as an object and as a text of bounded size. Pure.
 *
 * The text goes into the next prompt of the model that wrote the candidate. What the candidate wrote itself (exceptions,
 * source lines, names) is quoted: paths, addresses and process ids taken out, fences and the special tokens of chat
 * templates broken, every line behind "| ", so that it cannot pass for ours.
 */
#ifndef VERDICT_FEEDBACK_H
#define VERDICT_FEEDBACK_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "common/buffer.h"
#include "common/classes.h"

#define FEEDBACK_TEXT_MAX 6000  /* bytes of the whole text */
#define FEEDBACK_QUOTE_MAX 3000 /* bytes of what is quoted, before quoting */

/* Views; NULL, JSON null and NAN stand for unknown values. */
struct feedback {
    enum verdict_class class_; /* CLASS_OK where nothing failed */
    const char *stage;         /* failed at, or last reached */
    const char *passed;        /* last one passed */
    const char *headline;      /* what happened, in one line: cause.h */
    const char *rule;          /* the rule of ours that it broke */
    json_t *error;             /* {"type", "text", "line"} */
    json_t *untraced;          /* the same of why it was judged without a plan, where it failed then */
    json_t *mismatch; /* {"case", "output", "index", "expected", "got", "differing", "of", "rtol", "atol"} */
    double max_abs, max_rel;
    int cases, cases_passed; /* that were run before it failed */
    bool is_cut;             /* the answer ended inside its code */
    bool is_unended;         /* the answer ended inside its reasoning */
    bool is_answer;          /* the submitted code is a whole answer, with fences or reasoning */
    bool is_timed;
    bool is_device_time; /* these times have no launches in them */
    double reference_ms, candidate_ms, speedup, speedup_lo, speedup_hi;
    double coverage;   /* 0..1 */
    const char *bound; /* "memory" or "compute": what the reference's least time is made of */
    double floor_ms;   /* that time */
    json_t *kernels;   /* as compiled: [{"name", "registers", "spill_bytes", "shared_bytes"} …] */
};

/* {"class","stage","passed","text","error","mismatch","timing","coverage","bound","hint"}. Given; NULL: no memory. */
json_t *feedback_json(const struct feedback *f);

/*
 * Add raw without text that may not enter a prompt. prefix follows every line's end. The middle of a text above limit
 * is cut.
 * Returns 0 or ERR_NOMEM.
 */
int feedback_quote(const char *raw, size_t raw_size, size_t limit, const char *prefix, struct buffer *out);

#endif
