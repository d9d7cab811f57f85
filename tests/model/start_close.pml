/* The start and the end of a Worker: the supervisor (node/supervisor.hpp) with its table
 * (node/child_machine.hpp; table.pml is generated from it), the processes, the state of life of
 * WorkerState, and threads of the user that call init, close, cancel and replace when they like.
 *
 * What a process may do at any moment: say anything that its channel can carry, also nonsense, close
 * the channel, end; or do nothing any more, and not end even by SIGKILL. (One that ends when it is
 * asked, but not before, does nothing that one of these does not do.) What the system may do: fail to make a
 * process, and let any time run out at any moment. Messages and processes are limited in number, so
 * every run of the model is finite.
 *
 * What is shown, by asserts and by the absence of invalid end states and of cycles:
 *   (a) every init() and close() returns, whatever the processes do;
 *   (b) a start has one answer: started, start_failed or stopped; a stop has one, stopped;
 *   (c) a Worker is closed only when it has no process;
 *   (d) each process is buried or abandoned, once, and the client hears of that once, and of its being
 *       ready at most once before;
 *   (e) when nothing happens any more, the Worker is closed, or it runs; each place has a ready
 *       process with a channel, or none, and no process is half started or half ended.
 *
 * Faults (-DFAULT_...) are in the places marked so; check_models.py has the list. Each breaks one of
 * these.
 */
#include "table.pml"

#ifndef PROCESSES
#define PROCESSES 2 /* Places for worker processes. */
#endif
#ifndef SPAWNS
#define SPAWNS 2 /* Processes that a place can have; then making one fails. */
#endif
#ifndef MESSAGES
#define MESSAGES 2 /* That a process sends. */
#endif
#ifndef ROUNDS
#define ROUNDS 1 /* init() and close() of the first user. */
#endif
#ifndef OTHERS
#define OTHERS 1 /* Calls of the second user. */
#endif
#define FAILED_STARTS 2 /* In a row, after which a place stays empty. (3 in the code.) */

/* ---- The processes ------------------------------------------------------------------------------ */

/* What a process was told, the firmest. */
#define TOLD_NOTHING 0
#define TOLD_TO_STOP 1
#define TOLD_TERM 2
#define TOLD_KILL 3

typedef Place {
  byte state;         /* Of the table. */
  byte spawns;        /* Processes made so far. */
  bool hangs;         /* From now on the process does nothing, nor does it ever end. */
  bool ended;         /* The process has ended. */
  byte told;          /* What it was told. */
  byte messages;      /* That it may still send. */
  bool channel;       /* Its control channel is open, as the supervisor sees it. */
  bool timer;         /* There is a time that can run out. */
  bool replace;       /* As in the code. */
  byte failed_starts; /* As in the code. */
  bool process;       /* Ghost: made, and neither buried nor abandoned. */
  bool up;            /* Ghost: the client had child_up. */
  bool owed;          /* Ghost: a child_down must come. */
};
Place places[PROCESSES];

#define has_process(s) ((s) != S_absent && (s) != S_abandoned)
#define is_starting(s) ((s) == S_spawned || (s) == S_connected || (s) == S_initialising)
#define all_gone (gone == PROCESSES)

/* ---- WorkerState -------------------------------------------------------------------------------- */

mtype = { closed, starting, running, stopping };       /* WorkerState::Life */
mtype = { P_closed, P_starting, P_running, P_rolling_back, P_stopping };
mtype = { C_start, C_stop, C_hasten, C_replace };      /* Commands */

mtype life = closed;
bool cancelled;
byte ended; /* How often life became `closed`; whoever waits, waits for that. */
chan commands = [8] of { mtype };

/* Ghosts: what the supervisor's client was told. */
bool start_asked;
bool start_answered;
bool stop_asked;

#ifdef FAULT_WAIT_FOR_STATE
#define is_over(since) (life == closed)
#else
#define is_over(since) (ended != since)
#endif

