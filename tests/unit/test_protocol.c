/*
 * test_protocol.c - the protocol by which nodes share a database, in a simulation: leases, claims, fences and outcomes that
 * are not known, with everything random drawn from a seed. What a statement does is modelled as one step, as
 * server/store/pgsql/claims.c has it; what a node does is server/submission/node.c's and server/store/pgsql/transaction.c's.
 *
 * Nodes are killed, started again and stopped for up to a minute; answers are late or never come, before the commit or
 * after it; waits for the standby are broken off (the server warns), and the standby takes over, with a clock that is off.
 * Promises are checked at each step, and each is broken by the mutation that gives up what keeps it.
 *
 * PROTOCOL_SEEDS says how many seeds are tried, and PROTOCOL_SEED is one to look at.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NODES 3
#define JOBS 6
#define SLOTS 2
#define TICK_MS 250
#define CHAOS_MS 120000
#define CALM_MS 120000
#define LEASE_MS 15000
#define RENEW_MS (LEASE_MS / 3)

enum mutation {
    NO_ATTEMPT_CHECK = 1 << 0, /* a verdict is taken whatever claim it comes under */
    NO_LEASE_CHECK = 1 << 1,   /* a claim is granted without a lease */
    NO_WARNING_CHECK = 1 << 2, /* a commit of which the server warned counts as durable */
    NOT_MATERIALIZED = 1 << 3, /* the plan looks for what to claim twice, and meets another row */
    LATE_LEASE = 1 << 4,       /* the lease counts from the answer to its renewal */
    NO_OUTCOME_CHECK = 1 << 5, /* what got no answer is made again without a look whether it is there */
    LATE_JOIN = 1 << 6,        /* a lease is believed that was taken too long ago */
};

/* --- the database --- */

enum job_state { ABSENT, WAITS, RUNS, ENDED };

struct database {
    struct {
        enum job_state state;
        int node, claim;
    } jobs[JOBS];
    struct {
        int claim, written; /* of the verdict */
    } verdicts[JOBS];
    struct {
        int epoch;
        int64_t until_ms;
    } nodes[NODES];
    int numbers[NODES]; /* of each writer's last transaction */
    int added[JOBS];
};

enum op { NOTHING, ADD, CLAIM, FINISH, REAP, JOIN, RENEW, ASK };

/* What is sent, and what comes of it. */
struct message {
    enum op op;
    int job, claim, epoch, number;
    int64_t at_ms, answer_ms, sent_ms; /* when it is made, and when the answer comes */
    bool is_cut;                       /* the answer never comes */
    bool is_made, is_good, is_warned;
};

struct node {
    bool is_dead, is_lost;
    int64_t back_ms;  /* it is dead or stopped until then */
    int64_t until_ms; /* its lease, by its own clock */
    int64_t timer_ms; /* the next renewal */
    int epoch, number;
    bool wants_reap;
    struct {
        int job, claim;
        int64_t done_ms;
    } held[SLOTS];        /* job -1: free */
    struct message write; /* under way on the writer's connection, */
    struct message again; /* which is made anew, or whose outcome is asked for, */
    struct message renew; /* and on the keeper's */
};

struct sim {
    uint64_t random;
    unsigned mutations;
    int64_t now_ms, skew_ms; /* of the database's clock */
    struct database db, standby;
    struct node nodes[NODES];
    bool is_acked[JOBS], is_asked[JOBS];
    int told[JOBS]; /* the claim of the verdict that a client was told */
    const char *broken;
};

static uint64_t
draw(struct sim *s, uint64_t n)
{
    s->random += 0x9e3779b97f4a7c15U;
    uint64_t x = s->random;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return (x ^ (x >> 31)) % n;
}

static bool
is_chaos(const struct sim *s)
{
    return s->now_ms < CHAOS_MS;
}

/* One in n, as long as things go wrong. */
static bool
mishap(struct sim *s, uint64_t n)
{
    return is_chaos(s) && draw(s, n) == 0;
}

static void
promise(struct sim *s, bool holds, const char *what)
{
    if (!holds && !s->broken)
        s->broken = what;
}

static bool
has_lease(const struct sim *s, int node, int epoch)
{
    return s->db.nodes[node].epoch == epoch && s->db.nodes[node].until_ms > s->now_ms + s->skew_ms;
}

