/* records.h: the shadow heap that the threads of a model share. TSan's build leaves it out, because its lock would
 * order what hakmem must order. */
#pragma once

#include <pthread.h>

#include "shadow.h"

static struct shadow shadow;
static pthread_mutex_t shadow_lock = PTHREAD_MUTEX_INITIALIZER;

static inline void record_enter(uint32_t index) {
  if (TEST_TSAN)
    return;
  pthread_mutex_lock(&shadow_lock);
  shadow_insert(&shadow, index);
  pthread_mutex_unlock(&shadow_lock);
}

static inline void record_leave(uint32_t index) {
  if (TEST_TSAN)
    return;
  pthread_mutex_lock(&shadow_lock);
  shadow_remove(&shadow, index);
  pthread_mutex_unlock(&shadow_lock);
}

static inline void record_free(uint32_t index) {
  struct shadow_record *record = &shadow.records[index];
  shadow_check(record);
  record_leave(index);
  t_free(record->address);
  record->address = NULL;
}
