/*
 * trainer prepare: of a data set's rows those that are fit to be tasks.
 *
 * Rows are read one by one, so that the file may be larger than memory: what is kept of each is a digest and a name. What costs little
 * comes first: the columns, the text, the syntax tree (Python's own parser, in a process of its own; nothing of a row is run here),
 * what is there already. All that happens in the order of the rows, in one thread. What is left is asked of the daemon, which runs
 * the reference in its sandbox: of a few rows at once (window.h), the answers in a journal, by the row's content. Rows are
 * written in their order again, so that the files are the same however many were asked of at once, and how often it was killed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/trainer/daemon.h"
#include "client/trainer/entry.h"
#include "client/trainer/helper.h"
#include "client/trainer/hub.h"
#include "client/trainer/inquiry.h"
#include "client/trainer/options.h"
#include "client/trainer/output.h"
#include "client/trainer/prepare.h"
#include "client/trainer/prepared.h"
#include "client/trainer/rows.h"
#include "client/trainer/window.h"
#include "common/auto.h"
#include "common/clock.h"

enum { WAITING_FOR_EACH = 4, CONCURRENCY_MAX = 64 }; /* rows in the window for each one that is asked of */
enum {
    OPT_FILE = 512,
    OPT_OVERLAP,
    OPT_MAX_SAMPLES,
    OPT_MAX_LINES,
    OPT_LICENSES,
    OPT_STATIC,
    OPT_VERIFY,
    OPT_PYTHON,
    OPT_SOURCE,
    OPT_ID,
    OPT_REVISION,
    OPT_DIGEST,
    OPT_FILES,
    OPT_LABELS,
    OPT_ENLARGE
};

/* What --source fetches where no --file is given. */
static const struct {
    const char *name, *id, *pattern;
} known_sources[] = {
    { "kernelbook", "GPUMODE/KernelBook", "dataset_permissive.json" },
    { "kernelbench", "ScalingIntelligence/KernelBench", "data/level_*.parquet" },
};

static const char licenses_default[] =
    "MIT,BSD-2-Clause,BSD-3-Clause,Apache-2.0,ISC,Unlicense,CC0-1.0,Zlib,0BSD,BSL-1.0";

struct prepare {
    struct trainer *trainer;
    struct prepare_options o;
    /* what is under way */
    json_t *fetched; /* what hub_fetch() said, or NULL */
    struct helper *helper;
    struct inquiry *inquiry;                      /* NULL with --static */
    struct http_client *daemons[CONCURRENCY_MAX]; /* one for each thread of the window */
    struct window *window;
    json_t *digests; /* {digest: where it was first} */
    struct prepared out;
    size_t read, row_base; /* read so far; in the files before */
    size_t rows;           /* written or dropped */
    int64_t start_ns, told_ns;
};

static const struct argp_option options[] = {
    { "file", OPT_FILE, "PATH", 0,
      "The data set: a JSON array, JSON Lines, parquet (with pyarrow), a KernelBench checkout, TritonBench's "
      "T",
      0 },
    { "source", OPT_SOURCE, "NAME", 0,
      "What the rows say of where they come from (default: the file's name); without --file, kernelbook and "
      "kernelbench are fetched from the hub (HF_ENDPOINT, HF_TOKEN) into data/raw",
      0 },
    { "id", OPT_ID, "ID", 0, "Of the data set on the hub (default: the source's)", 0 },
    { "revision", OPT_REVISION, "REV", 0, "A branch, a tag or a commit of it (default main)", 0 },
    { "files", OPT_FILES, "PATTERN", 0, "Which of its files (default: the source's)", 0 },
    { "digest", OPT_DIGEST, "sha256:HEX", 0, "What the fetched file's digest has to be", 0 },
    { "labels", OPT_LABELS, "METHOD", 0,
      "operations (default): by how many forward does; heuristic: level 2 where forward has several calls "
      "or + @ *, chained calls, more than 50 tokens, or the text says fused, fusion or combined; 3 where it "
      "says level 3",
      0 },
    { "overlap", OPT_OVERLAP, "PATH", 0, "Tasks of an evaluation: a row that is one of them is dropped", 0 },
    { "max-samples", OPT_MAX_SAMPLES, "N", 0, "Stop when so many rows are kept (default 1000; 0: all)", 0 },
    { "max-lines", OPT_MAX_LINES, "N", 0, "Of a reference, blank ones not counted (default 200)", 0 },
    { "licenses", OPT_LICENSES, "LIST", 0, "SPDX names, one of which a row that names licences must name",
      0 },
    { "static", OPT_STATIC, NULL, 0, "Ask no daemon: no reference is run", 0 },
    { "verify", OPT_VERIFY, NULL, 0,
      "Have each row's own Triton code judged, under --policy (default kernelbench), and make no fine-tuning "
      "row of what fails",
      0 },
    { "policy", 'p', "FILE|NAME,KEY=VALUE,...", 0, "Of --verify", 0 },
    { "enlarge", OPT_ENLARGE, NULL, 0,
      "On a GPU, enlarge each task's shapes until its reference runs 50 us to 20 ms, and leave out of "
      "tasks.jsonl what "
      "does not get there",
      0 },
    { "python", OPT_PYTHON, "PROGRAM", 0,
      "The interpreter that parses, and that has pyarrow for parquet (or TRAINER_PYTHON; default python3)",
      0 },
    { 0 },
};

