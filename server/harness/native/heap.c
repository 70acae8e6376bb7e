#include "server/harness/native/heap.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/harness/native/gpu.h"

#define ALIGNMENT 512

/* The heap's blocks in the order of their addresses, without gaps; no two neighbours are both free. */
struct block {
    uint64_t at, size;
    bool is_used;
    struct block *before, *after;
};

struct spill {
    uint64_t at;
    struct spill *next;
};

/* torch knows the allocator as two bare functions, so its state cannot be handed in. */
static struct {
    pthread_mutex_t lock;
    struct block *first;
    struct spill *spills;
    uint64_t used;
} heap = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct block *
new_block(uint64_t at, uint64_t size)
{
    struct block *b = calloc(1, sizeof(*b));

    if (b != NULL) {
        b->at = at;
        b->size = size;
    }
    return b;
}

static void
free_blocks(void)
{
    for (struct block *b = heap.first, *next; b != NULL; b = next) {
        next = b->after;
        free(b);
    }
    heap.first = NULL;
}

int
harness_heap_set(uint64_t base, uint64_t size)
{
    struct block *b;
    int code = 0;

    if (base % ALIGNMENT != 0 || size > UINT64_MAX - base)
        return harness_fail(EINVAL, "heap: [%llx, +%llu) is no heap", (unsigned long long)base,
                            (unsigned long long)size);
    b = new_block(base, size - size % ALIGNMENT);
    if (b == NULL)
        return harness_fail(ENOMEM, "heap: no memory for its bookkeeping");
    pthread_mutex_lock(&heap.lock);
    if (heap.used != 0) {
        code = harness_fail(EBUSY, "heap: %llu bytes of the one before are in use",
                            (unsigned long long)heap.used);
        free(b);
    } else {
        free_blocks();
        heap.first = b;
    }
    pthread_mutex_unlock(&heap.lock);
    return code;
}

/* Cut the surplus off the end of a free block; without memory for that the whole block is handed out. */
static void
trim(struct block *b, uint64_t size)
{
    struct block *rest;

    if (b->size == size)
        return;
    rest = new_block(b->at + size, b->size - size);
    if (rest == NULL)
        return;
    rest->before = b;
    rest->after = b->after;
    if (rest->after != NULL)
        rest->after->before = rest;
    b->after = rest;
    b->size = size;
}

static uint64_t
take_from_heap(uint64_t size)
{
    for (struct block *b = heap.first; b != NULL; b = b->after) {
        if (b->is_used || b->size < size)
            continue;
        trim(b, size);
        b->is_used = true;
        heap.used += b->size;
        return b->at;
    }
    return 0;
}

static uint64_t
take_from_driver(uint64_t size)
{
    struct spill *s = malloc(sizeof(*s));

    if (s == NULL || gpu_alloc(size, &s->at) != 0) {
        free(s);
        return 0;
    }
    s->next = heap.spills;
    heap.spills = s;
    return s->at;
}

/* The size of a block for size bytes; 0 if there is no such block. */
static uint64_t
padded(ssize_t size)
{
    if (size < 0 || size > INT64_MAX - ALIGNMENT)
        return 0;
    return size == 0 ? ALIGNMENT : ((uint64_t)size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

void *
harness_arena_malloc(ssize_t size, int device, void *stream)
{
    uint64_t wanted = padded(size), at;

    (void)device;
    (void)stream;
    if (wanted == 0)
        return NULL;
    pthread_mutex_lock(&heap.lock);
    at = take_from_heap(wanted);
    if (at == 0)
        at = take_from_driver(wanted);
    pthread_mutex_unlock(&heap.lock);
    return (void *)(uintptr_t)at;
}

/* Join b with the block after it, if both are free. */
static void
join_after(struct block *b)
{
    struct block *next = b->after;

    if (next == NULL || next->is_used || b->is_used)
        return;
    b->size += next->size;
    b->after = next->after;
    if (b->after != NULL)
        b->after->before = b;
    free(next);
}

static bool
give_to_heap(uint64_t at)
{
    for (struct block *b = heap.first; b != NULL; b = b->after) {
        if (b->at != at || !b->is_used)
            continue;
        b->is_used = false;
        heap.used -= b->size;
        join_after(b);
        if (b->before != NULL)
            join_after(b->before);
        return true;
    }
    return false;
}

static bool
give_to_driver(uint64_t at)
{
    for (struct spill **link = &heap.spills; *link != NULL; link = &(*link)->next) {
        struct spill *s = *link;
        if (s->at != at)
            continue;
        if (gpu_free(at) != 0)
            fprintf(stderr, "heap: %s\n", harness_error());
        *link = s->next;
        free(s);
        return true;
    }
    return false;
}

void
harness_arena_free(void *ptr, ssize_t size, int device, void *stream)
{
    uint64_t at = (uint64_t)(uintptr_t)ptr;

    (void)size;
    (void)device;
    (void)stream;
    if (ptr == NULL)
        return;
    pthread_mutex_lock(&heap.lock);
    if (!give_to_heap(at) && !give_to_driver(at))
        fprintf(stderr, "heap: %p was not allocated here\n", ptr);
    pthread_mutex_unlock(&heap.lock);
}

uint64_t
harness_heap_used(void)
{
    pthread_mutex_lock(&heap.lock);
    uint64_t used = heap.used;
    pthread_mutex_unlock(&heap.lock);
    return used;
}

static struct {
    pthread_mutex_t lock;
    uint64_t at, left;
} place = { .lock = PTHREAD_MUTEX_INITIALIZER };

int
harness_place_set(uint64_t base, uint64_t size)
{
    if (base % ALIGNMENT != 0 || size > UINT64_MAX - base)
        return harness_fail(EINVAL, "place: [%llx, +%llu) is none", (unsigned long long)base,
                            (unsigned long long)size);
    pthread_mutex_lock(&place.lock);
    place.at = base;
    place.left = size;
    pthread_mutex_unlock(&place.lock);
    return 0;
}

void *
harness_place_malloc(ssize_t size, int device, void *stream)
{
    uint64_t wanted = padded(size), at = 0;

    (void)device;
    (void)stream;
    pthread_mutex_lock(&place.lock);
    if (wanted != 0 && wanted <= place.left) {
        at = place.at;
        place.at += wanted;
        place.left -= wanted;
    }
    pthread_mutex_unlock(&place.lock);
    return (void *)(uintptr_t)at;
}

void
harness_place_free(void *ptr, ssize_t size, int device, void *stream)
{
    (void)ptr;
    (void)size;
    (void)device;
    (void)stream;
}
