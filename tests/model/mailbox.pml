/* The mailbox's wait and wake protocol (src/ipc/mailbox.hpp), both directions and interrupt().
 *
 * Memory is that of x86: a store goes into the store buffer of its processor, which later stores
 * leave behind it in order; loads look into the own buffer first; a fence, and an exchange, wait
 * until the own buffer is empty. That is all that the C++ orders in use promise here, or less. The
 * spinning before a sleep is left out: it only delays the announcement.
 *
 * The parent sends FRAMES frames, up to SLOTS ahead, and gets as many completions; a third thread
 * interrupts the worker once at any time. What is checked (spin -run, invalid end states): there is
 * no way to an end in which somebody sleeps for ever, and all frames and the interruption have been
 * served at the end; with -DLIVE, also that the end is always reached under weak fairness.
 *
 * Planted faults, one at a time; each must be found:
 *   NO_RECHECK            a consumer sleeps without a second look
 *   CLEAR_AFTER_CHECK     ... and announces only after that look
 *   NO_FENCE_PRODUCER     no fence between publishing and reading the asleep word
 *   NO_FENCE_CONSUMER     no fence between announcing and looking
 *   WAKE_BEFORE_PUBLISH   the asleep word is looked at before the frame is published
 *   WAKE_WITHOUT_CLEAR    a waker wakes and leaves the asleep word at 1
 *   INTERRUPT_UNCHECKED   the second look does not look at the interruption
 */
#ifndef FRAMES
#define FRAMES 3
#endif
#ifndef SLOTS
#define SLOTS 2
#endif

/* Words of shared memory. */
#define SUBMITTED 0   /* how many frames are published: stands for the slots' sequence words */
#define COMPLETED 1
#define WORKER_ASLEEP 2
#define PARENT_ASLEEP 3
#define INTERRUPTED 4
#define WORDS 5
byte memory[WORDS];

/* Processors: the parent, the worker's task thread, its control thread. */
#define PARENT 0
#define WORKER 1
#define CONTROL 2
#define BUFFER 3
typedef Buffer { byte word[BUFFER]; byte value[BUFFER]; byte count; }
Buffer buffer[3];

bool event = false;        /* the eventfd is readable */
bool worker_in_futex = false;
bool parent_done = false, worker_done = false, control_done = false;
byte interrupts_seen = 0;

inline drain_one(cpu) {
  memory[buffer[cpu].word[0]] = buffer[cpu].value[0];
  buffer[cpu].word[0] = buffer[cpu].word[1]; buffer[cpu].value[0] = buffer[cpu].value[1];
  buffer[cpu].word[1] = buffer[cpu].word[2]; buffer[cpu].value[1] = buffer[cpu].value[2];
  buffer[cpu].word[2] = 0; buffer[cpu].value[2] = 0;
  buffer[cpu].count--
}

inline store(cpu, w, v) {
  atomic {
    buffer[cpu].count < BUFFER ->
    buffer[cpu].word[buffer[cpu].count] = w;
    buffer[cpu].value[buffer[cpu].count] = v;
    buffer[cpu].count++
  }
}

/* The newest of the own stores that are under way, else the memory. */
inline load(cpu, w, to) {
  atomic {
    if
    :: buffer[cpu].count > 2 && buffer[cpu].word[2] == w -> to = buffer[cpu].value[2]
    :: else ->
       if
       :: buffer[cpu].count > 1 && buffer[cpu].word[1] == w -> to = buffer[cpu].value[1]
       :: else ->
          if
          :: buffer[cpu].count > 0 && buffer[cpu].word[0] == w -> to = buffer[cpu].value[0]
          :: else -> to = memory[w]
          fi
       fi
    fi
  }
}

inline fence(cpu) { buffer[cpu].count == 0 }

/* Sets the word to 0; `to` is what it was. */
inline exchange_0(cpu, w, to) {
  atomic { buffer[cpu].count == 0 -> to = memory[w]; memory[w] = 0 }
}

/* MailboxParent::wake and MailboxWorker::interrupt, after the store. */
inline wake_worker(cpu, seen) {
#ifndef NO_FENCE_PRODUCER
  fence(cpu);
#endif
  load(cpu, WORKER_ASLEEP, seen);
  if
  :: seen == 0 -> skip
  :: else ->
#ifdef WAKE_WITHOUT_CLEAR
     atomic { worker_in_futex = false }
#else
     exchange_0(cpu, WORKER_ASLEEP, seen);
     if
     :: seen != 0 -> atomic { worker_in_futex = false }  /* futex_wake */
     :: else -> skip
     fi
#endif
  fi;
  seen = 0
}

