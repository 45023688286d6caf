/* threads.h: several threads that do the same. Thread i gets `first` as its argument, plus i times `step`: step is 1
 * for numbers, the size of an element for an array, and 0 if all get the same.
 */
#pragma once

#include <pthread.h>

#include "check.h"

#define TEST_THREADS_MAX 64

static inline void test_threads_start(pthread_t *threads, size_t count, void *(*work)(void *), const void *first,
                                      size_t step) {
  for (size_t i = 0; i < count; i++)
    CHECK(pthread_create(&threads[i], NULL, work, (void *)((uintptr_t)first + i * step)) == 0);
}

static inline void test_threads_join(const pthread_t *threads, size_t count) {
  for (size_t i = 0; i < count; i++)
    CHECK(pthread_join(threads[i], NULL) == 0);
}

/* For many threads: their stacks have so many bytes, and where the system allows fewer threads the test is skipped. */
static inline void test_threads_start_small(pthread_t *threads, size_t count, size_t stack_bytes,
                                            void *(*work)(void *)) {
  pthread_attr_t attributes;
  CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, stack_bytes) == 0);
  for (size_t i = 0; i < count; i++)
    test_skip_if(pthread_create(&threads[i], &attributes, work, (void *)(i + 1)) != 0,
                 "the system allows fewer threads");
}

/* Waits for their ends, too. */
static inline void test_threads_run(size_t count, void *(*work)(void *), const void *first, size_t step) {
  pthread_t threads[TEST_THREADS_MAX];
  CHECK(count <= TEST_THREADS_MAX);
  test_threads_start(threads, count, work, first, step);
  test_threads_join(threads, count);
}

/* Runs one, and returns what it returned. */
static inline void *test_thread_run(void *(*work)(void *), void *argument) {
  pthread_t thread;
  void *result;
  CHECK(pthread_create(&thread, NULL, work, argument) == 0 && pthread_join(thread, &result) == 0);
  return result;
}
