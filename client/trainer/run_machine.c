#include "client/trainer/run_machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wordexp.h>

#include "client/trainer/curriculum.h"
#include "client/trainer/run_files.h"
#include "client/trainer/run_state.h"
#include "client/trainer/runconf.h"
#include "common/auto.h"
#include "common/buffer.h"

enum { DEVICES_MAX = 1024 };

/* A set of GPUs, by their number on this machine. */
struct devices {
    bool has[DEVICES_MAX];
    int n;
};

/* "0,1,7". */
static int
devices_read(const char *name, const char *text, struct devices *out)
{
    *out = (struct devices){ .n = 0 };
    for (const char *at = text; *at;) {
        char *end;
        long one = strtol(at, &end, 10);
        bool is_well = end != at && one >= 0 && one < DEVICES_MAX && !out->has[one] &&
                       (*end == '\0' || (*end == ',' && end[1]));
        if (!is_well)
            return trainer_complain(
                TRAINER_CONFIG, "%s takes numbers of GPUs between commas, each once, not \"%s\"", name, text);
        out->has[one] = true;
        out->n++;
        at = *end ? end + 1 : end;
    }
    return TRAINER_OK;
}

int
run_devices_number(const char *text)
{
    int n = *text != '\0';
    for (const char *at = text; *at; at++)
        n += *at == ',';
    return n;
}

static int
check_apart(const char *a, const struct devices *of_a, const char *b, const struct devices *of_b)
{
    for (int i = 0; i < DEVICES_MAX; i++)
        if (of_a->has[i] && of_b->has[i])
            return trainer_complain(TRAINER_CONFIG, "GPU %d is used twice: %s and %s both have it", i, a, b);
    return TRAINER_OK;
}

/* --- the command that serves the model --- */

/* "$NAME" that the environment has not; out is empty where there is none. */
static void
find_unset(const char *command, char out[128])
{
    *out = '\0';
    for (const char *at = command; (at = strchr(at, '$')); at++) {
        const char *name = at + 1 + (at[1] == '{');
        size_t size = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789");
        bool has_other = at[1] == '{' && name[size] != '}'; /* ${NAME:-otherwise} */
        snprintf(out, 128, "%.*s", (int)size, name);
        if (size && !has_other && !getenv(out))
            return;
    }
    *out = '\0';
}

static bool
is_program(const struct run *r, const char *name)
{
    char full[PATH_MAX];
    const char *path = getenv("PATH");
    if (strchr(name, '/'))
        return access(run_path(r, name, full), X_OK) == 0;
    for (const char *at = path ? path : ""; *at;) {
        size_t size = strcspn(at, ":");
        snprintf(full, sizeof(full), "%.*s/%s", (int)size, at, name);
        if (access(full, X_OK) == 0)
            return true;
        at += size + (at[size] == ':');
    }
    return false;
}

/* The value of --NAME VALUE or --NAME=VALUE; 1 where it is not given. */
static int
parallel(const wordexp_t *words, const char *name)
{
    size_t size = strlen(name);
    for (size_t i = 0; i < words->we_wordc; i++) {
        const char *word = words->we_wordv[i];
        if (strncmp(word, name, size) == 0 && word[size] == '=')
            return atoi(word + size + 1);
        if (strcmp(word, name) == 0 && i + 1 < words->we_wordc)
            return atoi(words->we_wordv[i + 1]);
    }
    return 1;
}

