/* inbox.pml: a model of how blocks travel between threads and pools, for spin. protocol.sh checks all interleavings.
 *
 *   lifeline   held by a heap's owner; whoever takes a dead owner's lifeline owns bin and outbox too
 *   lock       of the pool: who holds it may move blocks between slab, bin and inbox
 *   inbox      of the pool, a list of envelopes: pushed by compare-and-swap, taken whole by exchange
 *   bin        one a heap: touched by the owner only, without the lock; owner and lock together for refill and flush
 *
 * One pool is looked at, with two heaps. Threads 0 and 1 own them at first. They allocate, free into their own bins
 * also what the other one allocated, and die without a word, bins full or empty. Two threads of other pools
 * hold blocks of this one, in the program or in their own bins, which no other thread touches: to the model that is one
 * place, their hand. They free them through envelopes (of one block here), drain the inbox themselves when they get the
 * lock, and adopt heaps (keep them) or sweep them (flush the bin under the lock, drop the lifeline) once their owners
 * are dead.
 *
 * Each block is in exactly one place: a thread's hand, a bin, an envelope on the way or in the inbox, the
 * slab. The model moves a block by clearing its place and setting the next; a place that is not what the mover
 * expects is a lost or a doubled block. Reads and writes of shared words are separate steps where the C
 * code has separate instructions.
 *
 * BROKEN_n builds a protocol with one fault, which the check must find:
 *   1  taking the inbox is a load and a store instead of an exchange
 *   2  a passer-by drains without the lock
 *   3  a sweep touches the bin of a heap whose lifeline it did not get
 *   4  push stores the head instead of comparing and swapping
 *   5  a sweep drops the lifeline before it has emptied the bin
 *   6  a refill takes from the slab without the lock, as if the pool had one heap only
 */
#ifndef BROKEN
#define BROKEN 0
#endif
/* Threads of other pools: 2, or 1 for a search that takes a hundredth of the time. */
#ifndef STRANGERS
#define STRANGERS 2
#endif

#define BLOCKS 3
#define HEAPS 2
#define NONE 255

mtype = { HAND, BIN, MAIL, MOVING, SLAB };

mtype place[BLOCKS];          /* where each block is; */
byte with[BLOCKS];              /* HAND: of which thread, BIN: of which heap */

/* The inbox: envelope number = block number; next link as in the C code. */
byte inbox_head = NONE;
byte inbox_next[BLOCKS];

bool locked = false;
byte lock_holder = NONE;
byte lifeline[HEAPS];         /* the owner; NONE: nobody alive holds it */
bool slab_busy = false;
byte inside_bin[HEAPS];       /* threads inside a step on the bin: never two */
byte threads_done = 0;

inline lock_try(got) {
  atomic {
    if
    :: !locked -> locked = true; lock_holder = _pid; got = true
    :: else -> got = false
    fi
  }
}

inline lock_take() { atomic { !locked -> locked = true; lock_holder = _pid } }
inline lock_give() { atomic { assert(locked && lock_holder == _pid); lock_holder = NONE; locked = false } }

inline bin_enter(h) { atomic { inside_bin[h]++; assert(inside_bin[h] == 1) } }
inline bin_leave(h) { inside_bin[h]-- }

/* The slab's bitmap is a word that is read and written back: only one thread may do that at a time. */
inline slab_enter() { atomic { assert(!slab_busy); slab_busy = true } }
inline slab_leave() { slab_busy = false }

/* Moves block b from one place to the next; finding it elsewhere is the error looked for. */
inline move(b, from, to, whose) { d_step { assert(place[b] == from); place[b] = to; with[b] = whose } }

inline push(b) {
  move(b, HAND, MAIL, NONE);
  do
  :: seen = inbox_head;                       /* load */
     inbox_next[b] = seen;                    /* our envelope, nobody else sees it yet */
#if BROKEN == 4
     inbox_head = b; break
#else
     atomic {                                 /* compare and swap */
       if
       :: inbox_head == seen -> inbox_head = b; break
       :: else -> skip
       fi
     }
#endif
  od;
  seen = NONE
}

/* Takes the whole list and gives its blocks to the slab (to == SLAB) or the bin of heap h. */
inline drain(to, h) {
#if BROKEN == 1
  chain = inbox_head;
  inbox_head = NONE;
#else
  atomic { chain = inbox_head; inbox_head = NONE };
#endif
  do
  :: chain != NONE ->
     cur = chain;
     chain = inbox_next[cur];
     move(cur, MAIL, MOVING, NONE);
     slab_enter();
     move(cur, MOVING, to, h);
     slab_leave()
  :: else -> break
  od;
  cur = NONE
}

/* The blocks in the bin of heap h go to the slab. */
inline flush(h) {
  bin_enter(h);
  i = 0;
  do
  :: i < BLOCKS ->
     if
     :: place[i] == BIN && with[i] == h -> slab_enter(); move(i, BIN, SLAB, NONE); slab_leave()
     :: else -> skip
     fi;
     i++
  :: else -> break
  od;
  bin_leave(h);
  i = 0
}

#define IN_BIN(b, h) (place[b] == BIN && with[b] == h)

/* Takes any block of the bin into the hand, refilling under the lock, as malloc does. */
inline allocate(h) {
  bin_enter(h);
  if
  :: IN_BIN(0, h) -> move(0, BIN, HAND, _pid); bin_leave(h)
  :: IN_BIN(1, h) -> move(1, BIN, HAND, _pid); bin_leave(h)
  :: IN_BIN(2, h) -> move(2, BIN, HAND, _pid); bin_leave(h)
  :: else ->
     bin_leave(h);
#if BROKEN != 6
     lock_take();
     drain(BIN, h);
#endif
     bin_enter(h);
     slab_enter();
     if
     :: place[0] == SLAB -> move(0, SLAB, BIN, h)
     :: place[1] == SLAB -> move(1, SLAB, BIN, h)
     :: place[2] == SLAB -> move(2, SLAB, BIN, h)
     :: else -> skip
     fi;
     slab_leave();
     bin_leave(h);
#if BROKEN != 6
     lock_give()
#endif
  fi
}

