/* trainer selftest: does the curriculum follow docs/training.md? It calls no service. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/trainer/curriculum.h"
#include "client/trainer/options.h"
#include "client/trainer/trainer.h"
#include "common/auto.h"

enum { MANY = 200 };

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    (void)arg;
    (void)state;
    return key == 'q' ? 0 : ARGP_ERR_UNKNOWN;
}

static const struct argp_option options[] = {
    { "quick", 'q', NULL, 0, "All that there is, for now: it takes no time", 0 },
    { 0 },
};
static const struct argp argp = {
    options, parse, NULL, "Check that the curricula draw what they are said to draw.", NULL, NULL, NULL
};

static void
say(int *failed, const char *what, bool is_well)
{
    printf("%-4s  %s\n", is_well ? "PASS" : "FAIL", what);
    *failed += !is_well;
}

/* How many of level 2 a round of n gets. */
static size_t
level_two_of(const struct curriculum *c, const struct task_set *set, size_t n, uint64_t seed)
{
    bool is_drawn[MANY];
    size_t two = 0;
    curriculum_draw(c, set, n, seed, is_drawn);
    for (size_t i = 0; i < set->n; i++)
        two += is_drawn[i] && set->tasks[i].level == 2;
    return two;
}

/* 0.05 more after each round from the fifth on, 0.5 at most; then never less. After each round the state is written and read. */
static bool
steps_as_described(const struct task_set *set)
{
    struct curriculum c;
    struct error err;
    bool is_well = true;

    curriculum_init(&c, CURRICULUM_STEPPED, 0);
    for (int round = 1; is_well && round <= 40; round++) {
        struct curriculum next;
        size_t rises = round < 5 ? 0 : (size_t)round - 4;
        size_t want = 10 + 5 * (rises < 8 ? rises : 8);
        curriculum_held_out(&c, round <= 20 ? 0.41 : 0);
        AUTO_JSON json_t *state = curriculum_json(&c);
        curriculum_init(&next, CURRICULUM_STEPPED, 0);
        is_well = curriculum_read(&next, state, &err) == 0 && level_two_of(&next, set, 100, 1) == want;
        curriculum_release(&c);
        c = next;
    }
    curriculum_release(&c);
    return is_well;
}

static bool
stays_at_four_tenths(const struct task_set *set)
{
    struct curriculum c;
    curriculum_init(&c, CURRICULUM_STEPPED, 0);
    for (int round = 0; round < 50; round++)
        curriculum_held_out(&c, 0.4);
    bool is_well = level_two_of(&c, set, 100, 1) == 10;
    curriculum_release(&c);
    return is_well;
}

/* 0.05 more after each round above 0.4, whichever figure it is by, 0.5 at most; never less. */
static bool
reacts_at_once(const struct task_set *set)
{
    struct curriculum c;
    bool is_well = true;
    curriculum_init(&c, CURRICULUM_SEED, 0);
    for (size_t round = 1; round <= 10; round++) {
        if (round % 2)
            curriculum_trained(&c, 0.41);
        else
            curriculum_held_out(&c, 0.41);
        is_well = is_well && level_two_of(&c, set, 100, 1) == 10 + 5 * (round < 8 ? round : 8);
        curriculum_trained(&c, 0.4);
    }
    curriculum_release(&c);
    return is_well;
}

static bool
follows_the_reward(const struct task_set *set)
{
    struct curriculum c;
    curriculum_init(&c, CURRICULUM_ADARFT, 0);
    bool is_well = level_two_of(&c, set, 50, 1) == 0;
    curriculum_rewarded(&c, 1);
    is_well = is_well && fabs(c.target - 50 * tanh(1)) < 1e-9 && level_two_of(&c, set, 50, 1) == 50;
    curriculum_release(&c);
    return is_well;
}

static bool
seeks_the_frontier(const struct task_set *set)
{
    struct curriculum c;
    curriculum_init(&c, CURRICULUM_FRONTIER, 0);
    for (size_t i = 0; i < set->n; i++) /* level 1 always solved, level 2 half the time */
        curriculum_tried(&c, set->tasks[i].name, 1000, set->tasks[i].level == 2 ? 500 : 1000);
    size_t two = level_two_of(&c, set, 50, 1);
    curriculum_release(&c);
    return two >= 45;
}

int
selftest_command(struct trainer *t, int argc, char **argv)
{
    int failed = 0;
    struct task tasks[MANY];
    char names[MANY][8];
    const struct task_set set = { .tasks = tasks, .n = MANY };

    (void)t;
    argp_parse(&argp, argc, argv, 0, NULL, NULL);
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof(names[i]), "t%03d", i);
        tasks[i] = (struct task){ .name = names[i], .level = 1 + i % 2 };
    }
    say(&failed, "stepped: 0.1 to 0.5 by 0.05 above 0.4, never down, across restarts",
        steps_as_described(&set));
    say(&failed, "stepped: 0.4 exactly is not above", stays_at_four_tenths(&set));
    say(&failed, "seed: 0.05 more at once above 0.4, by training or held-out answers", reacts_at_once(&set));
    say(&failed, "adarft: the target follows the reward", follows_the_reward(&set));
    say(&failed, "frontier: what is sometimes solved is drawn", seeks_the_frontier(&set));
    return failed ? TRAINER_FAILED : TRAINER_OK;
}