/* What is fetched from the hub, where nothing is there already. */
static void
choose_source(struct prepare *p, struct argp_state *state)
{
    if (p->o.file && (p->o.hub.id || p->o.hub.digest || p->o.hub.pattern || p->o.hub.revision))
        argp_error(state, "--file is read as it lies; --id, --revision, --files and --digest are the hub's");
    if (!p->o.hub.revision)
        p->o.hub.revision = "main";
    if (p->o.file)
        return;
    for (size_t i = 0; i < ARRAY_LEN(known_sources); i++) {
        if (!p->o.source || strcmp(p->o.source, known_sources[i].name) != 0)
            continue;
        p->o.hub.id = p->o.hub.id ? p->o.hub.id : known_sources[i].id;
        p->o.hub.pattern = p->o.hub.pattern ? p->o.hub.pattern : known_sources[i].pattern;
    }
    if (!p->o.hub.id || !p->o.hub.pattern)
        argp_error(
            state,
            "which data set? --file PATH, --source kernelbook or kernelbench, or --id ID --files PATTERN");
    if (p->o.hub.digest && (strncmp(p->o.hub.digest, "sha256:", 7) != 0 || strlen(p->o.hub.digest) != 71))
        argp_error(state, "--digest takes sha256: and 64 digits, not \"%s\"", p->o.hub.digest);
}

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct prepare *p = state->input;
    const char **const texts[] = { &p->o.file,         &p->o.overlap,    &p->o.licenses,
                                   &p->o.python,       &p->o.source,     &p->o.hub.id,
                                   &p->o.hub.revision, &p->o.hub.digest, &p->o.hub.pattern };
    static const int text_keys[] = { OPT_FILE, OPT_OVERLAP,  OPT_LICENSES, OPT_PYTHON, OPT_SOURCE,
                                     OPT_ID,   OPT_REVISION, OPT_DIGEST,   OPT_FILES };

    for (size_t i = 0; i < ARRAY_LEN(text_keys); i++) {
        if (key == text_keys[i]) {
            *texts[i] = arg;
            return 0;
        }
    }
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = p->trainer;
        return 0;
    case OPT_MAX_SAMPLES:
        p->o.most = option_int(state, "--max-samples", arg, 0, 100000000);
        return 0;
    case OPT_MAX_LINES:
        p->o.lines_most = option_int(state, "--max-lines", arg, 1, 100000);
        return 0;
    case OPT_STATIC:
        p->o.is_static = true;
        return 0;
    case OPT_VERIFY:
        p->o.verifies = true;
        return 0;
    case OPT_ENLARGE:
        p->o.enlarges = true;
        return 0;
    case 'p':
        p->o.policy = option_policy(state, "--policy", arg);
        return 0;
    case OPT_LABELS:
        p->o.labelled_by = arg;
        if (strcmp(arg, "operations") != 0 && strcmp(arg, "heuristic") != 0)
            argp_error(state, "--labels takes operations or heuristic, not \"%s\"", arg);
        return 0;
    case ARGP_KEY_END:
        choose_source(p, state);
        if (p->o.is_static && p->o.enlarges)
            argp_error(state, "--enlarge needs the daemon's GPU, and --static does not ask the daemon");
        if (p->o.policy && !p->o.verifies)
            argp_error(state, "--policy is what --verify judges under: give --verify, too");
        if (!p->o.policy)
            p->o.policy = "kernelbench";
        if (p->o.is_static && p->o.verifies)
            argp_error(state, "--verify needs the daemon, which --static does not ask");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = { { &trainer_common_argp, 0, NULL, -1 }, { 0 } };
