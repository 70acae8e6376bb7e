/*
 * trainer fuse: new tasks of level 2, composed of operations that are worth fusing: a head (convolution and batch norm, a linear
 * layer, layer norm, residual and norm) and up to three element-wise steps behind it. With --mined those come first that torch.fx
 * finds in real modules (client/python/finetune/mine.py). Each is registered with the daemon, which runs it, before it is
 * kept. The same seed makes the same tasks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/trainer/child.h"
#include "client/trainer/daemon.h"
#include "client/trainer/options.h"
#include "client/trainer/output.h"
#include "client/trainer/trainer.h"
#include "common/auto.h"
#include "common/statistics.h"
#include "common/buffer.h"
#include "common/clock.h"

enum { OPT_STATIC = 512, OPT_OUTPUT, OPT_MINED, OPT_WITH, OPT_PYTHON, TAILS_MOST = 3 };

struct fuse {
    struct trainer *trainer;
    const char *file;          /* below data/processed */
    const char *with, *python; /* tasks to be joined with the new ones; NULL: none */
    int n;
    bool is_static, is_mined;
};

static const struct argp_option options[] = {
    { "number", 'n', "N", 0, "Tasks to make (default 100)", 0 },
    { "output", OPT_OUTPUT, "NAME", 0,
      "File in data/processed of the working directory (default fused.jsonl)", 0 },
    { "mined", OPT_MINED, NULL, 0,
      "First the patterns that torch.fx finds in the models of transformers: conv-bn-relu, "
      "GEMM-bias-activation, layer "
      "norm-GELU",
      0 },
    { "with", OPT_WITH, "FILE", 0,
      "Tasks as JSON Lines: write them and the new ones to data/processed/rl_tasks.jsonl, too", 0 },
    { "python", OPT_PYTHON, "PROGRAM", 0,
      "The interpreter that has torch and transformers, for --mined (or TRAINER_PYTHON; default python3)",
      0 },
    { "static", OPT_STATIC, NULL, 0, "Ask no daemon: no task is run", 0 },
    { 0 },
};

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct fuse *f = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = f->trainer;
        return 0;
    case 'n':
        f->n = option_int(state, "--number", arg, 1, 1000);
        return 0;
    case OPT_OUTPUT:
        f->file = arg;
        return 0;
    case OPT_MINED:
        f->is_mined = true;
        return 0;
    case OPT_WITH:
        f->with = arg;
        return 0;
    case OPT_PYTHON:
        f->python = arg;
        return 0;
    case OPT_STATIC:
        f->is_static = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = { { &trainer_common_argp, 0, NULL, -1 }, { 0 } };
static const struct argp argp = {
    options,  parse, NULL, "Compose new tasks of level 2 from operations that are worth fusing.",
    children, NULL,  NULL
};

/* --- the grammar --- */

struct head {
    const char *name;
    int operations;
    bool is_image;
    const char *init, *arguments, *forward, *inputs;
};

#define IMAGE "torch.randn(BATCH, CHANNELS, SIDE, SIDE)"
#define ROWS "torch.randn(ROWS, FEATURES)"

static const struct head heads[] = {
    { "conv_bn", 2, true,
      "        self.conv = nn.Conv2d(CHANNELS, OUT_CHANNELS, 3, padding=1)\n"
      "        self.norm = nn.BatchNorm2d(OUT_CHANNELS)\n",
      "x", "        x = self.norm(self.conv(x))\n", IMAGE },
    { "conv", 1, true, "        self.conv = nn.Conv2d(CHANNELS, OUT_CHANNELS, 3, padding=1)\n", "x",
      "        x = self.conv(x)\n", IMAGE },
    { "gemm_bias", 1, false, "        self.linear = nn.Linear(FEATURES, OUT_FEATURES)\n", "x",
      "        x = self.linear(x)\n", ROWS },
    { "layer_norm", 1, false, "        self.norm = nn.LayerNorm(FEATURES)\n", "x",
      "        x = self.norm(x)\n", ROWS },
    { "residual_norm", 2, false, "        self.norm = nn.LayerNorm(FEATURES)\n", "x, residual",
      "        x = self.norm(x + residual)\n", ROWS ", " ROWS },
};

static const struct {
    const char *name, *step;
} tails[] = {
    { "relu", "        x = torch.relu(x)\n" },
    { "gelu", "        x = F.gelu(x)\n" },
    { "silu", "        x = F.silu(x)\n" },
    { "sigmoid", "        x = torch.sigmoid(x)\n" },
    { "tanh", "        x = torch.tanh(x)\n" },
    { "leaky_relu", "        x = F.leaky_relu(x, 0.1)\n" },
    { "scale", "        x = x * 0.5\n" },
    { "shift", "        x = x + 1.0\n" },
    { "clamp", "        x = torch.clamp(x, -1.0, 1.0)\n" },
};

