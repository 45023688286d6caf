/* list.h: doubly linked lists whose links lie in their elements. A stack has a pointer to its first element, a queue
 * one to each end. Both macros define functions for elements of `struct type` with the links next and previous.
 */
#pragma once

#include <stddef.h>

/* name_push, name_remove. */
#define STACK_OF(name, type, next, previous)                                                                           \
  static inline void name##_push(struct type **first, struct type *element) {                                          \
    element->previous = NULL;                                                                                          \
    element->next = *first;                                                                                            \
    if (*first)                                                                                                        \
      (*first)->previous = element;                                                                                    \
    *first = element;                                                                                                  \
  }                                                                                                                    \
  static inline void name##_remove(struct type **first, struct type *element) {                                        \
    *(element->previous ? &element->previous->next : first) = element->next;                                           \
    if (element->next)                                                                                                 \
      element->next->previous = element->previous;                                                                     \
  }

/* struct name, name_insert, name_remove: by freed_ms, the oldest first. An element goes behind `before` (NULL: to the
 * front), or by at most looks_max places further to the front, if those there are younger. */
#define QUEUE_OF(name, type, next, previous)                                                                           \
  struct name {                                                                                                        \
    struct type *first, *last;                                                                                         \
  };                                                                                                                   \
  static inline void name##_insert(struct name *queue, struct type *element, struct type *before,                      \
                                   unsigned looks_max) {                                                               \
    for (; before && before->freed_ms > element->freed_ms && looks_max > 0; looks_max--)                               \
      before = before->previous;                                                                                       \
    element->previous = before;                                                                                        \
    element->next = before ? before->next : queue->first;                                                              \
    *(element->next ? &element->next->previous : &queue->last) = element;                                              \
    *(before ? &before->next : &queue->first) = element;                                                               \
  }                                                                                                                    \
  static inline void name##_remove(struct name *queue, struct type *element) {                                         \
    *(element->previous ? &element->previous->next : &queue->first) = element->next;                                   \
    *(element->next ? &element->next->previous : &queue->last) = element->previous;                                    \
  }