/* The words of a plain command: what it sets, what it starts, how many GPUs vLLM is told to take. */
static int
check_words(const struct run *r, const wordexp_t *words, const char **devices)
{
    static const char own[] = "CUDA_VISIBLE_DEVICES=";
    const int gpus = (int)runconf_number(r->conf, "", "gpus");
    const int wanted = parallel(words, "--tensor-parallel-size") * parallel(words, "--data-parallel-size");
    size_t i = 0;

    for (; i < words->we_wordc; i++) {
        const char *word = words->we_wordv[i];
        if (strncmp(word, own, sizeof(own) - 1) == 0)
            *devices = word + sizeof(own) - 1;
        if (strcmp(word, "exec") != 0 && strcmp(word, "env") != 0 && !strchr(word, '='))
            break;
    }
    if (i < words->we_wordc && *words->we_wordv[i] != '-' && !is_program(r, words->we_wordv[i]))
        return trainer_complain(TRAINER_CONFIG, "endpoint.start: there is no program \"%s\" in PATH",
                                words->we_wordv[i]);
    if (wanted > gpus)
        return trainer_complain(TRAINER_CONFIG,
                                "endpoint.start asks for %d GPUs (tensor times data parallel); gpus = %d",
                                wanted, gpus);
    return TRAINER_OK;
}

/* Has the plan a step of this kind ("serve", "trains") that is not finished? */
static bool
has_step(struct run *r, const char *kind)
{
    size_t i;
    json_t *step;
    json_array_foreach(r->steps, i, step)
    {
        if (json_object_get(step, kind) && !(r->state && run_state_is_finished(r, step)))
            return true;
    }
    return false;
}

/* devices: where the command names some of its own. */
static int
check_endpoint(struct run *r, struct devices *devices)
{
    AUTO_BUFFER struct buffer command = BUFFER_INIT;
    const char *named = "";
    char unset[128];
    wordexp_t words;

    if (!*r->serving.command || !has_step(r, "serve"))
        return TRAINER_OK;
    if (serving_command(&r->serving, &command) != 0)
        return trainer_complain(TRAINER_CONFIG, "out of memory");
    find_unset(command.data, unset);
    if (*unset)
        return trainer_complain(TRAINER_CONFIG,
                                "endpoint.start uses $%s, which is not set in the environment", unset);
    /* A command of more than words (pipes, lists) is the shell's to judge. */
    if (wordexp(command.data, &words, WRDE_NOCMD) != 0)
        return TRAINER_OK;
    int status = check_words(r, &words, &named);
    if (status == TRAINER_OK)
        status = devices_read("endpoint.start: CUDA_VISIBLE_DEVICES", named, devices);
    wordfree(&words);
    return status;
}

/* --- GPUs --- */

static bool
is_here(const char *url)
{
    return strstr(url, "//127.") || strstr(url, "//localhost") || strstr(url, "//[::1]");
}

static int
check_devices(const struct run *r, const struct devices *endpoint)
{
    const char *own = run_text(r, "", "devices"), *judge = run_text(r, "verifier", "devices");
    const bool is_kept = json_is_true(runconf_get(r->conf, "endpoint", "keep"));
    const int gpus = (int)runconf_number(r->conf, "", "gpus");
    struct devices training, verifierd;

    if (devices_read("devices", own, &training) != TRAINER_OK ||
        devices_read("verifier.devices", judge, &verifierd) != TRAINER_OK)
        return TRAINER_CONFIG;
    if (training.n && training.n != gpus)
        return trainer_complain(TRAINER_CONFIG, "devices names %d GPUs; gpus = %d", training.n, gpus);
    if (!training.n && runconf_number(r->conf, "", "gpu_memory_gb") > 0) {
        for (int i = 0; i < gpus && i < DEVICES_MAX; i++)
            training.has[i] = true;
    }
    if (!verifierd.n && runconf_number(r->conf, "", "gpu_memory_gb") > 0 && is_here(r->trainer->daemon_url)) {
        static const char says[] =
            "verifier.devices does not say which GPUs of this machine verifierd has: on one that the "
            "endpoint or training uses, too, its timings are inconclusive";
        if (gpus > 1)
            return trainer_complain(TRAINER_CONFIG, "%s", says);
        run_say(r, "%s", says); /* one GPU cannot be divided */
    }
    int status = check_apart("verifier.devices", &verifierd, "training", &training);
    if (status == TRAINER_OK)
        status =
            check_apart("verifier.devices", &verifierd, "the endpoint", endpoint->n ? endpoint : &training);
    if (status == TRAINER_OK && is_kept && *r->serving.command)
        status = check_apart("an endpoint that is kept (endpoint.keep)", endpoint->n ? endpoint : &training,
                             "training", &training);
    return status;
}

