/* list.h - intrusive doubly linked ring. The head is a node that belongs to no item. */
#ifndef BELAY_BASE_LIST_H
#define BELAY_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *prev, *next;
};

/* NOLINTBEGIN(bugprone-macro-parentheses): names of types and variables take none */
#define list_item(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))
#define list_each(it, head)           for (struct list *it = (head)->next; it != (head); it = it->next)
/* As list_each; the current item may be removed. */
#define list_each_safe(it, head)                                                               \
    for (struct list *it = (head)->next, *it##_next = it->next; it != (head);                  \
         it = it##_next, it##_next = it->next)
/* NOLINTEND(bugprone-macro-parentheses) */

static inline void list_init(struct list *l) /* an empty head, or a node that is in no list */
{
    l->prev = l->next = l;
}

static inline bool list_empty(const struct list *l)
{
    return l->next == l;
}

static inline void list_push_back(struct list *head, struct list *node)
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

static inline void list_push_front(struct list *head, struct list *node)
{
    list_push_back(head->next, node);
}

/* All nodes of `from` go behind those of `head`. */
static inline void list_append(struct list *head, struct list *from)
{
    if (list_empty(from))
        return;
    from->next->prev = head->prev;
    head->prev->next = from->next;
    from->prev->next = head;
    head->prev = from->prev;
    list_init(from);
}

static inline void list_remove(struct list *node) /* any number of times */
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}
#endif
