/* inbox.pml: a model of how blocks travel between heaps, for spin. protocol.sh checks all interleavings.
 *
 *   lifeline   held by a heap's owner; whoever takes a dead owner's lifeline owns bins and outbox too
 *   lock       of the heap: who holds it may move blocks between slab and inbox
 *   inbox      a list of envelopes: pushed by compare-and-swap, taken whole by exchange
 *   bin        touched by the owner only, without the lock; owner and lock together for refill and flush
 *
 * One heap H is looked at. Thread 0 owns it at first, frees and allocates, and dies without a word, bin
 * full or empty. Two other threads hold blocks of H, free them through envelopes (of one block here),
 * drain the inbox themselves when they get the lock, and adopt the heap (keep it) or sweep it (flush the
 * bin under the lock, drop the lifeline) once its owner is dead.
 *
 * Each block is in exactly one place: a thread's hand, the bin, an envelope on the way or in the inbox, the
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
 */
#ifndef BROKEN
#define BROKEN 0
#endif
/* How often each of the two others looks whether the owner is dead. */
#ifndef ROUNDS
#define ROUNDS 1
#endif

#define BLOCKS 3
#define STRANGERS 2
#define NONE 255

mtype = { HAND, BIN, MAIL, MOVING, SLAB };

mtype place[BLOCKS];          /* where each block is; HAND: the thread in holder[] */
byte holder[BLOCKS];

/* The inbox: envelope number = block number; next link as in the C code. */
byte inbox_head = NONE;
byte inbox_next[BLOCKS];

bool locked = false;
byte lock_holder = NONE;
byte lifeline = 0;            /* the owner; NONE: nobody alive holds it */
bool slab_busy = false;
byte inside_bin = 0;          /* threads inside a step on the bin: never two */
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

inline bin_enter() { inside_bin++; assert(inside_bin == 1) }
inline bin_leave() { inside_bin-- }

/* Moves block b from one place to the next; finding it elsewhere is the error looked for. */
inline move(b, from, to) { d_step { assert(place[b] == from); place[b] = to } }