static const struct argp argp = { options,
                                  parse,
                                  NULL,
                                  "Of a data set's rows keep those that are fit to be tasks, in "
                                  "data/processed of the working directory: tasks.jsonl, "
                                  "sft_train.jsonl (rows with an answer), difficulty_labels.jsonl, "
                                  "dropped.jsonl with a reason for each other row.",
                                  children,
                                  NULL,
                                  NULL };

/* --- rows in flight --- */

/* One row between its reading and its writing. */
struct flight {
    struct entry entry;
    json_t *said; /* what the daemon said; NULL: it was not asked, or failed */
    int rc;
    struct error err;
};

static void
flight_free(struct flight *f)
{
    if (!f)
        return;
    entry_release(&f->entry);
    json_decref(f->said);
    free(f);
}

static bool
work_cb(void *arg, int thread, void *item)
{
    struct prepare *p = arg;
    struct flight *f = item;

    f->rc = inquiry_ask(p->inquiry, p->daemons[thread], &f->entry, &f->said, &f->err);
    return f->rc == 0;
}

static void
tell_progress(struct prepare *p, bool is_last)
{
    int64_t now_ns = clock_monotonic_ns();
    if (!is_last && now_ns - p->told_ns < 2000000000)
        return;
    double s = (double)(now_ns - p->start_ns) / 1e9;
    p->told_ns = now_ns;
    if (p->o.most && p->out.kept)
        fprintf(stderr, "%zu rows read, %zu of %d kept; %.0f s, about %.0f s left at most\n", p->rows,
                p->out.kept, p->o.most, s,
                s / (double)p->out.kept * (double)((size_t)p->o.most - p->out.kept));
    else
        fprintf(stderr, "%zu rows read, %zu kept; %.0f s\n", p->rows, p->out.kept, s);
}

static int
interrupted(const struct prepare *p, struct error *err)
{
    return error_set(err, ERR_UNAVAILABLE, "interrupted after %zu rows; run it again to go on", p->rows);
}

/* Write the oldest row. ERR_FULL: there are enough; *has_one false: there is none (that is done, unless must_wait). */
static int
write_one(struct prepare *p, bool must_wait, bool *has_one, struct error *err)
{
    bool is_done;
    struct flight *f = window_take(p->window, must_wait, &is_done);

    *has_one = f != NULL;
    if (!f)
        return 0;
    int rc = f->rc;
    if (rc != 0)
        *err = f->err;
    if (rc != 0 || !is_done) {
        flight_free(f);
        return trainer_is_stopping() || rc == 0 ? interrupted(p, err) : rc;
    }
    p->rows++;
    prepared_add(&p->out, &f->entry, f->said);
    flight_free(f);
    tell_progress(p, false);
    return p->o.most && p->out.kept == (size_t)p->o.most ? ERR_FULL : 0;
}

/* Until there is room for one more, and, where not more than some are wanted, none is asked of in vain. */
static int
make_room(struct prepare *p, struct error *err)
{
    bool has_one = true;
    int rc = 0;

    while (rc == 0 && has_one) {
        size_t in_flight = window_count(p->window);
        bool must_wait = window_is_full(p->window) ||
                         (p->o.most && in_flight > 0 && p->out.kept + in_flight >= (size_t)p->o.most);
        rc = write_one(p, must_wait, &has_one, err);
    }
    return rc;
}

static int
write_all(struct prepare *p, struct error *err)
{
    bool has_one = true;
    int rc = 0;
    while (rc == 0 && has_one)
        rc = write_one(p, true, &has_one, err);
    return rc;
}

/* --- the rows --- */

/* Marks a digest; what it was seen as before, or NULL. */
static const char *
seen_before(struct prepare *p, const char *digest, const char *where)
{
    const char *before = json_string_value(json_object_get(p->digests, digest));
    if (!before)
        json_object_set_new(p->digests, digest, json_string(where));
    return before;
}

static int
read_row(struct prepare *p, struct flight *f, size_t number, json_t *row, const char *fault,
         struct error *err)
{
    struct entry *e = &f->entry;
    char where[32];