inline close_life() {
  life = closed;
  ended++
}

/* client.started() */
inline tell_started() {
  assert(start_asked && !start_answered);
  start_answered = true;
  if
  :: life == starting -> life = running
  :: else
  fi
}

/* client.start_failed() */
inline tell_start_failed() {
  assert(start_asked && !start_answered);
  assert(all_gone);
  start_answered = true;
  if
#ifdef FAULT_START_FAILED_CLOSES
  :: life == starting || life == stopping -> close_life()
#else
  :: life == starting -> close_life()
#endif
  :: else
  fi
}

/* client.stopped() */
inline tell_stopped() {
  assert(stop_asked);
  assert(all_gone);
  stop_asked = false;
  start_answered = true;
  if
  :: life == stopping -> close_life()
  :: else
  fi
}

/* ---- The supervisor ----------------------------------------------------------------------------- */

mtype phase = P_closed;
chan todo = [12] of { byte, byte }; /* Events that follow from the one in hand. */
byte next_start = PROCESSES;        /* The place that start() comes to next. */
bool look;                          /* check_all_gone() shall be called. */
bool limits = true;                 /* A limit of a task may run out, once; or never. */
/* Of the event in hand. */
byte c, e, from, action, next, i, gone;

inline tell_down() {
  assert(places[c].owed);
  places[c].owed = false;
  places[c].up = false
}

inline spawn() {
  assert(!places[c].process && !places[c].owed);
  places[c].owed = true;
  places[c].replace = false;
  places[c].told = TOLD_NOTHING;
  if
  :: places[c].spawns < SPAWNS ->
     places[c].spawns++;
     places[c].process = true;
     places[c].channel = true;
     places[c].messages = MESSAGES;
     places[c].hangs = false;
     places[c].ended = false
  :: todo!c, E_spawn_failed
  fi
}

inline gone_for_good() {
  assert(places[c].process);
  places[c].process = false;
  places[c].channel = false;
  places[c].messages = 0;
  places[c].hangs = false;
  places[c].ended = false;
  places[c].told = TOLD_NOTHING
}

inline announce() {
  assert(!places[c].up && places[c].owed);
  places[c].up = true;
  places[c].failed_starts = 0;
  if
  :: phase == P_starting ->
     i = 0; gone = 0;
     do
     :: i < PROCESSES && places[i].state == S_ready -> i++; gone++
     :: i < PROCESSES && places[i].state != S_ready -> i++
     :: i == PROCESSES -> break
     od;
     if
     :: gone == PROCESSES -> phase = P_running; tell_started()
     :: else
     fi
  :: else
  fi
}

inline begin_stop() {
  i = 0;
  do
  :: i < PROCESSES -> places[i].replace = false; todo!i, E_stop; i++
  :: i == PROCESSES -> break
  od
}

/* A process is gone, or could not be made. */
inline settle() {
  if
  :: phase == P_running ->
     if
     :: !places[c].up -> places[c].failed_starts++
     :: else
     fi;
     tell_down();
     if
     :: places[c].failed_starts < FAILED_STARTS -> todo!c, E_start
     :: true -> places[c].failed_starts = 0 /* replace_dead_workers is off. */
     fi
  :: phase == P_starting ->
     tell_down();
     phase = P_rolling_back;
     begin_stop();
     look = true
  :: else ->
     tell_down();
#ifndef FAULT_SETTLE_DOES_NOT_LOOK
     look = true
#endif
  fi
}

inline act() {
  if
  :: action == A_ignore || action == A_note
  :: action == A_spawn -> spawn()
  :: action == A_announce -> announce()
  :: action == A_fail_spawn -> settle()
  :: action == A_ask -> places[c].told = TOLD_TO_STOP
  :: action == A_insist -> places[c].told = TOLD_TERM
  :: action == A_kill || action == A_blame -> places[c].told = TOLD_KILL
  :: action == A_bury -> assert(places[c].ended); gone_for_good(); settle()
  :: action == A_abandon -> assert(places[c].told == TOLD_KILL); gone_for_good(); settle()
  fi
}