static bool
claim(struct sim *s, int node, struct message *m)
{
    int start = (int)draw(s, JOBS);
    bool is_leased = has_lease(s, node, m->epoch);

    if (!is_leased && !(s->mutations & NO_LEASE_CHECK))
        return false;
    for (int i = 0, found = 0; i < JOBS; i++) {
        int j = (start + i) % JOBS;
        if (s->db.jobs[j].state != WAITS)
            continue;
        promise(s, is_leased, "P4: claimed without a lease");
        s->db.jobs[j].state = RUNS;
        s->db.jobs[j].node = node;
        m->claim = ++s->db.jobs[j].claim;
        m->job = j;
        if (++found == ((s->mutations & NOT_MATERIALIZED) && draw(s, 4) == 0 ? 2 : 1))
            return true;
    }
    return m->job >= 0;
}

static bool
finish(struct sim *s, const struct message *m)
{
    struct database *db = &s->db;
    bool is_same = db->jobs[m->job].claim == m->claim;

    if (db->jobs[m->job].state != WAITS && db->jobs[m->job].state != RUNS)
        return false;
    if (!is_same && !(s->mutations & NO_ATTEMPT_CHECK))
        return false;
    promise(s, is_same, "P3: a verdict under another claim than the job's");
    db->jobs[m->job].state = ENDED;
    db->verdicts[m->job].claim = m->claim;
    promise(s, ++db->verdicts[m->job].written == 1, "P2: a second verdict");
    return true;
}

static void
take_back(struct sim *s, int only)
{
    for (int j = 0; j < JOBS; j++) {
        int node = s->db.jobs[j].node;
        if (s->db.jobs[j].state != RUNS ||
            (only >= 0 ? node != only : has_lease(s, node, s->db.nodes[node].epoch)))
            continue;
        s->db.jobs[j].state = WAITS;
        s->db.jobs[j].claim++;
    }
}

/* One transaction. */
static void
make(struct sim *s, int node, struct message *m)
{
    m->is_made = m->is_good = true;
    switch (m->op) {
    case ADD:
        promise(s, ++s->db.added[m->job] == 1, "P1: what was asked for once is there twice");
        s->db.jobs[m->job].state = WAITS;
        break;
    case CLAIM:
        m->is_good = claim(s, node, m);
        break;
    case FINISH:
        m->is_good = finish(s, m);
        break;
    case REAP:
        take_back(s, -1);
        break;
    case JOIN:
        m->epoch = ++s->db.nodes[node].epoch;
        s->db.nodes[node].until_ms = s->now_ms + s->skew_ms + LEASE_MS;
        take_back(s, node);
        break;
    case RENEW:
        m->is_good = has_lease(s, node, m->epoch);
        if (m->is_good)
            s->db.nodes[node].until_ms = s->now_ms + s->skew_ms + LEASE_MS;
        break;
    case ASK:
        m->is_good = s->db.numbers[node] == m->number;
        break;
    case NOTHING:
        break;
    }
    if (m->op != RENEW && m->op != ASK)
        s->db.numbers[node] = m->number;
    m->is_warned = mishap(s, 40); /* the wait for the standby is broken off */
    if (!m->is_warned)
        s->standby = s->db;
}

/* --- a node --- */

static void
send(struct sim *s, struct message *m)
{
    m->sent_ms = s->now_ms;
    m->at_ms = s->now_ms + (int64_t)draw(s, mishap(s, 30) ? 20000 : 400);
    m->answer_ms = m->at_ms + (int64_t)draw(s, mishap(s, 30) ? 20000 : 400);
    m->is_cut = mishap(s, 25);
    m->is_made = m->is_good = m->is_warned = false;
}

static void
begin(struct sim *s, struct node *n, enum op op, int job, int number)
{
    n->write =
        (struct message){ .op = op, .job = job, .claim = number, .epoch = n->epoch, .number = ++n->number };
    send(s, &n->write);
}

static void
drop_all(struct node *n)
{
    for (int i = 0; i < SLOTS; i++)
        n->held[i].job = -1;
}

static void
lose(struct node *n)
{
    n->is_lost = true;
    drop_all(n);
}

static void
hold(struct sim *s, struct node *n, const struct message *m)
{
    for (int i = 0; i < SLOTS; i++) {
        if (n->held[i].job >= 0)
            continue;
        n->held[i].job = m->job;
        n->held[i].claim = m->claim;
        n->held[i].done_ms = s->now_ms + 500 + (int64_t)draw(s, 20000);
        return;
    }
}

/* What is durable by now. */
static void
take_answer(struct sim *s, struct node *n, const struct message *m)
{
    if (m->op == ADD)
        s->is_acked[m->job] = true;
    if (m->op == CLAIM && m->is_good && !n->is_lost && m->epoch == n->epoch)
        hold(s, n, m); /* else it is put back by whoever reaps, or by the joining */
    if (m->op == FINISH && m->is_good)
        s->told[m->job] = m->claim;
    bool is_late = s->now_ms > m->sent_ms + LEASE_MS - LEASE_MS / 3 && !(s->mutations & LATE_JOIN);
    if (m->op == JOIN && !is_late) {
        n->epoch = m->epoch;
        n->until_ms = m->sent_ms + LEASE_MS;
        n->is_lost = false;
    }
}

