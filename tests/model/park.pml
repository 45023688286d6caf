/* park.pml: envelopes for a pool whose last heap is being parked, for spin. protocol.sh checks all interleavings.
 *
 * One thread parks the heap (heap_park): it flushes under the lock, sets parked (the pool has no heaps now), and
 * serves. Two others push one envelope each, look at parked, and serve if it is set (envelope_send). To serve is: while
 * there is mail and the lock can be had, drain. Any other holder of the lock serves, too (inbox_unlock).
 *
 * In the end, when no thread is inside any more, a pool without heaps has no mail.
 *
 * BROKEN_n builds a protocol with one fault, which the check must find:
 *   1  a server does not look again after giving the lock
 *   2  the parker does not serve after it has set parked
 */
#ifndef BROKEN
#define BROKEN 0
#endif

bool parked = false, locked = false;
byte mail = 0, done = 0;

inline serve() {
  do
  :: mail == 0 -> break                           /* look */
  :: mail != 0 ->
     atomic { if :: !locked -> locked = true; got = true :: else -> got = false fi };
     if
     :: got -> atomic { mail = 0 }; locked = false
     :: else -> break
     fi;
#if BROKEN == 1
     break
#endif
  od;
  got = false
}

inline park() {
  atomic { !locked -> locked = true };
  mail = 0;
  locked = false;
  parked = true;
#if BROKEN != 2
  serve()
#endif
}

proctype parker() {
  bool got = false;
  park();
  done++
}

proctype sender() {
  bool got = false;
  mail++;                                         /* compare and swap */
  if
  :: parked -> serve()
  :: else -> skip
  fi;
  done++
}

init {
  atomic { run parker(); run sender(); run sender() };
  done == 3;
  assert(!locked);
  assert(parked && mail == 0)
}
