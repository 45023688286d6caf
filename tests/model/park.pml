/* park.pml: mail to a heap that is being parked, for spin. protocol.sh checks all interleavings.
 *
 * One thread parks a dead thread's heap: it sets parked, takes the lock, drains, gives the lock, serves.
 * Two others push one envelope each, look at parked, and serve if it is set. To serve is: while there is mail
 * and the lock can be had, drain. (A statistics reader that holds the lock may make a server's try fail; then the
 * mail stays until the next sweep, which parks again if it finds any. That is not modelled.)
 *
 * In the end, when nobody is inside any more, a parked heap has no mail.
 *
 * BROKEN_n builds a protocol with one fault, which the check must find:
 *   1  a server does not look again after giving the lock
 *   2  the parker drains first and sets parked then
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
#if BROKEN != 2
  parked = true;
#endif
  atomic { !locked -> locked = true };
  mail = 0;
  locked = false;
#if BROKEN == 2
  parked = true
#else
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