static void
take_outcome(struct sim *s, struct node *n, const struct message *asked)
{
    struct message m = n->again;

    n->again.op = NOTHING;
    if (asked->is_good) {
        take_answer(s, n, &m);
        return;
    }
    if (m.op == CLAIM)
        m.job = -1;
    m.number = ++n->number;
    n->write = m;
    send(s, &n->write);
}

static void
read_write(struct sim *s, struct node *n)
{
    struct message m = n->write;
    bool is_warned = m.is_warned && !(s->mutations & NO_WARNING_CHECK);

    if (m.op == NOTHING || s->now_ms < m.answer_ms)
        return;
    n->write.op = NOTHING;
    if (m.op == ASK && (m.is_cut || is_warned)) {
        n->write = (struct message){ .op = ASK, .number = m.number };
        send(s, &n->write);
    } else if (m.op == ASK) {
        take_outcome(s, n, &m);
    } else if (m.is_cut || is_warned) {
        n->again = m;
        n->write = (struct message){ .op = ASK, .number = (s->mutations & NO_OUTCOME_CHECK) ? -1 : m.number };
        send(s, &n->write);
    } else {
        take_answer(s, n, &m);
    }
}

static void
read_renewal(struct sim *s, struct node *n)
{
    struct message m = n->renew;

    if (m.op == NOTHING || s->now_ms < m.answer_ms)
        return;
    n->renew.op = NOTHING;
    if (m.is_cut || m.is_warned || m.epoch != n->epoch)
        return;
    if (!m.is_good)
        lose(n);
    else
        n->until_ms = ((s->mutations & LATE_LEASE) ? s->now_ms : m.sent_ms) + LEASE_MS;
}

static void
tick_timer(struct sim *s, struct node *n)
{
    if (s->now_ms < n->timer_ms)
        return;
    n->timer_ms = s->now_ms + RENEW_MS;
    n->wants_reap = true;
    if (!n->is_lost && s->now_ms > n->until_ms - LEASE_MS / 3)
        lose(n);
    if (n->is_lost || n->renew.op != NOTHING)
        return;
    n->renew = (struct message){ .op = RENEW, .epoch = n->epoch };
    send(s, &n->renew);
}

static void
choose_write(struct sim *s, struct node *n)
{
    int job = (int)draw(s, JOBS);
    bool has_room = false;

    if (n->write.op != NOTHING || n->again.op != NOTHING)
        return;
    for (int i = 0; i < SLOTS; i++) {
        has_room = has_room || n->held[i].job < 0;
        if (n->held[i].job < 0 || s->now_ms < n->held[i].done_ms)
            continue;
        begin(s, n, FINISH, n->held[i].job, n->held[i].claim);
        n->held[i].job = -1;
        return;
    }
    if (n->is_lost)
        begin(s, n, JOIN, -1, 0);
    else if (n->wants_reap && (n->wants_reap = false, true))
        begin(s, n, REAP, -1, 0);
    else if (!s->is_asked[job] && is_chaos(s) && (s->is_asked[job] = true))
        begin(s, n, ADD, job, 0);
    else if (has_room)
        begin(s, n, CLAIM, -1, 0);
}

static void
start(struct node *n)
{
    int number = n->number;

    /* Another writer; its row is another, too: the number goes on instead. */
    *n = (struct node){ .number = number, .is_lost = true };
    drop_all(n);
}

/* Whatever was on its way may still be made, and nobody hears of it. */
static void
strike(struct sim *s, struct node *n)
{
    if (mishap(s, 400)) {
        n->is_dead = true;
        n->back_ms = s->now_ms + (int64_t)draw(s, 30000);
        drop_all(n);
    } else if (mishap(s, 400)) {
        n->back_ms = s->now_ms + (int64_t)draw(s, 60000);
    }
}

/* By the database's clock, as long as that goes right: by it others may have what the node holds. */
static void
check_lease(struct sim *s, const struct node *n)
{
    int self = (int)(n - s->nodes);
    int64_t until_ms = s->db.nodes[self].until_ms;
    bool is_over = s->skew_ms == 0 && s->db.nodes[self].epoch == n->epoch && s->now_ms > until_ms + TICK_MS;

    for (int i = 0; i < SLOTS; i++)
        promise(s, n->held[i].job < 0 || !is_over, "P4: a job runs without a lease");
}