/* The store buffers of all processors reach memory at any time. */
active proctype memory_system() {
end:
  do
  :: atomic { buffer[PARENT].count > 0 -> drain_one(PARENT) }
  :: atomic { buffer[WORKER].count > 0 -> drain_one(WORKER) }
  :: atomic { buffer[CONTROL].count > 0 -> drain_one(CONTROL) }
  od
}

active proctype parent() {
  byte pushed = 0, popped = 0, seen = 0;
  do
  :: popped == FRAMES -> break
  :: pushed < FRAMES && pushed - popped < SLOTS ->  /* push() */
#ifdef WAKE_BEFORE_PUBLISH
     wake_worker(PARENT, seen);
     store(PARENT, SUBMITTED, pushed + 1);
#else
     store(PARENT, SUBMITTED, pushed + 1);
     wake_worker(PARENT, seen);
#endif
     pushed++
  :: pushed > popped ->                             /* arm(), epoll_wait, pop() */
#ifdef CLEAR_AFTER_CHECK
     load(PARENT, COMPLETED, seen);
     if
     :: seen > popped -> skip
     :: else ->
        store(PARENT, PARENT_ASLEEP, 1);
        fence(PARENT);
        atomic { event -> event = false }
     fi;
#else
     store(PARENT, PARENT_ASLEEP, 1);
#ifndef NO_FENCE_CONSUMER
     fence(PARENT);
#endif
#ifdef NO_RECHECK
     seen = popped;
#else
     load(PARENT, COMPLETED, seen);
#endif
     if
     :: seen > popped -> store(PARENT, PARENT_ASLEEP, 0)
     :: else -> atomic { event -> event = false }
     fi;
#endif
     load(PARENT, COMPLETED, seen);
     if
     :: seen > popped -> popped++
     :: else -> skip                                /* woken for nothing: again */
     fi;
     seen = 0
  od;
  parent_done = true
}

active proctype worker() {
  byte taken = 0, seen = 0, flag = 0;
  do
  :: taken == FRAMES && interrupts_seen == 1 -> break
  :: else ->
     /* wait() */
     load(WORKER, INTERRUPTED, flag);
     if
     :: flag == 1 ->
        exchange_0(WORKER, INTERRUPTED, flag);
        interrupts_seen++
     :: else ->
        load(WORKER, SUBMITTED, seen);
        if
        :: seen > taken ->
           /* take(), the task, complete() */
           taken++;
           store(WORKER, COMPLETED, taken);
#ifndef NO_FENCE_PRODUCER
           fence(WORKER);
#endif
           load(WORKER, PARENT_ASLEEP, seen);
           if
           :: seen == 0 -> skip
           :: else ->
              exchange_0(WORKER, PARENT_ASLEEP, seen);
              if
              :: seen != 0 -> event = true
              :: else -> skip
              fi
           fi
        :: else ->
#ifdef CLEAR_AFTER_CHECK
           load(WORKER, SUBMITTED, seen);
           load(WORKER, INTERRUPTED, flag);
           store(WORKER, WORKER_ASLEEP, 1);
           fence(WORKER);
#else
           store(WORKER, WORKER_ASLEEP, 1);
#ifndef NO_FENCE_CONSUMER
           fence(WORKER);
#endif
#ifdef NO_RECHECK
           seen = taken; flag = 0;
#else
           load(WORKER, SUBMITTED, seen);
#ifdef INTERRUPT_UNCHECKED
           flag = 0;
#else
           load(WORKER, INTERRUPTED, flag);
#endif
#endif
#endif
           if
           :: seen > taken || flag == 1 -> skip
           :: else ->
              /* futex_wait: the kernel, which has a fence of its own, looks and queues at once. */
              atomic {
                buffer[WORKER].count == 0 ->
                if
                :: memory[WORKER_ASLEEP] == 1 -> worker_in_futex = true
                :: else -> skip
                fi
              };
              !worker_in_futex
           fi;
           store(WORKER, WORKER_ASLEEP, 0)
        fi
     fi;
     seen = 0; flag = 0
  od;
  worker_done = true
}

active proctype control() {
  byte seen = 0;
  store(CONTROL, INTERRUPTED, 1);
  wake_worker(CONTROL, seen);
  control_done = true
}

#ifdef LIVE
ltl ends { <> (parent_done && worker_done && control_done) }
#endif