    if (!row) {
        entry_is_broken(e, number, fault);
        return 0;
    }
    int rc = entry_read(e, &p->o, p->helper, number, row, err);
    if (rc != 0 || e->reason)
        return rc;
    snprintf(where, sizeof(where), "row %zu", number);
    const char *before = seen_before(p, e->digest, where);
    if (before)
        entry_drop(e, strncmp(before, "row ", 4) == 0 ? "duplicate" : "overlap", before);
    else if (p->inquiry)
        rc = inquiry_before(p->inquiry, e, &f->said, err);
    return rc;
}

static int
row_cb(void *arg, size_t number, json_t *row, const char *fault, struct error *err)
{
    struct prepare *p = arg;
    int rc = make_room(p, err);

    if (rc != 0)
        return rc;
    if (trainer_is_stopping())
        return interrupted(p, err);
    struct flight *f = calloc(1, sizeof(*f));
    if (!f)
        return error_set(err, ERR_NOMEM, "out of memory");
    p->read++;
    rc = read_row(p, f, p->row_base + number, row, fault, err);
    if (rc != 0) {
        flight_free(f);
        return rc;
    }
    window_put(p->window, f, f->entry.reason || f->said || !p->inquiry);
    return 0;
}

/* --- the data set --- */

/* A directory's modules as rows. */
static int
each_task(struct prepare *p, const char *path, rows_cb *cb, struct error *err)
{
    struct task_set set;
    int rc = tasks_load(path, 0, &set, err);
    for (size_t i = 0; rc == 0 && i < set.n; i++) {
        AUTO_JSON json_t *row = json_pack("{s:s, s:s, s:s, s:i, s:i}", "name", set.tasks[i].name, "code",
                                          set.tasks[i].reference, "entry_point", set.tasks[i].entry_point,
                                          "level", set.tasks[i].level, "problem_id", set.tasks[i].problem);
        rc = cb(p, i + 1, row, row ? NULL : "not UTF-8", err);
    }
    tasks_free(&set);
    return rc;
}

static bool
ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

static int
each_row_of(struct prepare *p, const char *file, struct error *err)
{
    struct helper *parquet;
    struct stat status;
    char path[32];

    if (access(file, R_OK) != 0)
        return error_set(err, ERR_SYS, "cannot read %s", file);
    if (ends_with(file, ".parquet")) {
        int rc = helper_parquet(p->o.python, file, path, &parquet, err);
        if (rc != 0)
            return rc;
        rc = rows_each(path, row_cb, p, err);
        if (rc == 0)
            rc = helper_ended(parquet, err);
        helper_free(parquet);
        return rc;
    }
    if (stat(file, &status) == 0 && S_ISDIR(status.st_mode))
        return each_task(p, file, row_cb, err);
    return rows_each(file, row_cb, p, err);
}

static int
each_row(struct prepare *p, struct error *err)
{
    json_t *row;
    size_t i;
    int rc = 0;

    if (!p->fetched)
        return each_row_of(p, p->o.file, err);
    json_array_foreach(json_object_get(p->fetched, "files"), i, row)
    {
        p->row_base = p->read;
        if (rc == 0)
            rc = each_row_of(p, json_string_value(json_object_get(row, "file")), err);
    }
    return rc;
}

/* The digests of an evaluation's tasks. */
static int
read_overlap(struct prepare *p, struct error *err)
{
    struct task_set set;
    int rc = tasks_load(p->o.overlap, 0, &set, err);
    for (size_t i = 0; rc == 0 && i < set.n; i++) {
        struct entry e;
        rc = entry_of_task(&e, &p->o, p->helper, set.tasks[i].reference, set.tasks[i].entry_point, err);
        if (rc == 0 && !e.digest[0])
            fprintf(stderr, "trainer: %s of %s: %s; nothing is compared with it\n", set.tasks[i].name,
                    p->o.overlap, e.reason);
        else if (rc == 0)
            seen_before(p, e.digest, set.tasks[i].name);
        entry_release(&e);
    }
    tasks_free(&set);
    return rc;
}

/* --- the command --- */

/* Without a GPU nothing can be enlarged: rows say that they are untimed. */
static int
need_gpu(struct prepare *p, struct error *err)
{
    int rc = daemon_has_gpu(p->daemons[0], &p->o.enlarges, err);
    if (rc == 0 && !p->o.enlarges)
        fprintf(stderr, "trainer: the daemon has no GPU: nothing is enlarged, and rows are untimed\n");
    return rc;
}