/* One task, drawn. operations: of its forward. 0 or ERR_NOMEM. */
static int
compose(uint64_t *state, struct buffer *name, struct buffer *source, int *operations)
{
    static const int rows[] = { 128, 512, 2048 }, features[] = { 256, 512, 1024 }, batch[] = { 4, 16 },
                     channels[] = { 8, 16, 32 }, sides[] = { 16, 32 };
    const struct head *head = &heads[stats_random(state) % ARRAY_LEN(heads)];
    size_t n = 1 + stats_random(state) % TAILS_MOST, last = ARRAY_LEN(tails);
    int bad = buffer_add(name, head->name);

    *operations = head->operations + (int)n;
    bad |= buffer_add(source, "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n");
    if (head->is_image)
        bad |= buffer_printf(source, "BATCH = %d\nCHANNELS = %d\nOUT_CHANNELS = %d\nSIDE = %d\n",
                             batch[stats_random(state) % 2], channels[stats_random(state) % 3],
                             channels[stats_random(state) % 3], sides[stats_random(state) % 2]);
    else
        bad |= buffer_printf(source, "ROWS = %d\nFEATURES = %d\nOUT_FEATURES = %d\n",
                             rows[stats_random(state) % 3], features[stats_random(state) % 3],
                             features[stats_random(state) % 3]);
    bad |=
        buffer_printf(source,
                      "\n\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n%s\n"
                      "    def forward(self, %s):\n%s",
                      head->init, head->arguments, head->forward);
    for (size_t i = 0; i < n; i++) {
        size_t tail = stats_random(state) % ARRAY_LEN(tails);
        tail = tail == last ? (tail + 1) % ARRAY_LEN(tails) : tail; /* not the same twice in a row */
        bad |= buffer_add(source, tails[tail].step) | buffer_printf(name, "_%s", tails[tail].name);
        last = tail;
    }
    bad |= buffer_printf(source,
                         "        return x\n\n\ndef get_inputs():\n    return [%s]\n\n\n"
                         "def get_init_inputs():\n    return []\n",
                         head->inputs);
    return bad ? ERR_NOMEM : 0;
}

/* --- keeping --- */

/* 0: kept or not, which *is_kept says. */
static int
keep(const struct fuse *f, struct http_client *daemon, const char *from, const char *name, const char *source,
     int operations, struct output *out, bool *is_kept, struct error *err)
{
    struct task t = {
        .name = (char *)name, .reference = (char *)source, .entry_point = (char *)"Model", .level = 2
    };
    AUTO_JSON json_t *known = NULL;
    int rc = f->is_static ? 0 : daemon_register(daemon, &t, &known, err);

    *is_kept = false;
    if (rc == ERR_INPUT) {
        fprintf(stderr, "trainer: %s: %s; left out\n", name, err->text);
        return 0;
    }
    if (rc != 0)
        return rc;
    if (json_array_size(json_object_get(known, "flags")) > 0) {
        AUTO_FREE char *flags = json_dumps(json_object_get(known, "flags"), JSON_COMPACT);
        fprintf(stderr, "trainer: %s: %s; left out\n", name, flags ? flags : "flagged");
        return 0;
    }
    AUTO_JSON json_t *row =
        json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:I, s:s}", "name", name, "source", from, "pytorch_code",
                  source, "entry_point", "Model", "level", 2, "operations", operations, "seed",
                  (json_int_t)f->trainer->seed, "checked", f->is_static ? "static" : "ran");
    output_line(out, row);
    *is_kept = true;
    return 0;
}

static int
make_all(const struct fuse *f, struct http_client *daemon, struct output *out, int *kept, struct error *err)
{
    AUTO_JSON json_t *seen = json_object();
    uint64_t state = f->trainer->seed;
    const int64_t start_ns = clock_monotonic_ns();
    int rc = 0;

    /* A seed that draws the same patterns again and again ends, too. */
    for (int drawn = 0; rc == 0 && *kept < f->n && drawn < 200 * f->n; drawn++) {
        AUTO_BUFFER struct buffer pattern = BUFFER_INIT, source = BUFFER_INIT;
        char name[160];
        int operations;
        bool is_kept;
        if (trainer_is_stopping())
            return error_set(err, ERR_UNAVAILABLE, "interrupted");
        if (compose(&state, &pattern, &source, &operations) != 0)
            return error_set(err, ERR_NOMEM, "out of memory");
        if (json_object_get(seen, pattern.data)) /* other sizes alone do not make another task */
            continue;
        json_object_set_new(seen, pattern.data, json_true());
        snprintf(name, sizeof(name), "fuse/%.140s", pattern.data);
        rc = keep(f, daemon, "fuse", name, source.data, operations, out, &is_kept, err);
        if (rc == 0 && is_kept && ++*kept % 10 == 0)
            fprintf(stderr, "%d of %d kept; %.0f s\n", *kept, f->n,
                    (double)(clock_monotonic_ns() - start_ns) / 1e9);
    }
    return rc;
}