/* Supervisor::apply for event `e` of place `c`. */
inline apply() {
  from = places[c].state;
  transition(from, e, action, next);
#ifdef FAULT_ASKED_FOR_EVER
  if
  :: from == S_asked && e == E_timeout -> action = A_ignore; next = from
  :: else
  fi;
#endif
#ifdef FAULT_KILL_IS_TRUSTED
  if
  :: from == S_killing && e == E_timeout -> action = A_ignore; next = from
  :: else
  fi;
#endif
#ifdef FAULT_CLOSED_CHANNEL_IGNORED
  if
  :: from == S_ready && e == E_disconnected -> action = A_ignore; next = from
  :: else
  fi;
#endif
#ifdef FAULT_BURIED_WHILE_IT_LIVES
  if
  :: from == S_ready && e == E_failed -> action = A_bury; next = S_absent
  :: else
  fi;
#endif
  places[c].state = next;
  if
  :: next != from -> places[c].timer = is_starting(next) || next == S_asked ||
                                        next == S_terminating || next == S_killing
  :: else
  fi;
  act()
}

inline count_gone() {
  i = 0; gone = 0;
  do
  :: i < PROCESSES && !has_process(places[i].state) -> assert(!places[i].process); i++; gone++
  :: i < PROCESSES && has_process(places[i].state) -> i++
  :: i == PROCESSES -> break
  od
}

inline check_all_gone() {
  if
  :: phase == P_rolling_back || phase == P_stopping ->
     count_gone();
     if
     :: all_gone && phase == P_rolling_back -> phase = P_closed; tell_start_failed()
     :: all_gone && phase == P_stopping -> phase = P_closed; tell_stopped()
     :: else
     fi
  :: else
  fi
}

/* All that follows from what has happened. */
inline follow() {
  do
  :: nempty(todo) -> todo?c, e; apply()
  :: empty(todo) && next_start < PROCESSES ->
     if
     :: phase == P_starting -> todo!next_start, E_start; next_start++
     :: else -> next_start = PROCESSES
     fi
  :: empty(todo) && next_start == PROCESSES && look -> look = false; check_all_gone()
  :: empty(todo) && next_start == PROCESSES && !look -> break
  od;
  c = 0; e = 0; from = 0; action = 0; next = 0; i = 0; gone = 0
}

inline command_start() {
  assert(phase == P_closed);
  count_gone();
  assert(all_gone);
  phase = P_starting;
  start_asked = true;
  start_answered = false;
  i = 0;
  do
  :: i < PROCESSES -> places[i].failed_starts = 0; places[i].replace = false; i++
  :: i == PROCESSES -> break
  od;
  next_start = 0;
  look = true
}

inline command_stop() {
  assert(!stop_asked);
  if
  :: phase == P_closed -> count_gone(); stop_asked = true; tell_stopped()
#ifdef FAULT_STOP_DURING_START_FORGOTTEN
  :: phase == P_starting -> stop_asked = true
#endif
  :: else -> stop_asked = true; phase = P_stopping; begin_stop(); look = true
  fi
}

inline command_hasten() {
  if
  :: phase == P_stopping -> begin_stop()
  :: else
  fi
}

inline command_replace() {
  if
  :: phase != P_running
  :: phase == P_running ->
     c = 0;
     places[c].replace = true;
     if
     :: has_process(places[c].state) -> todo!c, E_end
     :: else -> places[c].failed_starts = 0; todo!c, E_start
     fi
  fi
}

/* What the process of place `p` can do next, if it does anything. */
#define LIVES(p) (has_process(places[p].state) && !places[p].hangs)