#define IN_HAND(b) (place[b] == HAND && with[b] == _pid)

/* A block of the pool in the hand goes into the own bin, whichever heap it came from: no lock. */
inline free_own(h) {
  if
  :: IN_HAND(0) -> bin_enter(h); move(0, HAND, BIN, h); bin_leave(h)
  :: IN_HAND(1) -> bin_enter(h); move(1, HAND, BIN, h); bin_leave(h)
  :: IN_HAND(2) -> bin_enter(h); move(2, HAND, BIN, h); bin_leave(h)
  :: else -> skip
  fi
}

/* The blocks in the hand pass to another thread of the pool, as pointers passed through the program. */
inline pass_on(thread) {
  d_step {
    i = 0;
    do
    :: i < BLOCKS ->
       if
       :: place[i] == HAND && with[i] == _pid -> with[i] = thread
       :: else -> skip
       fi;
       i++
    :: else -> break
    od;
    i = 0
  }
}

inline use_heap(h) { /* what an owner does, in any order, a few times */
  if
  :: allocate(h)
  :: free_own(h)
  :: lock_take(); drain(SLAB, NONE); flush(h); lock_give()
  fi
}

/* At its end a thread's blocks are in nobody's hand: they stay live, with the program. Here they go home, so that the
 * last check finds every block there. */
inline hand_home() {
  d_step {
    i = 0;
    do
    :: i < BLOCKS ->
       if
       :: place[i] == HAND && with[i] == _pid -> place[i] = SLAB; with[i] = NONE
       :: else -> skip
       fi;
       i++
    :: else -> break
    od;
    i = 0
  }
}

/* h: the heap; other: the thread that blocks are passed to, or NONE. */
proctype owner(byte h, other) {
  byte chain = NONE, cur = NONE, i = 0;
  use_heap(h);
  if
  :: other != NONE -> pass_on(other); use_heap(h)
  :: else -> skip
  fi;
  /* It dies: nothing is flushed, nothing drained. The kernel ends the lifeline. What is passed to it later goes home at
   * the end. */
  hand_home();
  lifeline[h] = NONE;
  threads_done++
}

/* took: this thread now owns heap h. */
inline lifeline_take(h, took) {
  atomic {
    if
    :: lifeline[h] == NONE -> lifeline[h] = _pid; took = true
    :: else -> took = false
    fi
  }
}

/* A thread of another pool. It frees block b, which takes no lock of this pool, unless it gets it at once. */
proctype stranger(byte b) {
  byte chain = NONE, cur = NONE, seen = NONE, i = 0, h = 0;
  bool got = false, took = false;
  push(b);
#if BROKEN == 2
  drain(SLAB, NONE);
#else
  lock_try(got);
  if
  :: got -> drain(SLAB, NONE); lock_give()
  :: else -> skip
  fi;
  got = false;
#endif
  do
  :: h < HEAPS ->
#if BROKEN == 3
     if
     :: lifeline[h] == NONE -> took = true   /* looked, but did not claim */
     :: else -> took = false
     fi;
#else
     lifeline_take(h, took);
#endif
     if
     :: took ->
        if
        :: use_heap(h)                       /* adopt: own it, then die with it */
        ::                                   /* sweep */
#if BROKEN == 5
           lifeline[h] = NONE;
#endif
           lock_take();
           drain(SLAB, NONE);
           flush(h);
           lock_give()
        fi;
        hand_home();
#if BROKEN == 3 || BROKEN == 5
        atomic { if :: lifeline[h] == _pid -> lifeline[h] = NONE :: else -> skip fi };
#else
        atomic { assert(lifeline[h] == _pid); lifeline[h] = NONE };
#endif
        took = false
     :: else -> skip
     fi;
     h++
  :: else -> break
  od;
  threads_done++
}

/* After all have gone, one sweep of both heaps finds every block: none is lost, none is anywhere else. */
proctype last_sweep() {
  byte chain = NONE, cur = NONE, i = 0, h = 0;
  bool took = false;
  threads_done == HEAPS + STRANGERS;
  i = 0;
  d_step {                                   /* what was passed to a thread that had died */
    do
    :: i < BLOCKS ->
       if
       :: place[i] == HAND -> place[i] = SLAB
       :: else -> skip
       fi;
       i++
    :: else -> break
    od;
    i = 0
  };
  do
  :: h < HEAPS ->
     lifeline_take(h, took);
     assert(took);
     lock_take();
     drain(SLAB, NONE);
     flush(h);
     lock_give();
     h++
  :: else -> break
  od;
  assert(inbox_head == NONE);
  assert(place[0] == SLAB && place[1] == SLAB && place[2] == SLAB)
}

init {
  atomic {
    place[0] = BIN; with[0] = 0;
    place[1] = HAND; with[1] = 3;             /* pids of the strangers */
    place[2] = HAND; with[2] = (STRANGERS == 2 -> 4 : 2);
    lifeline[0] = 1;
    lifeline[1] = 2;
    run owner(0, 2);                          /* pid 1 */
    run owner(1, NONE);                        /* pid 2 */
    run stranger(1);                          /* pid 3 */
#if STRANGERS == 2
    run stranger(2);                          /* pid 4 */
#endif
    run last_sweep()
  }
}