/* --- what is mined, and what is there --- */

/* Have Python write the patterns to a file. */
static int
mine(const struct fuse *f, const char *path, struct error *err)
{
    const char *argv[] = { f->python, "-m", "finetune", "mine", path, NULL };
    int rc = finetune_environment(err);
    if (rc != 0)
        return rc;
    pid_t pid = child_spawn(f->python, (char *const *)(uintptr_t)argv);
    if (pid < 0)
        return error_set(err, ERR_SYS, "cannot start %s", f->python);
    int status = child_wait(pid, NULL, NULL);
    return status == 0
               ? 0
               : error_set(err, ERR_INPUT, "the patterns of --mined were not found (status %d)", status);
}

static int
keep_mined(const struct fuse *f, struct http_client *daemon, FILE *from, struct output *out, int *kept,
           struct error *err)
{
    AUTO_FREE char *line = NULL;
    size_t capacity = 0;
    int rc = 0;

    while (rc == 0 && *kept < f->n && getline(&line, &capacity, from) > 0) {
        AUTO_JSON json_t *row = json_loads(line, 0, NULL);
        const char *pattern = json_string_value(json_object_get(row, "name"));
        const char *source = json_string_value(json_object_get(row, "source"));
        char name[160];
        bool is_kept = false;
        if (!pattern || !source)
            return error_set(err, ERR_INPUT, "what was mined is no task: %.80s", line);
        snprintf(name, sizeof(name), "mined/%.140s", pattern);
        rc = keep(f, daemon, "mined", name, source,
                  (int)json_integer_value(json_object_get(row, "operations")), out, &is_kept, err);
        *kept += is_kept;
    }
    return rc;
}

static int
add_mined(const struct fuse *f, struct http_client *daemon, struct output *out, int *kept, struct error *err)
{
    char path[] = "/tmp/trainer-mined-XXXXXX";
    AUTO_FD int fd = mkstemp(path);
    if (fd < 0)
        return error_set(err, ERR_SYS, "cannot make %s", path);
    int rc = mine(f, path, err);
    FILE *from = rc == 0 ? fopen(path, "r") : NULL;
    if (rc == 0 && !from)
        rc = error_set(err, ERR_SYS, "cannot read %s", path);
    rc = rc == 0 ? keep_mined(f, daemon, from, out, kept, err) : rc;
    if (from)
        fclose(from);
    unlink(path);
    return rc;
}

/* The tasks of --with and the new ones as one file. */
static int
join(const struct fuse *f, const char *made, struct error *err)
{
    const char *const parts[] = { f->with, made };
    char path[OUTPUT_PATH_MAX];
    int rc = output_path(f->trainer->workdir, "data/processed", "rl_tasks.jsonl", path, err);
    return rc == 0 ? output_joined(path, parts, ARRAY_LEN(parts), err) : rc;
}

int
fuse_command(struct trainer *t, int argc, char **argv)
{
    const char *python = getenv("TRAINER_PYTHON");
    struct fuse f = {
        .trainer = t, .n = 100, .file = "fused.jsonl", .python = python && *python ? python : "python3"
    };
    struct http_client *daemon = NULL;
    struct output out = { .file = NULL };
    struct error err = { 0 };
    char path[OUTPUT_PATH_MAX];
    int kept = 0;

    argp_parse(&argp, argc, argv, 0, NULL, &f);
    int rc = daemon_open(t, &daemon, &err);
    rc = rc == 0 ? output_path(t->workdir, "data/processed", f.file, path, &err) : rc;
    rc = rc == 0 ? output_begin(&out, path, &err) : rc;
    rc = rc == 0 && f.is_mined ? add_mined(&f, daemon, &out, &kept, &err) : rc;
    rc = rc == 0 ? make_all(&f, daemon, &out, &kept, &err) : rc;
    if (rc == 0) {
        rc = output_end(&out, &err);
    } else if (out.file) {
        fclose(out.file);
        unlink(out.partial);
    }
    http_client_free(daemon);
    rc = rc == 0 && f.with ? join(&f, path, &err) : rc;
    if (rc != 0)
        return trainer_failed(&err);
    printf("%d tasks in %s\n", kept, path);
    return kept == f.n ? TRAINER_OK
                       : trainer_complain(TRAINER_FAILED, "the grammar gave %d tasks of %d", kept, f.n);
}
