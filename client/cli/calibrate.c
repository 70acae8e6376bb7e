/* calibrate: the error of this machine's times, measured by submissions with a known result. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/api.h"
#include "client/cli/calibration.h"
#include "client/cli/cli.h"
#include "client/cli/table.h"
#include "client/cli/text.h"
#include "common/auto.h"
#include "common/clock.h"

#define RUNS_MAX 64

struct calibrate {
    struct cli *cli;
    int rounds;
    double limit_s;
    bool is_dry;     /* keep nothing */
    const char *gpu; /* view into status */
    struct calibration_run runs[RUNS_MAX];
    size_t n;
};

enum { OPT_ROUNDS = 256, OPT_DRY, OPT_LIMIT };

static const struct argp_option options[] = {
    { "rounds", OPT_ROUNDS, "N", 0, "Runs of each reference against itself, 2 to 16 (default 3)", 0 },
    { "limit-s", OPT_LIMIT, "SECONDS", 0, "For each submission, at most (default 120)", 0 },
    { "dry-run", OPT_DRY, NULL, 0, "Print the figures and keep nothing", 0 },
    { 0 },
};

const struct argp calibrate_argp =
    CLI_ARGP(options, NULL,
             "Find out how far this machine's times are off: a product of matrices "
             "against itself and against the same product made twice, and a call that "
             "does nothing. The result goes into later verdicts.");

static json_t *
text_of(struct buffer *source)
{
    json_t *text = json_stringn(source->data ? source->data : "", source->size);
    return text ? text : json_null();
}

static int
register_task(struct calibrate *c, const struct calibration_program *p, json_t **task, const char **id)
{
    AUTO_BUFFER struct buffer name = BUFFER_INIT, source = BUFFER_INIT;

    if (buffer_printf(&name, "calibrate_%s", p->name) != 0 || calibration_reference(p, &source) != 0)
        return cli_complain(CLI_CONFIG, "out of memory");
    AUTO_JSON json_t *body = json_pack("{s:s, s:o}", "name", name.data, "reference", text_of(&source));
    return api_make(c->cli, "/v1/tasks", body, task, id);
}

static int
submit(struct calibrate *c, const struct calibration_program *p, json_t **answer, const char **made)
{
    AUTO_JSON json_t *task = NULL;
    AUTO_BUFFER struct buffer source = BUFFER_INIT;
    char mark[64];
    const char *id = NULL;
    int code = register_task(c, p, &task, &id);

    if (code != CLI_OK)
        return code;
    snprintf(mark, sizeof(mark), "%ld.%lld.%zu", (long)getpid(), (long long)clock_wall_ms(), c->n);
    if (calibration_candidate(p, mark, &source) != 0)
        return cli_complain(CLI_CONFIG, "out of memory");
    AUTO_JSON json_t *body =
        json_pack("{s:s, s:o, s:s, s:b, s:{s:s, s:{s:b}}}", "task", id, "candidate", text_of(&source),
                  "client", "calibrate", "cache", 0, "policy", "name", "kernelbench", "timing", "fixed", 1);
    return api_make(c->cli, "/v1/submissions", body, answer, made);
}

static int
run_one(struct calibrate *c, const struct calibration_program *p)
{
    AUTO_JSON json_t *answer = NULL, *verdict = NULL;
    const char *id = NULL;
    int code = submit(c, p, &answer, &id);

    if (code != CLI_OK)
        return code;
    cli_note_id(id);
    code = api_follow(c->cli, "/v1/submissions", id, c->limit_s, &verdict);
    cli_note_id(NULL);
    if (code == CLI_OK)
        calibration_read(p, verdict, &c->runs[c->n++]);
    return code;
}

static int
run_all(struct calibrate *c)
{
    int code = CLI_OK;

    for (int round = 0; round < c->rounds; round++)
        for (size_t i = 0; i < calibration_programs_count && code == CLI_OK; i++)
            if ((round == 0 || calibration_programs[i].kind == CALIBRATION_SELF) && c->n < RUNS_MAX)
                code = run_one(c, &calibration_programs[i]);
    return code;
}

static void
print_runs(const struct calibrate *c)
{
    static const char *const titles[] = { "PROGRAM",       "AGAINST",  "OUTCOME",
                                          ">REFERENCE ms", ">SPEEDUP", ">95% INTERVAL" };
    static const char *const against[] = { "itself", "itself twice", "nothing" };
    AUTO_TABLE struct table *t = table_new(titles, ARRAY_LEN(titles));

    for (size_t i = 0; i < c->n; i++) {
        const struct calibration_run *r = &c->runs[i];
        char ms[32] = "-", speedup[32] = "-", interval[64] = "-";
        bool has_interval = isfinite(r->lo) && isfinite(r->hi);
        if (isfinite(r->reference_ms))
            snprintf(ms, sizeof(ms), "%.4f", r->reference_ms);
        if (isfinite(r->speedup))
            snprintf(speedup, sizeof(speedup), "%.4f", r->speedup);
        if (has_interval)
            snprintf(interval, sizeof(interval), "%.4f to %.4f", r->lo, r->hi);
        table_row(t, (const char *const[]){ r->program->name, against[r->program->kind], r->outcome, ms,
                                            speedup, interval });
    }
    table_print(t);
}

/* Print what came out, and have it kept. */
static int
finish(struct calibrate *c)
{
    struct calibration_summary s;
    AUTO_JSON json_t *answer = NULL;

    calibration_summarize(c->runs, c->n, &s);
    AUTO_JSON json_t *document = calibration_json(c->gpu, c->runs, c->n, &s);
    if (c->cli->is_json) {
        text_json(document);
    } else {
        print_runs(c);
        if (s.measured > 1)
            printf("\n%s: bias %+.3f %%, spread %.3f %%, over %d runs of a reference against itself\n",
                   c->gpu, 100 * s.bias, 100 * s.spread, s.measured);
    }
    fflush(stdout);
    if (s.measured < 2)
        return cli_complain(CLI_FAILED, "%s; nothing is kept", s.wrong);
    if (!c->is_dry) {
        int code = api_call(c->cli, "POST", "/v1/calibrations", document, &answer);
        if (code != CLI_OK)
            return code;
    }
    return *s.wrong ? cli_complain(CLI_FAILED, "%s", s.wrong) : CLI_OK;
}

int
calibrate_command(struct cli *cli, int argc, char **argv)
{
    struct calibrate c = { .cli = cli, .rounds = 3, .limit_s = 120 };
    AUTO_JSON json_t *status = NULL;

    CLI_TAKE(cli, &calibrate_argp, argc, argv, TAKE_INT(OPT_ROUNDS, &c.rounds, 2, 16),
             TAKE_SECONDS(OPT_LIMIT, &c.limit_s, 0, 1e7), TAKE_FLAG(OPT_DRY, &c.is_dry));
    int code = api_call(cli, "GET", "/v1/status", NULL, &status);
    if (code != CLI_OK)
        return code;
    c.gpu = text_member(json_object_get(status, "env"), "gpu");
    if (!c.gpu)
        return cli_complain(CLI_SKIPPED, "SKIP calibrate: verifierd has no GPU; nothing was measured");
    code = run_all(&c);
    return code == CLI_OK ? finish(&c) : code;
}