/* The base in 8 bits. */
static int
check_eight_bits(struct run *r)
{
    static const char *const sections[] = { "sft", "train" };
    if (!has_step(r, "trains"))
        return TRAINER_OK;
    for (size_t i = 0; i < ARRAY_LEN(sections); i++) {
        const char *argv[] = { NULL, "-c",
                               "import importlib.util, sys; "
                               "sys.exit(0 if importlib.util.find_spec('bitsandbytes') else 3)",
                               NULL };
        if (runconf_number(r->conf, sections[i], "base_bits") == 8 && run_python_wait(r, argv) != 0)
            return trainer_complain(TRAINER_CONFIG, "%s.base_bits = 8 needs bitsandbytes, which %s has not",
                                    sections[i], run_python(r));
    }
    return TRAINER_OK;
}

/* --- the curriculum --- */

/* How often it can have moved before the last round is drawn. */
static int
moves(const struct run *r, enum curriculum_kind kind)
{
    const int rounds = (int)runconf_number(r->conf, "rl", "rounds");
    const bool has_held_out = *run_text(r, "rl", "held_out");
    if (kind == CURRICULUM_STEPPED) /* a held-out figure before each round; it wants a full window */
        return has_held_out ? rounds - (CURRICULUM_WINDOW - 1) : 0;
    return rounds - 1 + (kind == CURRICULUM_SEED && has_held_out);
}

/* One that cannot move in this run is said, since it may be meant. A name that is none is its command's to refuse. */
static void
say_if_stuck(const struct run *r)
{
    const char *name = run_text(r, "rl", "curriculum"), *method = run_text(r, "rl", "method");
    enum curriculum_kind kind;
    struct error ignored;

    if (!*name || curriculum_kind_of(name, &kind, &ignored) != 0)
        return;
    const bool has_rounds = strcmp(method, "bestofn") == 0 || strcmp(method, "weighted") == 0;
    const bool has_share = kind == CURRICULUM_STEPPED || kind == CURRICULUM_SEED;
    const int n = moves(r, kind), tasks = (int)runconf_number(r->conf, "rl", "max_tasks");
    const int most = n < 8 ? 10 + 5 * n : 50;
    if (!has_rounds)
        run_say(r, "rl.curriculum = %s cannot move: %s has no rounds, and draws from rl.level", name, method);
    else if (kind != CURRICULUM_FIXED && n <= 0)
        run_say(r, "rl.curriculum = %s cannot move in %d rounds%s", name,
                (int)runconf_number(r->conf, "rl", "rounds"),
                kind != CURRICULUM_STEPPED       ? ""
                : *run_text(r, "rl", "held_out") ? ": it wants five held-out evaluations first"
                                                 : ": it is moved by rl.held_out alone");
    else if (has_share && tasks * most / 100 == tasks / 10)
        run_say(r,
                "rl.curriculum = %s cannot move: of %d tasks a round %d are of level 2 at 10 %% and at %d %%",
                name, tasks, tasks / 10, most);
}

static int
check_teacher(const struct run *r)
{
    if (*run_text(r, "teacher", "url") && !*run_text(r, "teacher", "model"))
        return trainer_complain(TRAINER_CONFIG, "teacher.url is given: teacher.model, too, is needed");
    if (*run_text(r, "teacher", "url") && runconf_number(r->conf, "rl", "fused") == 0)
        return trainer_complain(TRAINER_CONFIG,
                                "teacher.url is given, and rl.fused = 0 leaves it no task to answer");
    return TRAINER_OK;
}

int
run_machine_check(struct run *r)
{
    struct devices endpoint = { .n = 0 };
    int program = check_endpoint(r, &endpoint), gpus = check_devices(r, &endpoint),
        bits = check_eight_bits(r);
    int teacher = check_teacher(r);
    say_if_stuck(r);
    return program ? program : gpus ? gpus : bits ? bits : teacher;
}
