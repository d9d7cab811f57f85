// Fault points: named places in the code at which a test can make something happen.
//
// A build with STRATA_FAULT_POINTS (the presets debug, asan and tsan) asks at each point what the
// test wants there; in any other build a point is nothing at all. What is wanted comes from the
// environment variable STRATA_FAULTS, so that it reaches processes the test does not run in, or
// from set_faults():
//
//   FAULTS = FAULT[,FAULT...]       FAULT = [SCOPE:]NAME=[@N:]ACTION
//
//   NAME     name of a point; "supervisor.*" means all that begin so
//   SCOPE    only in the process that has set this scope (set_fault_scope), as "node/chip[1]"; a
//            '*' at its end works as for names
//   @N:      only at the N-th hit of that fault in the process, counted from 1; else at every hit
//   ACTION   exit:CODE      end the process at once, with that status
//            signal:NUMBER  send that signal to the process
//            stop           the same with SIGSTOP
//            delay:MS       sleep that many milliseconds
//            error:NUMBER   fault_error() at that point answers this errno value
//
// Every name that is passed is remembered, so a test can find all there are: passed_fault_points(),
// and, for other processes, the environment variable STRATA_FAULT_LOG: a file to which each process
// appends a line [SCOPE:]NAME when it first passes a point.
//
// Thread safety: every function may be called from any thread; not from a signal handler, nor from
// code that must not allocate.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata::base {

#ifdef STRATA_FAULT_POINTS

/// Whether fault points are compiled in.
inline constexpr bool kFaultPoints = true;

/// A point. Does what was asked for there; `error` faults do nothing here.
void fault_point(std::string_view name);

/// A point at which a call can be made to fail: the errno value to fail with, or 0. Does what else
/// was asked for, too.
[[nodiscard]] int fault_error(std::string_view name);

/// Replaces all faults of this process, those of the environment too, and forgets the hits. Throws
/// InvalidArgument where the text is not in the form above.
void set_faults(std::string_view faults);

/// Says who this process is, for the scopes of faults.
void set_fault_scope(std::string_view scope);

/// How often that point was passed since the start or the last set_faults().
[[nodiscard]] std::uint64_t fault_point_hits(std::string_view name);

/// Every name that was passed since the start of the process, in order of the alphabet.
[[nodiscard]] std::vector<std::string> passed_fault_points();

#else

inline constexpr bool kFaultPoints = false;
inline void fault_point(std::string_view /*name*/) {}
[[nodiscard]] constexpr int fault_error(std::string_view /*name*/) { return 0; }
inline void set_faults(std::string_view /*faults*/) {}
inline void set_fault_scope(std::string_view /*scope*/) {}
[[nodiscard]] constexpr std::uint64_t fault_point_hits(std::string_view /*name*/) { return 0; }
[[nodiscard]] inline std::vector<std::string> passed_fault_points() { return {}; }

#endif

}  // namespace strata::base
