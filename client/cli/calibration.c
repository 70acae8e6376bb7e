#include "client/cli/calibration.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/json.h"
#include "common/statistics.h"

#define BIAS_MAX 0.01  /* of a machine that times well */
#define TWICE_MAX 0.02 /* how far a slow-down of 2 may be off */
#define LONG_MS 1.0    /* shorter calls are bound by their launch: twice the product is not twice the time */

const struct calibration_program calibration_programs[] = {
    { "product_1024", CALIBRATION_SELF, 1024 },  { "product_2048", CALIBRATION_SELF, 2048 },
    { "product_4096", CALIBRATION_SELF, 4096 },  { "product_1024", CALIBRATION_TWICE, 1024 },
    { "product_2048", CALIBRATION_TWICE, 2048 }, { "product_4096", CALIBRATION_TWICE, 4096 },
    { "nothing", CALIBRATION_NOTHING, 0 },
};
const size_t calibration_programs_count = ARRAY_LEN(calibration_programs);

static const char *const kind_names[] = {
    [CALIBRATION_SELF] = "aa",
    [CALIBRATION_TWICE] = "twice",
    [CALIBRATION_NOTHING] = "nothing",
};
_Static_assert(ARRAY_LEN(kind_names) == CALIBRATION_NKINDS, "name every kind");

static int
add_module(struct buffer *out, const char *name, const char *body, int rows)
{
    return buffer_printf(out,
                         "import torch\n"
                         "import torch.nn as nn\n"
                         "\n\n"
                         "class %s(nn.Module):\n"
                         "    def forward(self, x):\n"
                         "%s"
                         "\n\n"
                         "def get_inputs():\n"
                         "    return [torch.rand(%d, %d) - 0.5]\n"
                         "\n\n"
                         "def get_init_inputs():\n"
                         "    return []\n",
                         name, body, rows ? rows : 64, rows ? rows : 64);
}

#define ONCE "        return torch.mm(x, x)\n"
#define NONE "        return x\n"

int
calibration_reference(const struct calibration_program *p, struct buffer *out)
{
    return add_module(out, "Model", p->kind == CALIBRATION_NOTHING ? NONE : ONCE, p->rows);
}

int
calibration_candidate(const struct calibration_program *p, const char *mark, struct buffer *out)
{
    const char *body = p->kind == CALIBRATION_NOTHING ? NONE
                       : p->kind == CALIBRATION_TWICE ? "        torch.mm(x, x)\n" ONCE
                                                      : ONCE;
    int rc = add_module(out, "ModelNew", body, p->rows);
    return rc == 0 ? buffer_printf(out, "# run %s\n", mark) : rc;
}

void
calibration_read(const struct calibration_program *p, json_t *verdict, struct calibration_run *out)
{
    json_t *timing = json_object_get(verdict, "timing");

    *out = (struct calibration_run){ .program = p,
                                     .speedup = number_or_nan(timing, "speedup"),
                                     .lo = number_or_nan(timing, "speedup_lo"),
                                     .hi = number_or_nan(timing, "speedup_hi"),
                                     .reference_ms = number_or_nan(timing, "reference_ms"),
                                     .candidate_ms = number_or_nan(timing, "candidate_ms") };
    snprintf(out->outcome, sizeof(out->outcome), "%s",
             text_is(verdict, "class", "ok") ? text_or(timing, "outcome", "skipped")
                                             : text_or(verdict, "class", "cancelled"));
    snprintf(out->id, sizeof(out->id), "%s", text_or(verdict, "id", ""));
}

static bool
is_measured(const struct calibration_run *r)
{
    return strcmp(r->outcome, "measured") == 0 && r->speedup > 0;
}

static void complain(struct calibration_summary *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void
complain(struct calibration_summary *s, const char *format, ...)
{
    size_t used = strlen(s->wrong);
    va_list args;

    used += (size_t)snprintf(s->wrong + used, sizeof(s->wrong) - used, "%s", used > 0 ? "; " : "");
    if (used >= sizeof(s->wrong))
        return;
    va_start(args, format);
    vsnprintf(s->wrong + used, sizeof(s->wrong) - used, format, args);
    va_end(args);
}

static void
check_run(const struct calibration_run *r, struct calibration_summary *s)
{
    const char *name = r->program->name;

    if (r->program->kind == CALIBRATION_NOTHING) {
        if (strcmp(r->outcome, "too_small") != 0)
            complain(s, "a call that does nothing was %s, not too_small", r->outcome);
    } else if (!is_measured(r)) {
        complain(s, "%s (%s) was %s", name, kind_names[r->program->kind], r->outcome);
    } else if (r->program->kind == CALIBRATION_TWICE && r->reference_ms >= LONG_MS &&
               fabs(1 / r->speedup / 2 - 1) > TWICE_MAX) {
        complain(s, "%s made twice took %.3f times as long, not 2.00", name, 1 / r->speedup);
    }
}

void
calibration_summarize(const struct calibration_run *runs, size_t n, struct calibration_summary *out)
{
    AUTO_FREE double *speedups = calloc(n + 1, sizeof(*speedups));
    double logs = 0;
    size_t found = 0;

    *out = (struct calibration_summary){ .bias = NAN, .spread = NAN };
    for (size_t i = 0; i < n; i++) {
        check_run(&runs[i], out);
        if (speedups && runs[i].program->kind == CALIBRATION_SELF && is_measured(&runs[i])) {
            logs += log(runs[i].speedup);
            speedups[found++] = runs[i].speedup;
        }
    }
    out->measured = (int)found;
    if (found < 2) {
        complain(out, "%zu runs of a reference against itself were measured, and two at least are needed",
                 found);
        return;
    }
    out->bias = expm1(logs / (double)found);
    out->spread = stats_variation(speedups, found);
    if (fabs(out->bias) > BIAS_MAX)
        complain(out, "the bias is %.2f %%, more than %g %%", 100 * out->bias, 100 * BIAS_MAX);
}

static void
set_number(json_t *object, const char *key, double x)
{
    if (isfinite(x))
        json_object_set_new(object, key, json_real(x));
}

static json_t *
run_json(const struct calibration_run *r)
{
    json_t *out = json_pack("{s:s, s:s, s:s}", "name", r->program->name, "kind", kind_names[r->program->kind],
                            "outcome", r->outcome);
    if (*r->id)
        json_object_set_new(out, "submission", json_string(r->id));
    set_number(out, "expected",
               r->program->kind == CALIBRATION_SELF    ? 1
               : r->program->kind == CALIBRATION_TWICE ? 0.5
                                                       : NAN);
    set_number(out, "speedup", r->speedup);
    set_number(out, "speedup_lo", r->lo);
    set_number(out, "speedup_hi", r->hi);
    set_number(out, "reference_ms", r->reference_ms);
    set_number(out, "candidate_ms", r->candidate_ms);
    return out;
}

json_t *
calibration_json(const char *gpu, const struct calibration_run *runs, size_t n,
                 const struct calibration_summary *summary)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, run_json(&runs[i]));
    json_t *out = json_pack("{s:s, s:o}", "gpu", gpu, "runs", list);
    set_number(out, "bias", summary->bias);
    set_number(out, "spread", summary->spread);
    return out;
}