static void
tick_node(struct sim *s, struct node *n)
{
    strike(s, n);
    if (s->now_ms < n->back_ms)
        return;
    if (n->is_dead)
        start(n);
    tick_timer(s, n);
    read_renewal(s, n);
    read_write(s, n);
    choose_write(s, n);
    check_lease(s, n);
}

/* --- the world --- */

static void
make_due(struct sim *s, int node, struct message *m)
{
    if (m->op != NOTHING && !m->is_made && s->now_ms >= m->at_ms && !(m->is_cut && mishap(s, 2))) {
        make(s, node, m);
    } else if (m->op != NOTHING && !m->is_made && m->is_cut && s->now_ms >= m->at_ms) {
        m->at_ms = INT64_MAX; /* it was cut before it got there */
    }
}

static void
fail_over(struct sim *s)
{
    s->db = s->standby;
    s->skew_ms = (int64_t)draw(s, 40000) - 20000;
    for (int i = 0; i < NODES; i++) {
        struct message *all[] = { &s->nodes[i].write, &s->nodes[i].renew };
        for (int k = 0; k < 2; k++) {
            all[k]->is_cut = true;
            all[k]->at_ms = all[k]->is_made ? all[k]->at_ms : INT64_MAX;
            all[k]->answer_ms = s->now_ms;
        }
    }
    for (int j = 0; j < JOBS; j++) {
        promise(s, !s->is_acked[j] || s->db.jobs[j].state != ABSENT, "P1: what was acknowledged is gone");
        promise(s, s->told[j] == 0 || s->db.verdicts[j].claim == s->told[j],
                "P2: a verdict that was told is gone");
    }
}

static void
check_told(struct sim *s)
{
    for (int j = 0; j < JOBS; j++)
        promise(s, s->told[j] == 0 || s->told[j] == s->db.verdicts[j].claim, "P2: a verdict changed");
}

static void
check_end(struct sim *s)
{
    for (int j = 0; j < JOBS; j++)
        promise(s, !s->is_acked[j] || s->db.jobs[j].state == ENDED, "P1: what was acknowledged never ends");
}

/* NULL, or which promise was broken. */
static const char *
simulate(uint64_t seed, unsigned mutations)
{
    struct sim s = { .random = seed, .mutations = mutations };

    for (int i = 0; i < NODES; i++)
        start(&s.nodes[i]);
    for (; !s.broken && s.now_ms < CHAOS_MS + CALM_MS; s.now_ms += TICK_MS) {
        for (int i = 0; i < NODES; i++) {
            make_due(&s, i, &s.nodes[i].write);
            make_due(&s, i, &s.nodes[i].renew);
        }
        if (mishap(&s, 300))
            fail_over(&s);
        for (int i = 0; i < NODES; i++)
            tick_node(&s, &s.nodes[i]);
        check_told(&s);
    }
    check_end(&s);
    return s.broken;
}

static uint64_t
seeds(void)
{
    const char *told = getenv("PROTOCOL_SEEDS");
    return told ? strtoull(told, NULL, 10) : 10000;
}

static void
every_promise_holds_whatever_the_seed(void **state)
{
    const char *one = getenv("PROTOCOL_SEED");

    (void)state;
    for (uint64_t seed = one ? strtoull(one, NULL, 10) : 1, last = one ? seed : seeds(); seed <= last;
         seed++) {
        const char *broken = simulate(seed, 0);
        if (broken)
            fail_msg("PROTOCOL_SEED=%llu: %s", (unsigned long long)seed, broken);
    }
}

static void
each_mutation_breaks_its_promise(void **state)
{
    static const struct {
        enum mutation mutation;
        const char *promise;
    } rows[] = {
        { NO_ATTEMPT_CHECK, "P3" }, { NO_LEASE_CHECK, "P4" }, { NO_WARNING_CHECK, "P1" },
        { NOT_MATERIALIZED, "P1" }, { LATE_LEASE, "P4" },     { NO_OUTCOME_CHECK, "P1" },
        { LATE_JOIN, "P4" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *broken = NULL;
        uint64_t seed = 0;
        while (seed < 100000 && !(broken && strncmp(broken, rows[i].promise, 2) == 0))
            broken = simulate(++seed, rows[i].mutation);
        if (!broken || strncmp(broken, rows[i].promise, 2) != 0)
            fail_msg("mutation %d breaks nothing of %s", rows[i].mutation, rows[i].promise);
        print_message("mutation %d: seed %llu: %s\n", rows[i].mutation, (unsigned long long)seed, broken);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_promise_holds_whatever_the_seed),
        cmocka_unit_test(each_mutation_breaks_its_promise),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
