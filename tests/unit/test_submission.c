/* test_submission.c - the table of moves, pair by pair, against the one that docs/lifecycle.md shows to people. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/submission/state.h"

#define PAGE "docs/lifecycle.md"

/* What the page says for each pair; -2: it has no such row. */
static int told[STATE_NSTATES][EVENT_NEVENTS];

static int
find_state(const char *name)
{
    for (int i = 0; i < STATE_NSTATES; i++)
        if (strcmp(state_name((enum state)i), name) == 0)
            return i;
    return strcmp(name, "-") == 0 ? STATE_ILLEGAL : -2;
}

/* "| queued | ast | - | …" into its cells; how many there were. */
static int
split(char *line, char *cells[], int most)
{
    char *rest = line;
    int n = 0;

    for (char *cell; n < most && (cell = strsep(&rest, "|")) != NULL;) {
        cell += strspn(cell, " \n");
        cell[strcspn(cell, " \n")] = '\0';
        if (*cell)
            cells[n++] = cell;
    }
    return n;
}

static int
read_page(void **state)
{
    FILE *page = fopen(PAGE, "r");
    char line[512], *cells[EVENT_NEVENTS + 2];
    int order[EVENT_NEVENTS], rows = 0;
    bool is_in = false;

    (void)state;
    assert_non_null(page);
    memset(told, 0xfe, sizeof(told));
    while (fgets(line, sizeof(line), page)) {
        int n = line[0] == '|' ? split(line, cells, EVENT_NEVENTS + 2) : 0;
        if (n == EVENT_NEVENTS + 1 && strcmp(cells[0], "state") == 0 && !is_in) {
            is_in = true;
            for (int i = 0; i < EVENT_NEVENTS; i++) {
                order[i] = -1;
                for (int e = 0; e < EVENT_NEVENTS; e++)
                    if (strcmp(event_name((enum event)e), cells[i + 1]) == 0)
                        order[i] = e;
                assert_int_not_equal(order[i], -1);
            }
        } else if (is_in && n == EVENT_NEVENTS + 1 && find_state(cells[0]) >= 0) {
            rows++;
            for (int i = 0; i < EVENT_NEVENTS; i++)
                told[find_state(cells[0])][order[i]] = find_state(cells[i + 1]);
        } else if (is_in && n == 0) {
            break;
        }
    }
    fclose(page);
    assert_int_equal(rows, STATE_NSTATES);
    return 0;
}

static void
every_pair_does_what_the_page_says(void **state)
{
    (void)state;
    for (int s = 0; s < STATE_NSTATES; s++) {
        for (int e = 0; e < EVENT_NEVENTS; e++) {
            int next = state_after((enum state)s, (enum event)e);
            if (next != told[s][e])
                fail_msg("%s in state %s leads to %d; %s says %d", event_name((enum event)e),
                         state_name((enum state)s), next, PAGE, told[s][e]);
        }
    }
}

static void
final_states_are_left_by_nothing_and_all_others_can_end(void **state)
{
    (void)state;
    for (int s = 0; s < STATE_NSTATES; s++) {
        for (int e = 0; e < EVENT_NEVENTS; e++)
            if (state_is_final((enum state)s))
                assert_int_equal(state_after((enum state)s, (enum event)e), STATE_ILLEGAL);
        if (!state_is_final((enum state)s)) {
            assert_int_equal(state_after((enum state)s, EVENT_FINISH), STATE_DONE);
            assert_int_equal(state_after((enum state)s, EVENT_CANCEL), STATE_CANCELLED);
        }
    }
}

/* The longest life, and that all states are on it but the two that end otherwise. */
static void
the_whole_way_visits_the_stages_in_order(void **state)
{
    static const enum event way[] = { EVENT_BEGIN, EVENT_NEXT, EVENT_NEXT,  EVENT_DEVICE,
                                      EVENT_NEXT,  EVENT_NEXT, EVENT_FINISH };
    static const int stages[] = { STAGE_AST, STAGE_COMPILE, -1, STAGE_TINY, STAGE_FULL, STAGE_TIMING, -1 };
    int now = STATE_QUEUED;

    (void)state;
    for (size_t i = 0; i < sizeof(way) / sizeof(way[0]); i++) {
        now = state_after((enum state)now, way[i]);
        assert_int_not_equal(now, STATE_ILLEGAL);
        assert_int_equal(stage_of_state((enum state)now), stages[i]);
    }
    assert_int_equal(now, STATE_DONE);
}

static void
names_lead_back(void **state)
{
    (void)state;
    for (int i = 0; i < STAGE_NSTAGES; i++)
        assert_int_equal(stage_find(stage_name((enum stage)i)), i);
    assert_int_equal(stage_find("ready"), -1);
    assert_int_equal(stage_find(""), -1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_does_what_the_page_says),
        cmocka_unit_test(final_states_are_left_by_nothing_and_all_others_can_end),
        cmocka_unit_test(the_whole_way_visits_the_stages_in_order),
        cmocka_unit_test(names_lead_back),
    };
    return cmocka_run_group_tests(tests, read_page, NULL);
}
