// Whether a signal reaches a thread of a test program whatever the thread does.
//
// The thread sanitizer holds signals back until a thread does something that it sees, and a wait on
// an atomic, or a loop, is nothing of that. So tests that need an answer from a signal handler skip
// themselves where this is false.
#pragma once

namespace strata::test {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kSignalsAtOnce = false;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool kSignalsAtOnce = false;
#else
inline constexpr bool kSignalsAtOnce = true;
#endif
#else
inline constexpr bool kSignalsAtOnce = true;
#endif

}  // namespace strata::test