inline push(b) {
  move(b, HAND, MAIL);
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

/* Takes the whole list and gives its blocks to the slab (to == SLAB) or the bin. */
inline drain(to) {
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
     move(cur, MAIL, MOVING);
     /* The slab's bitmap is a word that is read and written back: only one may do that at a time. */
     assert(!slab_busy);
     slab_busy = true;
     move(cur, MOVING, to);
     slab_busy = false
  :: else -> break
  od;
  cur = NONE
}

/* The bin's blocks go to the slab. */
inline flush() {
  bin_enter();
  i = 0;
  do
  :: i < BLOCKS ->
     if
     :: place[i] == BIN -> move(i, BIN, SLAB)
     :: else -> skip
     fi;
     i++
  :: else -> break
  od;
  bin_leave();
  i = 0
}

/* Takes any block of the slab or bin into the hand, refilling under the lock, as malloc does. */
inline allocate() {
  bin_enter();
  if
  :: place[0] == BIN -> d_step { place[0] = HAND; holder[0] = _pid }; bin_leave()
  :: place[1] == BIN -> d_step { place[1] = HAND; holder[1] = _pid }; bin_leave()
  :: place[2] == BIN -> d_step { place[2] = HAND; holder[2] = _pid }; bin_leave()
  :: else ->
     bin_leave();
     lock_take();
     bin_enter();
     drain(BIN);
     if
     :: place[0] == SLAB -> place[0] = BIN
     :: place[1] == SLAB -> place[1] = BIN
     :: place[2] == SLAB -> place[2] = BIN
     :: else -> skip
     fi;
     bin_leave();
     lock_give()
  fi
}

/* A block of the own heap in the hand goes into the bin: no lock. */
inline free_own() {
  if
  :: place[0] == HAND && holder[0] == _pid -> bin_enter(); move(0, HAND, BIN); bin_leave()
  :: place[1] == HAND && holder[1] == _pid -> bin_enter(); move(1, HAND, BIN); bin_leave()
  :: place[2] == HAND && holder[2] == _pid -> bin_enter(); move(2, HAND, BIN); bin_leave()
  :: else -> skip
  fi
}

inline use_heap() { /* what an owner does, in any order, a few times */
  if
  :: allocate()
  :: free_own()
  :: lock_take(); drain(SLAB); flush(); lock_give()
  fi
}

/* At its end a thread's blocks are in nobody's hand: they stay live, with the program. Here they are given
 * back, so that the last check finds every block at home. */
inline push_hand() {
  i = 0;
  do
  :: i < BLOCKS ->
     if
     :: place[i] == HAND && holder[i] == _pid ->
        push(i);
#if BROKEN == 2
        drain(SLAB);
#else
        lock_try(got);
        if
        :: got -> drain(SLAB); lock_give()
        :: else -> skip
        fi;
#endif
        got = false
     :: else -> skip
     fi;
     i++
  :: else -> break
  od;
  i = 0
}

proctype owner() {
  byte chain = NONE, cur = NONE, seen = NONE, i = 0;
  bool got = false;
  use_heap();
  use_heap();
  /* The blocks it holds pass to stranger 1, as a pointer passed through the program. Then it dies: nothing is
   * flushed, nothing drained. The kernel ends the lifeline. */
  d_step {
    i = 0;
    do
    :: i < BLOCKS ->
       if
       :: place[i] == HAND && holder[i] == _pid -> place[i] = SLAB
       :: else -> skip
       fi;
       i++
    :: else -> break
    od;
    i = 0
  };
  lifeline = NONE;
  threads_done++
}

/* took: this thread now owns H. */
inline lifeline_take(took) {
  atomic {
    if
    :: lifeline == NONE -> lifeline = _pid; took = true
    :: else -> took = false
    fi
  }
}

proctype stranger() {
  byte chain = NONE, cur = NONE, seen = NONE, i = 0, round = 0;
  bool got = false, took = false;
  push_hand();
  do
  :: round < ROUNDS ->
     round++;
#if BROKEN == 3
     if
     :: lifeline == NONE -> took = true   /* looked, but did not claim */
     :: else -> took = false
     fi;
#else
     lifeline_take(took);
#endif
     if
     :: took ->
        if
        :: use_heap(); use_heap()         /* adopt: own it, then die with it */
        ::                                /* sweep */
#if BROKEN == 5
           lifeline = NONE;
#endif
           lock_take();
           drain(SLAB);
           flush();
           lock_give()
        fi;
        d_step {                          /* what it allocated goes home, as above */
          i = 0;
          do
          :: i < BLOCKS ->
             if
             :: place[i] == HAND && holder[i] == _pid -> place[i] = SLAB
             :: else -> skip
             fi;
             i++
          :: else -> break
          od;
          i = 0
        };
#if BROKEN == 0 || BROKEN == 1 || BROKEN == 2 || BROKEN == 4
        atomic { assert(lifeline == _pid); lifeline = NONE };
#else
        atomic { if :: lifeline == _pid -> lifeline = NONE :: else -> skip fi };
#endif
        took = false
     :: else -> skip
     fi
  :: else -> break
  od;
  threads_done++
}

/* After all have gone, one sweep finds every block: none is lost, none is anywhere else. */
proctype last_sweep() {
  byte chain = NONE, cur = NONE, i = 0;
  bool took = false;
  threads_done == STRANGERS + 1;
  lifeline_take(took);
  assert(took);
  lock_take();
  drain(SLAB);
  flush();
  lock_give();
  assert(inbox_head == NONE);
  assert(place[0] == SLAB && place[1] == SLAB && place[2] == SLAB)
}

init {
  atomic {
    byte first_stranger;
    place[0] = BIN;
    run owner();                      /* pid 1 */
    lifeline = 1;
    first_stranger = 2;
    place[1] = HAND; holder[1] = first_stranger;
    place[2] = HAND; holder[2] = first_stranger + 1;
    run stranger();
    run stranger();
    run last_sweep()
  }
}
