/* rank.c - the place of an item in a long row, in O(log n) steps: a treap. */
#include "base/rank.h"

static uint32_t count_of(const struct rank_node *n)
{
    return n ? n->count : 0;
}

static void recount(struct rank_node *n)
{
    n->count = 1 + count_of(n->left) + count_of(n->right);
}

/* Where `n` hangs. */
static struct rank_node **link_of(struct rank *r, const struct rank_node *n)
{
    if (!n->up)
        return &r->root;
    return n->up->left == n ? &n->up->left : &n->up->right;
}

/* `n` takes the place of the node above it; the row stays as it is. */
static void rotate_up(struct rank *r, struct rank_node *n)
{
    struct rank_node *parent = n->up, *moved;
    *link_of(r, parent) = n;
    n->up = parent->up;
    parent->up = n;
    if (parent->left == n) {
        moved = n->right;
        parent->left = moved;
        n->right = parent;
    } else {
        moved = n->left;
        parent->right = moved;
        n->left = parent;
    }
    if (moved)
        moved->up = parent;
    recount(parent);
    recount(n);
}

static uint32_t mix(uint64_t number)
{
    number = (number ^ number >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    number = (number ^ number >> 27) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)(number >> 32);
}

/* At the free place `link` below `up`. */
static void put(struct rank *r, struct rank_node *n, struct rank_node *up,
                struct rank_node **link, uint64_t number)
{
    *n = (struct rank_node){.up = up, .count = 1, .priority = mix(number)};
    *link = n;
    for (; up; up = up->up)
        up->count++;
    while (n->up && n->up->priority < n->priority)
        rotate_up(r, n);
}

void rank_push_back(struct rank *r, struct rank_node *n, uint64_t number)
{
    struct rank_node *up = NULL, **link = &r->root;
    for (; *link; link = &up->right)
        up = *link;
    put(r, n, up, link, number);
}

void rank_push_front(struct rank *r, struct rank_node *n, uint64_t number)
{
    struct rank_node *up = NULL, **link = &r->root;
    for (; *link; link = &up->left)
        up = *link;
    put(r, n, up, link, number);
}

void rank_remove(struct rank *r, struct rank_node *n)
{
    while (n->left && n->right)
        rotate_up(r, n->left->priority > n->right->priority ? n->left : n->right);
    struct rank_node *child = n->left ? n->left : n->right;
    *link_of(r, n) = child;
    if (child)
        child->up = n->up;
    for (struct rank_node *up = n->up; up; up = up->up)
        up->count--;
}

size_t rank_of(const struct rank_node *n)
{
    size_t rank = 1 + count_of(n->left);
    for (; n->up; n = n->up)
        if (n->up->right == n)
            rank += 1 + count_of(n->up->left);
    return rank;
}

struct rank_node *rank_first(const struct rank *r,
                             bool (*is_behind)(struct rank_node *n, uint64_t key), uint64_t key)
{
    struct rank_node *found = NULL;
    for (struct rank_node *n = r->root; n;) {
        bool behind = is_behind(n, key);
        found = behind ? n : found;
        n = behind ? n->left : n->right;
    }
    return found;
}