/* A message of place `c`, or what is none. */
inline hear() {
  places[c].messages--;
  if
  :: e = E_hello
  :: e = E_step
  :: e = E_ready
  :: e = E_failed
  :: e = E_broken /* A message that makes no sense. */
  :: e = E_broken; places[c].channel = false /* Bytes that are no message. */
  fi;
  todo!c, e
}

#define EVENTS_OF(p)                                                                           \
  :: LIVES(p) && places[p].channel && places[p].messages > 0 -> c = p; hear()                  \
  :: LIVES(p) && places[p].channel -> places[p].channel = false; todo!p, E_disconnected        \
  :: LIVES(p) -> places[p].ended = true; todo!p, E_exited                                      \
  :: LIVES(p) -> places[p].hangs = true                                                        \
  :: places[p].timer -> places[p].timer = false; todo!p, E_timeout                             \
  :: limits && places[p].state == S_ready ->                                                   \
     limits = false; places[p].replace = true; todo!p, E_end

active proctype Supervisor() {
end_idle:
  do
  :: atomic {
       if
       :: commands?C_start -> command_start()
       :: commands?C_stop -> command_stop()
       :: commands?C_hasten -> command_hasten()
       :: commands?C_replace -> command_replace()
       :: limits -> limits = false
       EVENTS_OF(0)
#if PROCESSES > 1
       EVENTS_OF(1)
#endif
#if PROCESSES > 2
       EVENTS_OF(2)
#endif
       fi;
       follow()
     }
  od
}

/* ---- The user's threads ------------------------------------------------------------------------- */

/* WorkerState::init(). */
inline init_worker(since) {
  atomic {
    if
    :: life != closed -> since = ended; refused = true
    :: else ->
       life = starting;
       cancelled = false;
       since = ended;
       refused = false;
#ifndef FAULT_STOP_OVERTAKES_START
       commands!C_start
#endif
    fi
  }
#ifdef FAULT_STOP_OVERTAKES_START
  if
  :: !refused -> commands!C_start
  :: else
  fi;
#endif
  if
  :: refused
  :: atomic { !refused && (life == running || is_over(since)) -> since = 0 }
  fi;
  refused = false
}

/* WorkerState::begin_stop(), which cancel() is too. */
inline cancel_worker(since) {
  atomic {
    since = ended;
    idle = false;
    first = false;
    if
    :: life == closed -> idle = true
    :: life == stopping -> commands!C_hasten
    :: else -> life = stopping; cancelled = true; first = true
    fi
  }
  if
  :: first -> atomic { commands!C_stop; first = false }
  :: else
  fi
}

inline close_worker(since) {
  cancel_worker(since);
  if
  :: idle
  :: atomic { !idle && is_over(since) -> since = 0 }
  fi;
  idle = false
}

active proctype User() {
  byte round, since;
  bool refused, idle, first;
  do
  :: round < ROUNDS ->
     init_worker(since);
     close_worker(since);
     round++
  :: round == ROUNDS -> break
  od
}

active proctype Other() {
  byte calls, since;
  bool refused, idle, first;
  do
  :: calls < OTHERS ->
     if
     :: true -> close_worker(since)
     :: true -> cancel_worker(since)
     :: atomic { life != closed -> commands!C_replace }
     :: true -> init_worker(since)
     :: true -> break
     fi;
     calls++
  :: calls == OTHERS -> break
  od
}

/* When nothing can happen any more. */
active proctype Watcher() {
  byte p;
  if
  :: atomic {
       timeout ->
       assert(life == closed && phase == P_closed || life == running && phase == P_running);
       count_gone();
       assert(life == running || all_gone);
       do
       :: p < PROCESSES ->
          assert(places[p].state == S_absent || places[p].state == S_abandoned ||
                 (places[p].state == S_ready && places[p].channel));
          assert(places[p].process == has_process(places[p].state));
          p++
       :: p == PROCESSES -> break
       od
     }
  fi
}