static int
open_daemon(struct prepare *p, struct error *err)
{
    char path[OUTPUT_PATH_MAX];
    int rc = 0;

    for (int i = 0; rc == 0 && i < p->trainer->concurrency && i < CONCURRENCY_MAX; i++)
        rc = daemon_open(p->trainer, &p->daemons[i], err);
    rc = rc == 0 && p->o.enlarges ? need_gpu(p, err) : rc;
    rc =
        rc == 0 ? output_path(p->trainer->workdir, "data/processed", "prepare.journal.jsonl", path, err) : rc;
    return rc == 0 ? inquiry_new(&p->o, p->helper, path, &p->inquiry, err) : rc;
}

static int
open_all(struct prepare *p, struct error *err)
{
    int n = p->o.is_static ? 0 : p->trainer->concurrency;
    int rc = helper_new(p->o.python, &p->helper, err);

    rc = rc == 0 ? prepared_open(&p->out, &p->o, p->trainer->workdir, err) : rc;
    rc = rc == 0 && p->o.overlap ? read_overlap(p, err) : rc;
    rc = rc == 0 && !p->o.is_static ? open_daemon(p, err) : rc;
    n = n < CONCURRENCY_MAX ? n : CONCURRENCY_MAX;
    return rc == 0 ? window_new(n ? (size_t)n * WAITING_FOR_EACH : 1, n, work_cb, p, &p->window, err) : rc;
}

/* What is being asked ends first, and is in the journal. */
static void
close_window(struct prepare *p)
{
    struct flight *f;
    bool is_done;

    if (!p->window)
        return;
    window_stop(p->window);
    while ((f = window_take(p->window, true, &is_done)) != NULL)
        flight_free(f);
    window_free(p->window);
}

static void
close_all(struct prepare *p)
{
    inquiry_free(p->inquiry);
    helper_free(p->helper);
    for (int i = 0; i < CONCURRENCY_MAX; i++)
        http_client_free(p->daemons[i]);
    json_decref(p->digests);
    json_decref(p->fetched);
}

static int
write_summary(struct prepare *p, json_t *summary, struct error *err)
{
    char path[OUTPUT_PATH_MAX];
    int rc = output_path(p->trainer->workdir, "data/processed", "prepare.json", path, err);

    rc = rc == 0 ? output_document(path, summary, err) : rc;
    if (rc == 0)
        prepared_print(summary);
    return rc;
}

int
prepare_command(struct trainer *t, int argc, char **argv)
{
    const char *python = getenv("TRAINER_PYTHON");
    struct prepare p = { .trainer = t,
                         .o = { .most = 1000,
                                .lines_most = 200,
                                .licenses = licenses_default,
                                .python = python && *python ? python : "python3",
                                .labelled_by = "operations" },
                         .start_ns = clock_monotonic_ns() };
    struct error err = { 0 };

    argp_parse(&argp, argc, argv, 0, NULL, &p);
    AUTO_FREE char *source = output_last_part(p.o.file ? p.o.file : p.o.hub.id);
    p.o.source = p.o.source ? p.o.source : source;
    if (!p.o.source)
        return trainer_complain(TRAINER_CONFIG, "out of memory");
    p.o.hub.attempts = t->attempts;
    p.digests = json_object();
    int rc = p.o.file ? 0 : hub_fetch(&p.o.hub, t->workdir, &p.fetched, &err);
    rc = rc == 0 ? open_all(&p, &err) : rc;
    rc = rc == 0 ? each_row(&p, &err) : rc;
    rc = rc == 0 ? write_all(&p, &err) : rc;
    rc = rc == ERR_FULL ? 0 : rc;
    close_window(&p);
    AUTO_JSON json_t *summary = NULL;
    if (rc == 0)
        summary =
            prepared_summary(&p.out, p.fetched, p.rows, (double)(clock_monotonic_ns() - p.start_ns) / 1e9);
    int closed = prepared_close(&p.out, rc == 0, &err);
    rc = rc == 0 ? closed : rc;
    rc = rc == 0 ? write_summary(&p, summary, &err) : rc;
    close_all(&p);
    if (rc == 0 && p.out.kept == 0)
        return trainer_complain(TRAINER_FAILED, "no row is kept: %s/data/processed/dropped.jsonl says why",
                                t->workdir);
    return rc == 0 ? TRAINER_OK : trainer_failed(&err);
}
